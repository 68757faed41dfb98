package nethttp

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/proxy"
)

const (
	// drainTime bounds draining over HTTP/1.1, where the client already has the whole
	// response. For HTTP/2 see Config.Linger.
	drainTime = time.Second
)

// refuse responds with the error body of err, without waiting for the request's body.
func (x *exchange) refuse(err error) {
	x.settle()
	status, body := x.Respond(err)
	x.ownFields()
	h := x.w.Header()
	if x.r.ProtoMajor == 2 && proxy.IsGRPC(x.r.Header.Get("Content-Type")) {
		x.refuseGRPC(status, fault.MessageOf(err))
		return
	}
	h["Content-Type"] = []string{"application/json"}
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	x.respond(status, body)
}

// refuseGRPC responds to a gRPC call: with a trailers-only response, which is one HEADERS
// frame that ends the stream. The record has the status of the error.
func (x *exchange) refuseGRPC(status int, message string) {
	h := x.w.Header()
	h["Content-Type"] = []string{"application/grpc"}
	h["Content-Length"] = nil // otherwise net/http would send a 0
	h["Grpc-Status"] = []string{strconv.Itoa(proxy.GRPCStatus(status))}
	h["Grpc-Message"] = []string{proxy.GRPCMessage(message)}
	x.emit(x.Result, status)
	// The frame goes out when the handler returns, which it does without reading the body,
	// since a flush would send a frame that does not end the stream.
	x.writeHead(http.StatusOK)
}

// respond sends a response of the gateway itself and discards the request's body.
func (x *exchange) respond(status int, body []byte) {
	// Over HTTP/2, net/http resets the stream if it has not seen the end of the request's
	// body, and some clients then drop the response.
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
		// Reading would request the body from the client, or could not be interrupted.
		x.stopReading()
		return
	}
	x.drain()
}

// drain reads up to proxy.DrainBytes of the body. It closes the connection if the body is
// longer.
func (x *exchange) drain() {
	timeout := drainTime
	if x.r.ProtoMajor > 1 {
		timeout = x.server.cfg.Linger
	}
	_ = x.rc.SetReadDeadline(time.Now().Add(timeout))
	// If its limit is exceeded, this reader also makes net/http linger before it closes the
	// connection, so that the response is not lost to a reset.
	_, err := io.Copy(io.Discard, http.MaxBytesReader(x.w, x.r.Body, proxy.DrainBytes))
	var tooLarge *http.MaxBytesError
	switch {
	case err == nil:
		_ = x.rc.SetReadDeadline(time.Time{})
	case errors.As(err, &tooLarge) || x.r.ProtoMajor > 1:
		x.stopReading() // over HTTP/2 this ends only the stream
	default:
		x.abort()
	}
}

// hangUp makes net/http close the connection after the current response, whose head may
// already be sent, because part of the request's body was not read.
func (x *exchange) hangUp() {
	if x.r.ProtoMajor != 1 {
		return // the stream ends with its response
	}
	// net/http does so when the limit of a MaxBytesReader is exceeded.
	_, _ = http.MaxBytesReader(x.w, io.NopCloser(strings.NewReader("..")), 0).Read(make([]byte, 2))
	x.stopReading()
}

// stopReading makes reads of the request's body fail, including one in progress, so that
// nothing waits for the client.
func (x *exchange) stopReading() {
	_ = x.rc.SetReadDeadline(time.Unix(1, 0))
}

// abort ends the request with a response that is visibly incomplete.
func (x *exchange) abort() {
	x.stopReading()
	if x.responded && !x.r.ProtoAtLeast(1, 1) {
		x.reset()
	}
	panic(http.ErrAbortHandler)
}

// reset breaks an HTTP/1.0 connection: a body without a length ends with the connection,
// and only a reset shows that it is incomplete.
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
