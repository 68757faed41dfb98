package send

import (
	"bytes"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/cookie"
	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/proxy/message"
	"github.com/keygate/keygate/internal/upstream"
)

// Request is a request to an upstream, as far as its head goes.
type Request struct {
	Head *http1.Request
	Text []byte // what the spans of Head refer to
	// Hop describes the request, except for the fields that come from Head.
	Hop proxy.Hop
	// Trusted is set if a trusted proxy sent the request.
	Trusted bool
	// Body is set if something follows the head: a body, or the bytes of a tunnel.
	Body bool
	// Upgrade asks for the upgrade that the client asks for. It needs HTTP/1.1.
	Upgrade bool
	// WebSocketKey, unless it is empty, makes the request ask for a WebSocket with this
	// Sec-WebSocket-Key, for an HTTP/2 client. See NewWebSocketKey.
	WebSocketKey string
	// Trace appends the value of traceparent in place of the client's. Nil forwards the client's.
	Trace func(dst []byte) []byte
}

// upgrades reports whether the request over HTTP/1.1 asks for an upgrade.
func (r *Request) upgrades() bool { return r.Upgrade || r.WebSocketKey != "" }

// withheld returns the client's fields that a target does not get. A newer configuration than the request's may have other
// key headers: the request's own remain withheld.
func (r *Request) withheld(to *Target) proxy.Withheld {
	return proxy.Withheld{Names: r.protected(to), Edits: r.Hop.Verdict.RequestEdits()}
}

// protected returns the fields that no rule sets on the request: those that the target sets itself, and those that may hold the key.
func (r *Request) protected(to *Target) []string {
	keys := r.Hop.Verdict.Gateway.Withheld
	if slices.Equal(keys, to.of.Keys) {
		return to.of.Withheld
	}
	return slices.Concat(to.of.Withheld, keys)
}

// eachSet calls yield with each header that the gateway and the route set. value is valid until yield returns.
func (r *Request) eachSet(to *Target, yield func(name, value string)) {
	e := r.Hop.Verdict.RequestEdits()
	if e == nil {
		return
	}
	protected := r.protected(to)
	r.Hop.Verdict.EachHeader(e, r.Hop.RequestID, func(name, value string) {
		if !proxy.IsWithheld(protected, name) { // upstream_headers are newer
			yield(name, value)
		}
	})
}

// append appends the head, which declares the body that it begins.
func (r *Request) append(dst []byte, to *Target, body *message.Framing) []byte {
	body.Begin(r.Head, r.upgrades(), r.withheld(to))
	if r.Hop.Major == 2 { // over HTTP/1.1 the client decides
		body.DeclareEmpty(r.Head.Method.Of(r.Text))
	}
	dst = append(dst, r.Head.Method.Of(r.Text)...)
	dst = append(dst, ' ')
	host := r.hostFor(to)
	if strings.HasPrefix(to.path, "//") {
		// The path would be read as an authority. The absolute form means the same, and every server must
		// accept it.
		dst = append(append(append(dst, upstream.Scheme(to.of.Base)...), "://"...), host...)
	}
	dst = r.Hop.Verdict.AppendTarget(append(dst, to.path...))
	dst = append(dst, " HTTP/1.1\r\nHost: "...)
	dst = append(append(dst, host...), "\r\n"...)
	dst, kept := r.appendCallers(dst, to)
	dst = r.appendConnection(r.appendOwn(dst, to, kept))
	dst = body.AppendTo(dst, r.Text, r.Head.Fields())
	return append(dst, "\r\n"...)
}

// hostFor returns the Host that a target gets.
func (r *Request) hostFor(to *Target) string {
	if to.of.Host == "" {
		return proxy.Text(r.authority())
	}
	return to.of.Host
}

// appendCallers appends the client's fields that are forwarded. kept is the set of those
// among them that have a Name.
func (r *Request) appendCallers(dst []byte, to *Target) (_ []byte, kept proxy.Fields) {
	filter := r.filter(to)
	fields := r.Head.Fields()
	run := proxy.RunsOf(dst, r.Text)
	for i := range fields {
		f := &fields[i]
		if filter.drops(f) {
			run.Cut(f.Name.Start)
			continue
		}
		if f.ID == http1.Cookie && cookie.HasSession(proxy.Text(f.Value.Of(r.Text))) {
			run.Cut(f.Name.Start)
			run.Dst = appendCookie(run.Dst, f.Name.Of(r.Text), f.Value.Of(r.Text))
			continue
		}
		kept |= 1 << f.ID
		run.Keep(f.Name.Start)
	}
	run.Cut(uint32(r.Head.End - len("\r\n")))
	return run.Dst, kept
}

// requestFilter decides which of the client's fields are not forwarded.
type requestFilter struct {
	*Request
	drop     proxy.Fields
	withheld proxy.Withheld
	hides    bool // withheld is not empty
	named    proxy.ConnectionNames
	reads    bool // costs are read from the response
}

func (r *Request) filter(to *Target) requestFilter {
	withheld := r.withheld(to)
	return requestFilter{
		Request: r, drop: proxy.RequestDrop(r.Trusted, r.Trace != nil), withheld: withheld, hides: !withheld.IsEmpty(),
		named: proxy.NamesOf(r.Text, r.Head.Fields(), r.Head.Named()), reads: r.Hop.Verdict.Cost.ReadsResponse(),
	}
}

