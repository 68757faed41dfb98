package proxy

import (
	"strings"

	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/clientip"
	"github.com/keygate/keygate/internal/http1"
)

// ReadHead sets the fields of ask, on which the decision about a request depends, and the fields of
// x that its record and the upstream need. The strings share the memory of text, which the spans of
// the head refer to. x.Client is set before; x.ForwardedFor may have memory for values. trust is Config.Trust.
func (x *Exchange) ReadHead(trust *clientip.Trust, ask *admit.Request, h *http1.Request, text []byte, header admit.Header) {
	*ask = admit.Request{Method: Text(h.Method.Of(text)), Target: Text(h.Target.Of(text)), Header: header}
	x.Method, x.ForwardedFor = ask.Method, x.ForwardedFor[:0]
	traceparents := 0
	fields := h.Fields()
	for i := range fields {
		f := &fields[i]
		switch f.ID {
		case http1.Host:
			ask.Host = Text(f.Value.Of(text))
		case http1.Authorization:
			if ask.Authorizations++; ask.Authorizations == 1 {
				ask.Authorization = Text(f.Value.Of(text))
			}
		case http1.Origin:
			ask.Origin = Text(f.Value.Of(text))
		case http1.AccessControl:
			ask.PreflightMethod = Text(f.Value.Of(text))
		case http1.XForwardedFor:
			if x.Client.Trusted {
				x.ForwardedFor = append(x.ForwardedFor, Text(f.Value.Of(text)))
			}
		case http1.Traceparent:
			if x.Traceparent = f.Value.Of(text); traceparents > 0 {
				x.Traceparent = nil
			}
			traceparents++
		}
	}
	x.addr = x.clientAddr(trust)
	ask.Client, ask.Length = x.addr, h.ContentLength()
}

// HeaderValue returns the first value of the fields with a name, and how many there are, as
// admit.Header does.
func HeaderValue(fields []http1.Field, text []byte, name string) (value string, count int) {
	for i := range fields {
		if f := &fields[i]; f.Name.Len() == len(name) && strings.EqualFold(Text(f.Name.Of(text)), name) {
			if count++; count == 1 {
				value = Text(f.Value.Of(text))
			}
		}
	}
	return value, count
}
