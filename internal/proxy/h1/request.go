package h1

import (
	"bytes"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/upstream"
)

// origin is what forwarding to one upstream_url needs.
type origin struct {
	base *url.URL // of which the rest was made; compared by address
	pool *upstream.H1Pool
	path string // put before every target
	host string
}

// requestWriter writes the head of a request for the upstream (contract, 4.2,
// end). It has no state of its own.
type requestWriter struct {
	req     *http1.Request
	buf     []byte // which req's spans are of
	verdict *admit.Verdict
	origin  *origin
	id      []byte
	client  netip.Addr
	tls     bool
	trusted bool
	via     string
	upgrade bool // ask for the upgrade that the client asks for
	// trace appends the field traceparent in the caller's place; nil lets that pass.
	trace func(dst []byte) []byte
}

// append appends the head.
func (w *requestWriter) append(dst []byte) []byte {
	dst = append(dst, w.req.Method.Of(w.buf)...)
	dst = append(dst, ' ')
	dst = w.appendTarget(dst)
	dst = append(dst, " HTTP/1.1\r\nHost: "...)
	dst = append(dst, w.origin.host...)
	dst = append(dst, "\r\n"...)
	dst, kept := w.appendCallers(dst)
	dst = w.appendOwn(dst, kept)
	return append(dst, "\r\n"...)
}

func (w *requestWriter) appendTarget(dst []byte) []byte {
	if strings.HasPrefix(w.origin.path, "//") {
		// It would be read as an authority. An absolute form says the same in
		// a way that every server must accept.
		dst = append(append(dst, "http://"...), w.origin.host...)
	}
	dst = append(dst, w.origin.path...)
	return w.verdict.AppendTarget(dst)
}

// appendCallers appends the caller's own fields that pass. kept tells which
// names of those that are ours to set otherwise are among them.
func (w *requestWriter) appendCallers(dst []byte) (_ []byte, kept nameSet) {
	drop := notForUpstream
	if !w.trusted {
		drop |= forwarded
	} else {
		drop |= 1 << http1.XForwardedFor // written anew, with the peer at its end
	}
	if w.trace != nil {
		drop |= 1 << http1.Traceparent
	}
	set := w.verdict.Gateway.Upstream.Headers
	fields, named := w.req.Fields(), w.req.Named()
	run := runs{dst: dst, buf: w.buf, from: -1}
	for i := range fields {
		f := &fields[i]
		if drop.has(f.ID) || f.ID == http1.Authorization && w.isKey(f.Value.Of(w.buf)) ||
			named && namedByConnection(w.buf, fields, f) || len(set) > 0 && isSet(set, f.Name.Of(w.buf)) {
			run.cut(f.Name.Start)
			continue
		}
		kept |= 1 << f.ID
		run.keep(f.Name.Start)
	}
	run.cut(uint32(w.req.End - len("\r\n")))
	return run.dst, kept
}

// isSet reports whether the gateway sets a field itself. "_" counts as "-".
func isSet(set []snapshot.Header, name []byte) bool {
	for i := range set {
		if len(set[i].Name) == len(name) && sameName(set[i].Name, name) {
			return true
		}
	}
	return false
}

func sameName(a string, b []byte) bool {
	for i, c := range b {
		if foldName(c) != foldName(a[i]) {
			return false
		}
	}
	return true
}

func foldName(c byte) byte {
	switch {
	case 'A' <= c && c <= 'Z':
		return c | 0x20
	case c == '_':
		return '-'
	}
	return c
}

// isKey reports whether an Authorization value is, or was meant to be, a key of
// ours: Bearer where a key is asked for, and on public routes Bearer with what
// looks like one. Whatever else a caller tells the upstream there is its own.
func (w *requestWriter) isKey(value []byte) bool {
	const scheme = "bearer"
	if len(value) < len(scheme) || !http1.EqualFold(value[:len(scheme)], scheme) {
		return false
	}
	rest := value[len(scheme):]
	if len(rest) > 0 && rest[0] != ' ' && rest[0] != '\t' {
		return false // a longer name
	}
	if w.verdict.Key != nil {
		return true
	}
	credential := text(bytes.Trim(rest, " \t"))
	_, isKey := apikey.LevelOf(credential)
	return isKey || strings.HasPrefix(credential, "kg_") || strings.HasPrefix(credential, "kga_")
}