func (r *requestFilter) drops(f *http1.Field) bool {
	buf := r.Text
	return r.drop.Has(f.ID) || r.Hop.GRPCTimeout != "" && isGRPCTimeout(f.Name.Of(buf)) || r.WebSocketKey != "" && isWebSocketKey(f.Name.Of(buf)) || f.ID == http1.Authorization && proxy.IsKey(proxy.Text(f.Value.Of(buf)), r.Hop.Verdict) ||
		r.named.Has(f) || r.hides && r.withheld.Has(proxy.Text(f.Name.Of(buf))) || r.reads && proxy.ObstructsCost(f.Name.Of(buf))
}

// isGRPCTimeout reports whether name is that of the time that a gRPC call has.
func isGRPCTimeout(name []byte) bool {
	return len(name) == len("grpc-timeout") && strings.EqualFold(proxy.Text(name), "grpc-timeout")
}

// appendCookie appends a Cookie field without the session of a browser, and nothing if it has no
// other cookie.
func appendCookie(dst, name, value []byte) []byte {
	line := append(append(dst, name...), ": "...)
	if whole := cookie.AppendOthers(line, proxy.Text(value)); len(whole) > len(line) {
		return append(whole, "\r\n"...)
	}
	return dst
}

// appendOwn appends the fields that the gateway adds.
func (r *Request) appendOwn(dst []byte, to *Target, kept proxy.Fields) []byte {
	r.completeHop(to, kept)
	add := func(name, value string) {
		dst = append(append(append(append(dst, name...), ": "...), value...), "\r\n"...)
	}
	r.Hop.Each(add)
	r.eachSet(to, add)
	if r.traces(to) {
		before := len(dst)
		dst = append(dst, "Traceparent: "...)
		start := len(dst)
		if dst = r.Trace(dst); len(dst) > start {
			dst = append(dst, "\r\n"...)
		} else {
			dst = dst[:before]
		}
	}
	return dst
}

// completeHop sets the fields of Hop that come from Head. kept is the set of the client's fields
// that are forwarded.
func (r *Request) completeHop(to *Target, kept proxy.Fields) {
	hop := &r.Hop
	hop.Headers = to.of.Headers
	hop.Authority = proxy.Text(r.authority())
	if hop.Verdict.Cost.ReadsResponse() && !r.withheld(to).Has("accept-encoding") {
		hop.AcceptEncoding = proxy.AcceptEncoding(r.Text, r.Head.Fields())
	}
	hop.HasForwardedHost, hop.HasForwardedProto = kept.Has(http1.XForwardedHost), kept.Has(http1.XForwardedProto)
	if r.Trusted {
		hop.ForwardedFor = proxy.Text(proxy.AppendValues(nil, r.Text, r.Head.Fields(), http1.XForwardedFor))
	}
}

// traces reports whether the gateway writes traceparent.
func (r *Request) traces(to *Target) bool {
	return r.Trace != nil && !r.withheld(to).Has("traceparent")
}

// appendConnection appends the connection fields for the upstream.
func (r *Request) appendConnection(dst []byte) []byte {
	switch {
	case r.upgrades():
		dst = append(dst, "Connection: Upgrade\r\nUpgrade: "...)
		dst = append(proxy.AppendValues(dst, r.Text, r.Head.Fields(), http1.Upgrade), "\r\n"...)
		if r.WebSocketKey != "" {
			dst = append(append(append(dst, "Sec-WebSocket-Key: "...), r.WebSocketKey...), "\r\n"...)
		}
	case r.Head.WantsTrailers():
		// RFC 9110, 10.1.4: a sender of TE names it in Connection.
		dst = append(dst, "TE: trailers\r\nConnection: TE\r\n"...)
	}
	return dst
}

// authority returns the host that the client addressed: the host in an absolute target, otherwise
// the value of Host.
func (r *Request) authority() []byte {
	target := r.Head.Target.Of(r.Text)
	if len(target) > 0 && target[0] != '/' {
		if i := bytes.Index(target, []byte("://")); i >= 0 {
			rest := target[i+3:]
			if end := bytes.IndexAny(rest, "/?"); end >= 0 {
				rest = rest[:end]
			}
			return rest
		}
	}
	return proxy.ValueOf(r.Text, r.Head.Fields(), http1.Host)
}

// addTo adds the fields of the request to h, as append does over HTTP/1.1.
func (r *Request) addTo(h *requestHead, to *Target) {
	var kept proxy.Fields
	filter := r.filter(to)
	fields := r.Head.Fields()
	for i := range fields {
		f := &fields[i]
		if filter.drops(f) {
			continue
		}
		value := proxy.Text(f.Value.Of(r.Text))
		if f.ID == http1.Cookie && cookie.HasSession(value) {
			if value = proxy.Text(cookie.AppendOthers(nil, value)); value == "" {
				continue
			}
		}
		kept |= 1 << f.ID
		h.add(proxy.Text(f.Name.Of(r.Text)), value, f.Sensitive)
	}
	r.completeHop(to, kept)
	add := func(name, value string) { h.add(name, value, false) }
	r.Hop.Each(add)
	r.eachSet(to, add)
	if r.traces(to) {
		if value := r.Trace(nil); len(value) > 0 {
			h.add("traceparent", proxy.Text(value), false)
		}
	}
	if r.Head.WantsTrailers() {
		h.add("te", "trailers", false)
	}
}
