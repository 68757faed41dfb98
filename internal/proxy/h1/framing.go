package h1

import (
	"errors"
	"strconv"

	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/proxy"
)

// errFraming reports a request whose body is about to differ from what its head has declared.
var errFraming = errors.New("the body of the request is not what its head has declared")

// bodyKind is how the head of a request declares its body.
type bodyKind uint8

const (
	bodyNone     bodyKind = iota // it declares none
	bodyByLength                 // Content-Length
	bodyUnknown                  // without a length: chunked over HTTP/1.1
	bodyUpgrade                  // none: what follows an accepted upgrade is no body
)

// framing is the body of one request on its way to an upstream: what the head declares of it, and
// what was sent. Whatever declares, frames or sends a part of the body goes through it, for clients
// and upstreams of both versions of HTTP, so that the upstream gets exactly what it was told to
// expect. Otherwise it would take the next request for the rest of this body, or this body for the
// next request.
//
//	begin            chooses the declaration, from the head of the client's request
//	appendTo, addTo  declares it in the head, over HTTP/1.1 or HTTP/2
//	data, finish     frames the body over HTTP/1.1
//	fits, count      counts it over HTTP/2, which has frames of its own
//	whole            reports whether the upstream got what was declared
//
// A part that was not declared, and an end before the declared one, are errors. After an error
// nothing more may be sent, and whole is false.
type framing struct {
	framingState
	encoder
}

type framingState struct {
	kind   bodyKind
	length int64 // bodyByLength: that of the body
	left   int64 // and what is still to be sent of it
	ended  bool  // the end was framed
	wrong  bool  // an error was returned
}

// begin begins the body of a request to the upstream. upgrade is set if it asks for an upgrade, and
// withheld is Gateway.Withheld.
func (f *framing) begin(req *http1.Request, upgrade bool, withheld []string) {
	f.framingState = framingState{}
	switch {
	case upgrade:
		f.kind = bodyUpgrade
	case req.Chunked():
		f.kind = bodyUnknown
	case req.ContentLength() >= 0:
		f.kind, f.length = bodyByLength, req.ContentLength()
	}
	f.restart()
	f.encoder.start(encoderState{chunked: f.kind == bodyUnknown, trailers: true, withheld: withheld})
}

// restart prepares f to send the same body a second time.
func (f *framing) restart() { f.left, f.ended, f.wrong = f.length, false, false }

// reset clears all state of a request.
func (f *framing) reset() {
	f.framingState = framingState{}
	f.encoder.start(encoderState{})
}

// declareEmpty declares the body of a request that has none as empty, if its method usually has
// one: some servers refuse it otherwise (RFC 9110, 8.6).
func (f *framing) declareEmpty(method []byte) {
	if f.kind != bodyNone {
		return
	}
	switch string(method) {
	case "POST", "PUT", "PATCH":
		f.kind = bodyByLength
	}
}

// appendTo appends the fields that declare the body over HTTP/1.1. fields are those of the client's
// request, spans of buf.
func (f *framing) appendTo(dst, buf []byte, fields []http1.Field) []byte {
	switch f.kind {
	case bodyByLength:
		dst = strconv.AppendInt(append(dst, "Content-Length: "...), f.length, 10)
		dst = append(dst, "\r\n"...)
	case bodyUnknown:
		dst = append(dst, "Transfer-Encoding: chunked\r\n"...)
		dst = appendTrailerNames(dst, buf, fields, false, f.withheld)
	}
	return dst
}

// addTo adds the fields that declare the body over HTTP/2, as appendTo does.
func (f *framing) addTo(h *requestHead, buf []byte, fields []http1.Field) {
	switch f.kind {
	case bodyByLength:
		var room [20]byte
		h.add("content-length", proxy.Text(strconv.AppendInt(room[:0], f.length, 10)), false)
	case bodyUnknown:
		if names := appendNames(nil, buf, fields, false, f.withheld); len(names) > 0 {
			h.add("trailer", proxy.Text(names), false)
		}
	}
}

// fits reports whether n more bytes may be sent, and the end after them if end is set.
func (f *framing) fits(n int, end bool) bool {
	switch {
	case f.wrong, f.ended && n > 0:
		return false
	case f.kind == bodyUnknown:
		return true
	case f.kind == bodyByLength:
		return int64(n) == f.left || int64(n) < f.left && !end
	}
	return n == 0
}

// count counts n bytes that are about to be sent, and the end after them if end is set.
func (f *framing) count(n int, end bool) error {
	if !f.fits(n, end) {
		f.wrong = true
		return errFraming
	}
	if f.kind == bodyByLength {
		f.left -= int64(n)
	}
	f.ended = f.ended || end
	return nil
}

// data frames the data of p in place, as encode does.
func (f *framing) data(buf []byte, p *piece) error {
	if err := f.count(p.to-p.from, false); err != nil {
		return err
	}
	f.encode(buf, p)
	return nil
}

// appendData appends data as it is framed.
func (f *framing) appendData(dst, data []byte) ([]byte, error) {
	if err := f.count(len(data), false); err != nil {
		return dst, err
	}
	if !f.chunked || len(data) == 0 {
		return append(dst, data...), nil
	}
	dst = append(strconv.AppendInt(dst, int64(len(data)), 16), "\r\n"...)
	return append(append(dst, data...), "\r\n"...), nil
}

// finish returns the end of the body with its trailers, as the finish of an encoder does.
func (f *framing) finish(section []byte, trailers []http1.Field) ([]byte, error) {
	if err := f.count(0, true); err != nil {
		return nil, err
	}
	return f.encoder.finish(section, trailers), nil
}

// whole reports whether exactly what was declared was framed, so that the next bytes on the
// connection are those of the next request. It never is after a request for an upgrade: the upstream
// may expect the other protocol there.
func (f *framing) whole() bool {
	switch f.kind {
	case bodyByLength:
		return f.left == 0 && !f.wrong
	case bodyUnknown:
		return f.ended && !f.wrong
	case bodyUpgrade:
		return false
	}
	return !f.wrong
}
