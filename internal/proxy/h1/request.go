package h1

import (
	"bytes"
	"net/url"

	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/cookie"
	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/upstream"
)

// origin is what forwarding to one upstream_url needs, computed once.
type origin struct {
	base   *url.URL         // what the rest was made from; compared by address
	pool   *upstream.H1Pool // for the schemes http and https, otherwise nil
	calls  *upstream.H2Pool // for the schemes h2c and https, otherwise nil
	prefix string           // upstream.Prefix of base
	path   string           // of base, without its final slash
}

// requestWriter writes the head of a request for the upstream (contract, 4.2, end).
type requestWriter struct {
	req     *http1.Request
	buf     []byte // the buffer of req's spans
	verdict *admit.Verdict
	origin  *origin
	hop     proxy.Hop // without the values that append takes from req
	trusted bool      // a trusted proxy sent the request
	upgrade bool      // ask for the upgrade that the client asks for
	// webSocketKey is the gateway's own Sec-WebSocket-Key if it opens a WebSocket for an HTTP/2
	// client, and otherwise "".
	webSocketKey string
	// trace appends the value of traceparent in place of the client's. If it is nil, the
	// client's is forwarded.
	trace func(dst []byte) []byte
}

// append appends the head, which declares the body that it begins.
func (w *requestWriter) append(dst []byte, body *framing) []byte {
	body.begin(w.req, w.upgrade, w.verdict.Gateway.Withheld)
	if w.hop.Major == 2 { // over HTTP/1.1 the client decides
		body.declareEmpty(w.req.Method.Of(w.buf))
	}
	dst = append(dst, w.req.Method.Of(w.buf)...)
	dst = append(append(dst, ' '), w.origin.prefix...)
	dst = w.verdict.AppendTarget(dst)
	dst = append(dst, " HTTP/1.1\r\nHost: "...)
	dst = append(dst, w.origin.base.Host...)
	dst = append(dst, "\r\n"...)
	dst, kept := w.appendCallers(dst)
	dst = w.appendConnection(w.appendOwn(dst, kept))
	dst = body.appendTo(dst, w.buf, w.req.Fields())
	return append(dst, "\r\n"...)
}

// appendCallers appends the client's fields that are forwarded. kept is the set of those
// among them that have a Name.
func (w *requestWriter) appendCallers(dst []byte) (_ []byte, kept proxy.Fields) {
	filter := w.filter()
	fields := w.req.Fields()
	run := runs{dst: dst, buf: w.buf, from: -1}
	for i := range fields {
		f := &fields[i]
		if filter.drops(f) {
			run.cut(f.Name.Start)
			continue
		}
		if f.ID == http1.Cookie && cookie.HasSession(proxy.Text(f.Value.Of(w.buf))) {
			run.cut(f.Name.Start)
			run.dst = appendCookie(run.dst, f.Name.Of(w.buf), f.Value.Of(w.buf))
			continue
		}
		kept |= 1 << f.ID
		run.keep(f.Name.Start)
	}
	run.cut(uint32(w.req.End - len("\r\n")))
	return run.dst, kept
}

// requestFilter decides which of the client's fields are not forwarded.
type requestFilter struct {
	w        *requestWriter
	drop     proxy.Fields
	withheld []string
	named    connectionNames
}

func (w *requestWriter) filter() requestFilter {
	return requestFilter{
		w: w, drop: proxy.RequestDrop(w.trusted, w.trace != nil), withheld: w.verdict.Gateway.Withheld,
		named: namesOf(w.buf, w.req.Fields(), w.req.Named()),
	}
}

