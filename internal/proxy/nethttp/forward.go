package nethttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/upstream"
)

// forward sends the request to its gateway's upstream, and the response to the client
// (contract, 4.4).
func (x *exchange) forward() {
	g := x.Verdict.Gateway
	if err := x.CheckForward(nil, x.r.ContentLength, x.loops()); err != nil {
		x.refuse(err)
		return
	}
	pool, err := x.server.cfg.Pools.Get(proxy.OriginOf(g))
	if err != nil {
		x.refuse(proxy.Unreachable(err))
		return
	}
	defer x.stall.stop()
	out, body := x.request()
	x.emitStartedLater()
	protocol := ""
	if pool.CanUpgrade() {
		if protocol = upgradeOf(x.r); protocol != "" {
			out.Header["Connection"] = []string{"Upgrade"}
			out.Header["Upgrade"] = []string{protocol}
		}
	}
	response, err := pool.Send(x.r.Context(), &upstream.Exchange{
		Request:     out,
		Upgrade:     protocol != "",
		Retry:       proxy.Retryable(out.Method, body != nil),
		HeadTimeout: x.HeadTimeout(),
		Interim:     x.interim,
		Confirm:     proxy.Confirmer{Exchange: x.Exchange},
	})
	if err != nil {
		x.endWithoutResponse(err, body)
		return
	}
	defer response.Close()
	x.MarkResponse(response.StatusCode)
	switch {
	case response.StatusCode == http.StatusSwitchingProtocols:
		x.tunnel(response, protocol)
	case !proxy.ValidStatus(response.StatusCode):
		x.refuse(proxy.Unreachable(proxy.ErrStatus))
	case tooLarge(response.Response):
		x.refuse(proxy.Unreachable(errHeadTooLarge))
	default:
		x.relay(response)
		if body != nil && !body.isEnded() {
			x.hangUp()
		}
	}
}

// request returns the request for the upstream and its body, which is nil if it has none.
func (x *exchange) request() (*http.Request, *body) {
	g := x.Verdict.Gateway
	out := &http.Request{
		Method:     x.r.Method,
		URL:        upstream.Target(g.Upstream.Base, string(x.Verdict.AppendTarget(nil))),
		Proto:      "HTTP/1.1",
		ProtoMajor: 1,
		ProtoMinor: 1,
		Header:     x.requestFields(),
		Host:       g.Upstream.Base.Host,
	}
	if x.r.Body == http.NoBody || x.r.ContentLength == 0 {
		return out, nil
	}
	b := newBody(x.r, g.MaxBodyBytes, g.Withheld, &x.stall.reading)
	b.passed = &x.bytesIn
	x.stall.start()
	if x.r.Header.Get("Expect") != "" {
		b.sendContinue = x.sendContinue
	}
	out.Body = b
	out.ContentLength = x.r.ContentLength
	out.Trailer = b.trailers
	return out, b
}

// endWithoutResponse ends an exchange in which the upstream did not respond, or the request's
// body failed.
func (x *exchange) endWithoutResponse(err error, b *body) {
	var public *fault.Error
	var denied *proxy.AccessError
	switch {
	case errors.As(err, &denied):
		x.refuse(x.withdraw(denied.Result))
	case errors.As(context.Cause(x.r.Context()), &denied): // end emits the record
		x.abort()
	case errors.As(err, new(errBodyTooLarge)):
		x.refuse(proxy.BodyTooLarge(x.Verdict.Gateway.MaxBodyBytes))
	case errors.As(err, &public):
		if x.r.Context().Err() != nil { // the client hung up, or a shutdown cut it off
			x.abort()
		}
		x.refuse(err)
	case x.stall.reading.cut.Load(): // the client has stalled
		x.abort()
	case b != nil && x.r.Context().Err() == nil && !errors.Is(err, io.ErrUnexpectedEOF):
		x.Verdict.Close = true
		x.refuse(proxy.MalformedBody(err))
	default: // the client hung up
		x.abort()
	}
}

// errHeadTooLarge is the cause of a 502 for a response with a head that is over the limits.
var errHeadTooLarge = fmt.Errorf("the head has more than 512 fields or 256 KiB: %w", http1.ErrHead)

