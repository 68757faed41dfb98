package nethttp

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/proxy"
)

const (
	// drainTime bounds that over HTTP/1.1, where the response has ended by then; see
	// Config.Linger for HTTP/2.
	drainTime = time.Second
)

// refuse responds with the error body of err, without waiting for the request's body.
func (x *exchange) refuse(err error) {
	x.settle()
	status, body := x.Respond(err)
	x.ownFields()
	h := x.w.Header()
	h["Content-Type"] = []string{"application/json"}
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	x.respond(status, body)
}

// respond sends a response of the gateway's own and disposes of the request's body.
func (x *exchange) respond(status int, body []byte) {
	// Over HTTP/2, net/http resets the stream of a body whose end it has not seen, and
	// some clients then drop the response.
	remains := x.r.Body != http.NoBody
	// A client that waits for a 100 does not get one.
	expects := remains && x.r.Header.Get("Expect") != ""
	if x.r.ProtoMajor == 1 && (x.Verdict.Close || expects || remains && x.r.ContentLength > proxy.DrainBytes) {
		x.w.Header()["Connection"] = []string{"close"}
	}
	if x.r.Method != http.MethodHead {
		x.bytesOut = int64(len(body))
	}
	x.emit(x.Result, status)
	x.writeHead(status)
	if body != nil {
		_, _ = x.w.Write(body) //nolint:gosec // G705: fault.Response makes JSON
	}
	if !remains {
		return
	}
	_ = x.rc.Flush()
	if expects || x.r.ProtoMajor > 1 && x.r.ContentLength > proxy.DrainBytes {
		// Reading would ask the client for its body, or could not end it.
		x.stopReading()
		return
	}
	x.drain()
}

// drain reads up to proxy.DrainBytes of the body. If that is not all of it, the connection
// is closed.
func (x *exchange) drain() {
	timeout := drainTime
	if x.r.ProtoMajor > 1 {
		timeout = x.server.cfg.Linger
	}
	_ = x.rc.SetReadDeadline(time.Now().Add(timeout))
	// At its limit this reader also makes net/http linger before it closes the connection,
	// so that the response is not lost to a reset.
	_, err := io.Copy(io.Discard, http.MaxBytesReader(x.w, x.r.Body, proxy.DrainBytes))
	var tooLarge *http.MaxBytesError
	switch {
	case err == nil:
		_ = x.rc.SetReadDeadline(time.Time{})
	case errors.As(err, &tooLarge) || x.r.ProtoMajor > 1:
		x.stopReading() // over HTTP/2 only the stream ends
	default:
		x.abort()
	}
}

// hangUp makes net/http close the connection after the response that is being sent, whose
// head may be out, because part of the request's body was not read.
func (x *exchange) hangUp() {
	if x.r.ProtoMajor != 1 {
		return // the stream ends with its response
	}
	// Crossing the limit of a MaxBytesReader makes net/http do so.
	_, _ = http.MaxBytesReader(x.w, io.NopCloser(strings.NewReader("..")), 0).Read(make([]byte, 2))
	x.stopReading()
}

// stopReading makes reads of the request's body fail, including one that runs, so that
// nothing waits for the client.
func (x *exchange) stopReading() {
	_ = x.rc.SetReadDeadline(time.Unix(1, 0))
}

// abort ends the request without a proper end of its response.
func (x *exchange) abort() {
	x.stopReading()
	if x.answered && !x.r.ProtoAtLeast(1, 1) {
		x.reset()
	}
	panic(http.ErrAbortHandler)
}

// reset breaks a connection of HTTP/1.0, where a body without a length ends with the
// connection and only a reset shows that it is not complete.
func (x *exchange) reset() {
	conn, _, err := x.rc.Hijack()
	if err != nil {
		return
	}
	if tcp, ok := conn.(interface{ SetLinger(seconds int) error }); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
