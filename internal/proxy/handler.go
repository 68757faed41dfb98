package proxy

import (
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"

	"github.com/keygate/keygate/internal/http1"
)

// What engines need to call a handler of net/http: the request as its server would pass it,
// and the trailers of a response as its ResponseWriter takes them.

// HTTPRequest returns a request for a handler. text is what the spans of the head refer to. body
// is nil if the request has none. The caller sets the version, and what the connection says.
func HTTPRequest(h *http1.Request, text []byte, body io.ReadCloser) *http.Request {
	r := &http.Request{
		Method:        string(h.Method.Of(text)),
		RequestURI:    string(h.Target.Of(text)),
		Header:        make(http.Header, len(h.Fields())),
		Body:          http.NoBody,
		ContentLength: max(0, h.ContentLength()),
	}
	target, err := url.ParseRequestURI(r.RequestURI)
	if err != nil { // net/url is stricter than the contract
		target = &url.URL{Opaque: r.RequestURI}
	}
	r.URL = target
	if body != nil {
		r.Body = body
		if h.Chunked() {
			r.ContentLength = -1
		}
	}
	copyFields(r, h, text)
	if target.Host != "" { // the authority of an absolute target takes precedence over Host
		r.Host = target.Host
	}
	return r
}

// copyFields copies the head's fields under their canonical names, except those for which
// http.Request has its own place.
func copyFields(r *http.Request, h *http1.Request, text []byte) {
	for _, field := range h.Fields() {
		value := string(field.Value.Of(text))
		switch field.ID {
		case http1.Host:
			r.Host = value
		case http1.TransferEncoding:
		case http1.Trailer:
			if r.Body == http.NoBody {
				break
			}
			http1.EachElement(field.Value.Of(text), func(name []byte) bool {
				if r.Trailer == nil {
					r.Trailer = make(http.Header)
				}
				r.Trailer[textproto.CanonicalMIMEHeaderKey(string(name))] = nil
				return true
			})
		default:
			name := textproto.CanonicalMIMEHeaderKey(string(field.Name.Of(text)))
			r.Header[name] = append(r.Header[name], value)
		}
	}
}

// AddTrailers adds the trailers of a request, which are known at the end of its body.
func AddTrailers(r *http.Request, text []byte, fields []http1.Field) {
	for _, field := range fields {
		if r.Trailer == nil {
			r.Trailer = make(http.Header)
		}
		name := textproto.CanonicalMIMEHeaderKey(string(field.Name.Of(text)))
		r.Trailer[name] = append(r.Trailer[name], string(field.Value.Of(text)))
	}
}

// AnnouncedTrailers calls yield with the canonical name of each trailer that the header of a
// handler's response announces.
func AnnouncedTrailers(header http.Header, yield func(name string)) {
	for _, value := range header["Trailer"] {
		for name := range strings.SplitSeq(value, ",") {
			yield(textproto.CanonicalMIMEHeaderKey(textproto.TrimString(name)))
		}
	}
}

// ResponseTrailers returns the trailers of a handler's response: those that its header
// announces, and those with http.TrailerPrefix.
func ResponseTrailers(header http.Header) http.Header {
	out := make(http.Header)
	AnnouncedTrailers(header, func(name string) {
		if values, ok := header[name]; ok {
			out[name] = values
		}
	})
	for name, values := range header {
		if name, ok := strings.CutPrefix(name, http.TrailerPrefix); ok {
			out[name] = values
		}
	}
	return out
}

// Aborted calls serve, which serves a request with a handler, and reports whether the handler
// aborted it. Any other panic goes on.
func Aborted(serve func()) (aborted bool) {
	defer func() {
		switch p := recover(); p {
		case nil:
		case http.ErrAbortHandler:
			aborted = true
		default:
			panic(p)
		}
	}()
	serve()
	return false
}