// appendOwn appends the fields that are ours, and the frame of the body.
func (w *requestWriter) appendOwn(dst []byte, kept nameSet) []byte {
	dst = append(append(append(dst, "X-Request-Id: "...), w.id...), "\r\nX-Forwarded-For: "...)
	if w.trusted {
		dst = w.appendEarlier(dst)
	}
	dst = append(w.client.AppendTo(dst), "\r\n"...)
	if !kept.has(http1.XForwardedHost) {
		dst = append(append(append(dst, "X-Forwarded-Host: "...), w.authority()...), "\r\n"...)
	}
	if !kept.has(http1.XForwardedProto) {
		if w.tls {
			dst = append(dst, "X-Forwarded-Proto: https\r\n"...)
		} else {
			dst = append(dst, "X-Forwarded-Proto: http\r\n"...)
		}
	}
	dst = append(dst, "Via: 1."...)
	dst = append(append(dst, '0'+w.req.Minor, ' '), w.via...)
	dst = append(dst, "\r\nX-Keygate-Gateway-Id: "...)
	g := w.verdict.Gateway
	dst = append(append(dst, g.ID...), "\r\n"...)
	if k := w.verdict.Key; k != nil {
		dst = append(k.AppendID(append(dst, "X-Keygate-Key-Id: "...)), "\r\n"...)
		if owner := k.Owner(); owner != "" {
			dst = append(append(append(dst, "X-Keygate-Key-Owner: "...), owner...), "\r\n"...)
		}
	}
	for i := range g.Upstream.Headers {
		h := &g.Upstream.Headers[i]
		dst = append(append(append(append(dst, h.Name...), ": "...), h.Value...), "\r\n"...)
	}
	if w.trace != nil && !isSet(g.Upstream.Headers, []byte("traceparent")) {
		dst = w.trace(dst)
	}
	return w.appendFrame(dst)
}

// appendFrame appends the fields of this connection.
func (w *requestWriter) appendFrame(dst []byte) []byte {
	switch {
	case w.upgrade:
		dst = append(dst, "Connection: Upgrade\r\nUpgrade: "...)
		dst = append(appendValues(dst, w.buf, w.req.Fields(), http1.Upgrade), "\r\n"...)
	case w.req.WantsTrailers():
		// RFC 9110, 10.1.4: a sender of TE names it in Connection.
		dst = append(dst, "TE: trailers\r\nConnection: TE\r\n"...)
	}
	switch {
	case w.req.Chunked():
		dst = append(dst, "Transfer-Encoding: chunked\r\n"...)
		dst = appendAnnouncement(dst, w.buf, w.req.Fields(), false, w.verdict.Gateway.Upstream.Headers)
	case w.req.ContentLength() >= 0:
		dst = strconv.AppendInt(append(dst, "Content-Length: "...), w.req.ContentLength(), 10)
		dst = append(dst, "\r\n"...)
	}
	return dst
}

// appendEarlier appends what X-Forwarded-For says so far.
func (w *requestWriter) appendEarlier(dst []byte) []byte {
	before := len(dst)
	if dst = appendValues(dst, w.buf, w.req.Fields(), http1.XForwardedFor); len(dst) > before {
		dst = append(dst, ", "...)
	}
	return dst
}

// appendValues appends the values of all fields of one name, as one list.
func appendValues(dst, buf []byte, fields []http1.Field, id http1.Name) []byte {
	begun := false
	for i := range fields {
		if fields[i].ID != id || fields[i].Value.Len() == 0 {
			continue
		}
		if begun {
			dst = append(dst, ", "...)
		}
		dst, begun = append(dst, fields[i].Value.Of(buf)...), true
	}
	return dst
}

// authority returns the host that the client addressed: an absolute form's, else
// that of Host.
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

// valueOf returns the value of the first field of a name.
func valueOf(buf []byte, fields []http1.Field, id http1.Name) []byte {
	for i := range fields {
		if fields[i].ID == id {
			return fields[i].Value.Of(buf)
		}
	}
	return nil
}

// cameThrough reports whether a field Via names the instance: the request has
// been here before.
func cameThrough(buf []byte, fields []http1.Field, instance string) bool {
	for i := range fields {
		if fields[i].ID != http1.Via {
			continue
		}
		found := false
		http1.EachElement(fields[i].Value.Of(buf), func(hop []byte) bool {
			_, by, _ := bytes.Cut(hop, []byte(" "))
			by, _, _ = bytes.Cut(bytes.TrimLeft(by, " \t"), []byte(" "))
			found = string(by) == instance
			return !found
		})
		if found {
			return true
		}
	}
	return false
}

// upgradeOf returns the protocols that the request asks to change to, nil if
// none or one that it must not: HTTP/2 would carry requests past the checks. A
// request with a body, or of HTTP/1.0, is served without the change.
func upgradeOf(req *http1.Request, buf []byte) []byte {
	if !req.Upgrade() || req.Minor == 0 || req.HasBody() {
		return nil
	}
	protocols := appendValues(nil, buf, req.Fields(), http1.Upgrade)
	allowed := true
	http1.EachElement(protocols, func(offer []byte) bool {
		name, _, _ := bytes.Cut(offer, []byte("/"))
		switch {
		case http1.EqualFold(name, "h2c"), http1.EqualFold(name, "h2"), http1.EqualFold(name, "http"), http1.EqualFold(name, "tls"):
			allowed = false
		}
		return allowed
	})
	if !allowed || len(protocols) == 0 {
		return nil
	}
	return protocols
}
