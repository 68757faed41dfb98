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
	// drainTime is how long that may take over HTTP/1.1, where the answer has ended
	// by then; over HTTP/2 see Config.Linger.
	drainTime = time.Second
)

// refuse answers with the error body of err, without waiting for the request's
// body.
func (x *exchange) refuse(err error) {
	x.settle()
	status, body := x.Respond(err)
	x.ownFields()
	h := x.w.Header()
	h["Content-Type"] = []string{"application/json"}
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	x.answer(status, body)
}

// answer sends an answer of the gateway's own and disposes of the request's
// body.
func (x *exchange) answer(status int, body []byte) {
	// Over HTTP/2, net/http ends the stream of a body that it has not seen the
	// end of with a reset, for which some clients drop the answer.
	remains := x.r.Body != http.NoBody
	// A client that waits for leave to send its body will not get it.
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

// drain reads up to proxy.DrainBytes of the body. If that is not all of it, the
// connection closes.
func (x *exchange) drain() {
	patience := drainTime
	if x.r.ProtoMajor > 1 {
		patience = x.server.cfg.Linger
	}
	_ = x.rc.SetReadDeadline(time.Now().Add(patience))
	// At its bound this reader also tells net/http to close the connection with
	// care, so that the answer is not lost to a reset.
	_, err := io.Copy(io.Discard, http.MaxBytesReader(x.w, x.r.Body, proxy.DrainBytes))
	var tooLarge *http.MaxBytesError
	switch {
	case err == nil:
		_ = x.rc.SetReadDeadline(time.Time{})
	case errors.As(err, &tooLarge) || x.r.ProtoMajor > 1:
		x.stopReading() // over HTTP/2 the stream ends, and no more than that
	default:
		x.abort()
	}
}

// hangUp makes net/http close the connection after the answer that is under
// way, whose head may be out, because part of the request's body was not read.
func (x *exchange) hangUp() {
	if x.r.ProtoMajor != 1 {
		return // the stream ends with its answer
	}
	// Crossing the bound of a MaxBytesReader is net/http's way to say so.
	_, _ = http.MaxBytesReader(x.w, io.NopCloser(strings.NewReader("..")), 0).Read(make([]byte, 2))
	x.stopReading()
}

// stopReading fails reads of the request's body, one that runs included, so
// that nothing waits for the client.
func (x *exchange) stopReading() {
	_ = x.rc.SetReadDeadline(time.Unix(1, 0))
}

// abort ends the request without a proper end of its answer.
func (x *exchange) abort() {
	x.stopReading()
	if x.answered && !x.r.ProtoAtLeast(1, 1) {
		x.reset()
	}
	panic(http.ErrAbortHandler)
}

// reset breaks a connection of HTTP/1.0, where a body without a length ends
// with the connection and only a reset tells that it is not complete.
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