// tooLarge reports whether the head of a response, in its HTTP/1.1 form, exceeds the limits
// (contract, 4.2, 8).
func tooLarge(r *http.Response) bool {
	fields, size := 0, len(r.Proto)+len(" ")+len(r.Status)+len("\r\n\r\n")
	count := func(name, value string) {
		fields++
		size += len(name) + len(": ") + len(value) + len("\r\n")
	}
	for name, values := range r.Header {
		for _, v := range values {
			count(name, v)
		}
	}
	// net/http stores these outside of Header.
	for _, coding := range r.TransferEncoding {
		count("Transfer-Encoding", coding)
	}
	if len(r.Trailer) > 0 {
		count("Trailer", strings.Join(slices.Collect(maps.Keys(r.Trailer)), ", "))
	}
	return fields > http1.MaxResponseFields || size > http1.MaxResponseHead
}

// interim relays a 1xx response, unless its head is over the limits. net/http sends all fields that are set at that moment, so
// the fields of the 1xx are set only during the call.
//
// Over HTTP/2, if the client has reset the stream, net/http may still be reading the fields
// after WriteHeader has returned, and concurrent use of a map ends the process. A
// Content-Length, which is not sent in a 1xx, makes net/http take a copy.
func (x *exchange) interim(status int, header http.Header) error {
	if tooLarge(&http.Response{Proto: "HTTP/1.1", Status: strconv.Itoa(status) + " " + http.StatusText(status), Header: header}) {
		return errHeadTooLarge
	}
	if !x.r.ProtoAtLeast(1, 1) {
		return nil
	}
	x.head.Lock()
	defer x.head.Unlock()
	if x.settled {
		return nil
	}
	h := x.w.Header()
	x.responseFields(h, status, header)
	if h["Content-Type"] == nil {
		delete(h, "Content-Type")
	}
	h["Content-Length"] = []string{"0"}
	x.w.WriteHeader(status)
	clear(h)
	return nil
}

// sendContinue sends the 100 that the client waits for. It is called when the upstream has
// sent one, or has sent nothing for a while. Otherwise net/http would send one at the first
// read, even after another interim response.
func (x *exchange) sendContinue() {
	x.head.Lock()
	defer x.head.Unlock()
	if !x.settled && x.r.ProtoMajor == 1 && x.r.ProtoAtLeast(1, 1) {
		x.w.WriteHeader(http.StatusContinue)
	}
}

// relay sends the upstream's response to the client as it arrives.
func (x *exchange) relay(response *upstream.Response) {
	x.settle()
	h := x.w.Header()
	x.responseFields(h, response.StatusCode, response.Header)
	x.ownFields()
	trailers := wantsTrailers(x.r.Header)
	if trailers {
		announceTrailers(h, response.Trailer)
	}
	x.writeHead(response.StatusCode)
	// A response without a body is sent when the handler returns. Over HTTP/2 it is then a
	// single frame that ends the stream, which gRPC calls trailers-only.
	if response.Body == http.NoBody || response.ContentLength == 0 {
		x.emit(accesslog.Forwarded, response.StatusCode)
		return
	}
	if x.rc.Flush() != nil || x.copy(response.Body, response.ContentLength) != nil {
		x.abort()
	}
	x.emit(accesslog.Forwarded, response.StatusCode)
	if trailers {
		sendTrailers(h, response.Trailer)
	}
}

const bufferSize = 32 << 10

// buffers is a pool of buffers for copying bodies.
type buffers struct{ pool sync.Pool }

func (b *buffers) get() *[bufferSize]byte {
	if buf, ok := b.pool.Get().(*[bufferSize]byte); ok {
		return buf
	}
	return new([bufferSize]byte)
}

// copy sends from to the client and flushes each piece. length is the length of from, or
// negative if unknown. The error is that of either side.
func (x *exchange) copy(from io.Reader, length int64) error {
	buf := x.server.buffers.get()
	defer x.server.buffers.pool.Put(buf)
	x.stall.start()
	for {
		n, err := from.Read(buf[:])
		if n > 0 {
			if x.bytesOut += int64(n); x.bytesOut == length {
				x.emit(accesslog.Forwarded, x.status)
			}
			if err := x.send(buf[:n]); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			if x.r.Context().Err() == nil {
				x.LogBrokenOff(err)
			}
			return err
		}
	}
}

func (x *exchange) send(piece []byte) error {
	x.stall.writing.begin()
	defer x.stall.writing.done()
	if _, err := x.w.Write(piece); err != nil { //nolint:gosec // G705: the body is the upstream's
		return err
	}
	return x.rc.Flush()
}
