package message

import (
	"errors"
	"strconv"

	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/proxy"
)

// ErrFraming reports a request whose body is about to differ from what its head has declared.
var ErrFraming = errors.New("the body of the request is not what its head has declared")

// bodyKind is how the head of a request declares its body.
type bodyKind uint8

const (
	bodyNone     bodyKind = iota // it declares none
	bodyByLength                 // Content-Length
	bodyUnknown                  // without a length: chunked over HTTP/1.1
	bodyUpgrade                  // no body: the bytes after an accepted upgrade are not one
)

// Framing tracks the body of one request on its way to an upstream: what the head has declared and
// what was sent. All code that declares, frames or sends a part of the body uses it, for clients and
// upstreams of both versions of HTTP, so that the upstream gets exactly the body that the head has
// declared. Otherwise the upstream would take the next request for the rest of this body, or the
// rest of this body for the next request.
//
//	Begin               chooses the declaration, from the head of the client's request
//	AppendTo, Declared  declares it in the head, over HTTP/1.1 or HTTP/2
//	Data, Finish        frames the body over HTTP/1.1
//	Fits, Count         counts it over HTTP/2, which has frames of its own
//	Whole               reports whether the upstream got what was declared
//
// Data beyond the declared length, and an end before it, are errors. After an error nothing more may
// be sent, and Whole reports false.
type Framing struct {
	framingState
	encoder Encoder
}

type framingState struct {
	kind   bodyKind
	length int64 // bodyByLength: the length of the body
	left   int64 // bodyByLength: number of bytes that are still to be sent
	ended  bool  // the end was framed
	wrong  bool  // an error was returned
}

// Begin begins the body of a request to the upstream. upgrade is set if it asks for an upgrade, and
// withheld are the fields that the target does not get.
func (f *Framing) Begin(req *http1.Request, upgrade bool, withheld proxy.Withheld) {
	f.framingState = framingState{}
	switch {
	case upgrade:
		f.kind = bodyUpgrade
	case req.Chunked():
		f.kind = bodyUnknown
	case req.ContentLength() >= 0:
		f.kind, f.length = bodyByLength, req.ContentLength()
	}
	f.Restart()
	f.encoder.Start(EncoderState{Chunked: f.kind == bodyUnknown, Trailers: true, Withheld: withheld})
}

// Restart prepares f to send the same body a second time.
func (f *Framing) Restart() { f.left, f.ended, f.wrong = f.length, false, false }

// Reset clears all state of a request.
func (f *Framing) Reset() {
	f.framingState = framingState{}
	f.encoder.Start(EncoderState{})
}

// DeclareEmpty declares an empty body for a request without a body whose method usually has one,
// because some servers refuse it otherwise (RFC 9110, 8.6).
func (f *Framing) DeclareEmpty(method []byte) {
	if f.kind != bodyNone {
		return
	}
	switch string(method) {
	case "POST", "PUT", "PATCH":
		f.kind = bodyByLength
	}
}

// AppendTo appends the fields that declare the body over HTTP/1.1. fields are the fields of the
// client's request, spans of buf.
func (f *Framing) AppendTo(dst, buf []byte, fields []http1.Field) []byte {
	switch f.kind {
	case bodyByLength:
		dst = strconv.AppendInt(append(dst, "Content-Length: "...), f.length, 10)
		dst = append(dst, "\r\n"...)
	case bodyUnknown:
		dst = append(dst, "Transfer-Encoding: chunked\r\n"...)
		dst = proxy.AppendTrailerNames(dst, buf, fields, false, f.encoder.Withheld)
	}
	return dst
}

// Declared returns the field that declares the body over HTTP/2, as AppendTo does, in memory of room.
// name is "" if there is none.
func (f *Framing) Declared(room, buf []byte, fields []http1.Field) (name string, value []byte) {
	switch f.kind {
	case bodyByLength:
		return "content-length", strconv.AppendInt(room, f.length, 10)
	case bodyUnknown:
		if names := proxy.AppendTrailerList(room, buf, fields, false, f.encoder.Withheld); len(names) > 0 {
			return "trailer", names
		}
	}
	return "", nil
}

// Fits reports whether n more bytes may be sent, and the end after them if end is set.
func (f *Framing) Fits(n int, end bool) bool {
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

// Count counts n bytes that are about to be sent, and the end after them if end is set.
func (f *Framing) Count(n int, end bool) error {
	if !f.Fits(n, end) {
		f.wrong = true
		return ErrFraming
	}
	if f.kind == bodyByLength {
		f.left -= int64(n)
	}
	f.ended = f.ended || end
	return nil
}

// Data frames the data of p in place, as Encode does.
func (f *Framing) Data(buf []byte, p *Piece) error {
	if err := f.Count(p.To-p.From, false); err != nil {
		return err
	}
	f.encoder.Encode(buf, p)
	return nil
}

// AppendData appends data as it is framed.
func (f *Framing) AppendData(dst, data []byte) ([]byte, error) {
	if err := f.Count(len(data), false); err != nil {
		return dst, err
	}
	if !f.encoder.Chunked || len(data) == 0 {
		return append(dst, data...), nil
	}
	dst = append(strconv.AppendInt(dst, int64(len(data)), 16), "\r\n"...)
	return append(append(dst, data...), "\r\n"...), nil
}

// Finish returns the end of the body with its trailers, as the Finish of an Encoder does.
func (f *Framing) Finish(section []byte, trailers []http1.Field) ([]byte, error) {
	if err := f.Count(0, true); err != nil {
		return nil, err
	}
	return f.encoder.Finish(section, trailers), nil
}

// Whole reports whether exactly the declared body was framed, so that the next bytes on the connection
// belong to the next request. It reports false for a request for an upgrade, after which the upstream
// may expect the other protocol.
func (f *Framing) Whole() bool {
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