func (r *requestFilter) drops(f *http1.Field) bool {
	buf := r.w.buf
	return r.drop.Has(f.ID) || r.w.webSocketKey != "" && isWebSocketKey(f.Name.Of(buf)) || f.ID == http1.Authorization && proxy.IsKey(proxy.Text(f.Value.Of(buf)), r.w.verdict) ||
		r.named.has(f) || len(r.withheld) > 0 && proxy.IsWithheld(r.withheld, proxy.Text(f.Name.Of(buf)))
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
func (w *requestWriter) appendOwn(dst []byte, kept proxy.Fields) []byte {
	w.completeHop(kept)
	w.hop.Each(func(name, value string) {
		dst = append(append(append(append(dst, name...), ": "...), value...), "\r\n"...)
	})
	if w.traces() {
		before := len(dst)
		dst = append(dst, "Traceparent: "...)
		start := len(dst)
		if dst = w.trace(dst); len(dst) > start {
			dst = append(dst, "\r\n"...)
		} else {
			dst = dst[:before]
		}
	}
	return dst
}

// completeHop sets what hop takes from req. kept is the set of the client's fields that are
// forwarded.
func (w *requestWriter) completeHop(kept proxy.Fields) {
	hop := &w.hop
	hop.Authority = proxy.Text(w.authority())
	hop.HasForwardedHost, hop.HasForwardedProto = kept.Has(http1.XForwardedHost), kept.Has(http1.XForwardedProto)
	if w.trusted {
		hop.ForwardedFor = proxy.Text(appendValues(nil, w.buf, w.req.Fields(), http1.XForwardedFor))
	}
}

// traces reports whether the gateway writes traceparent.
func (w *requestWriter) traces() bool {
	return w.trace != nil && !proxy.IsWithheld(w.verdict.Gateway.Withheld, "traceparent")
}

// appendConnection appends the connection fields for the upstream.
func (w *requestWriter) appendConnection(dst []byte) []byte {
	switch {
	case w.upgrade:
		dst = append(dst, "Connection: Upgrade\r\nUpgrade: "...)
		dst = append(appendValues(dst, w.buf, w.req.Fields(), http1.Upgrade), "\r\n"...)
		if w.webSocketKey != "" {
			dst = append(append(append(dst, "Sec-WebSocket-Key: "...), w.webSocketKey...), "\r\n"...)
		}
	case w.req.WantsTrailers():
		// RFC 9110, 10.1.4: a sender of TE names it in Connection.
		dst = append(dst, "TE: trailers\r\nConnection: TE\r\n"...)
	}
	return dst
}

// appendValues appends the values of all fields of one name, as one list.
func appendValues(dst, buf []byte, fields []http1.Field, id http1.Name) []byte {
	found := false
	for i := range fields {
		if fields[i].ID != id || fields[i].Value.Len() == 0 {
			continue
		}
		if found {
			dst = append(dst, ", "...)
		}
		dst, found = append(dst, fields[i].Value.Of(buf)...), true
	}
	return dst
}

// authority returns the host that the client addressed: that of an absolute target,
// otherwise that of Host.
func (w *requestWriter) authority() []byte {
	target := w.req.Target.Of(w.buf)
	if len(target) > 0 && target[0] != '/' {
		if i := bytes.Index(target, []byte("://")); i >= 0 {
			rest := target[i+3:]
			if end := bytes.IndexAny(rest, "/?"); end >= 0 {
				rest = rest[:end]
			}
			return rest
		}
	}
	return valueOf(w.buf, w.req.Fields(), http1.Host)
}

// valueOf returns the value of the first field with the given name.
func valueOf(buf []byte, fields []http1.Field, id http1.Name) []byte {
	for i := range fields {
		if fields[i].ID == id {
			return fields[i].Value.Of(buf)
		}
	}
	return nil
}

// loops reports whether a Via field names this instance.
func loops(buf []byte, fields []http1.Field, instance string) bool {
	for i := range fields {
		if fields[i].ID == http1.Via && proxy.NamesInstance(proxy.Text(fields[i].Value.Of(buf)), instance) {
			return true
		}
	}
	return false
}

// upgradeOf returns the protocols that the request may ask the upstream to change to, or
// nil. A request that has a body or uses HTTP/1.0 is forwarded without its upgrade.
func upgradeOf(req *http1.Request, buf []byte) []byte {
	if !req.Upgrade() || req.Minor == 0 || req.HasBody() {
		return nil
	}
	protocols := appendValues(nil, buf, req.Fields(), http1.Upgrade)
	if !proxy.MayUpgrade(proxy.Text(protocols)) {
		return nil
	}
	return protocols
}
