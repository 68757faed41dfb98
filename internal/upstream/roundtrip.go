package upstream

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"sync"
	"sync/atomic"
	"time"
)

// errHeadTimeout is the cause of a context whose exchange had no head in time.
var errHeadTimeout = errors.New("no head of an answer in time")

// Exchange is one request to an upstream and what the sender wants to know of it.
type Exchange struct {
	// Request has a URL made by Target, and header fields that go out as they
	// are. Its context is not used. Its body is not closed.
	Request *http.Request
	// Upgrade tells that the request asks for a change of protocol.
	Upgrade bool
	// Retry tells that the request may be sent a second time when a reused connection
	// fails before any byte of a response. It has no body then.
	Retry bool
	// HeadTimeout is the longest time without progress of the upload before
	// the head of the answer.
	HeadTimeout time.Duration
	// Interim is called with each 1xx answer but 100 and 101, before Send
	// returns. It may keep header.
	Interim func(status int, header http.Header)
}

// Response is the head of an upstream's answer. Its body ends with an error
// unless the upstream's message was complete.
type Response struct {
	*http.Response
	release context.CancelFunc
	limiter *limiter
}

// Close ends what remains of the exchange in both directions.
func (a *Response) Close() {
	_ = a.Body.Close()
	a.release()
	a.limiter.yieldIdle()
}

// Send sends a request and returns the head of the answer; the caller must
// Close it. ctx ends the exchange, the answer's body included. The error is one
// of ctx, of reading the request's body, or has the code
// fault.UpstreamUnreachable or fault.UpstreamTimeout.
func (p *Pool) Send(ctx context.Context, x *Exchange) (*Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	watch := startHeadTimer(x.HeadTimeout, cancel)
	in := interim{forward: x.Interim}
	resp, body, err := p.try(ctx, x, watch, &in) //nolint:bodyclose // Response.Close does
	watch.stop()
	in.stop()
	if err == nil {
		return &Response{Response: resp, release: func() { cancel(nil) }, limiter: p.limiter}, nil
	}
	defer p.limiter.yieldIdle()
	defer cancel(nil)
	switch {
	case errors.Is(context.Cause(ctx), errHeadTimeout):
		return nil, TimedOut(errHeadTimeout)
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case body != nil && body.failed() != nil:
		return nil, body.failed()
	default:
		return nil, Unreachable(err)
	}
}

// freshAttempts is how often a request is tried on connections that were made for
// it and closed before anything was sent.
const freshAttempts = 10

// try sends the request. A connection of HTTP/2 may close, or have no stream left,
// while a request comes to it. net/http then takes another only if there is no
// body, which it has closed, and never if it was the connection's first; as nothing
// was sent, this does.
func (p *Pool) try(ctx context.Context, x *Exchange, watch *headTimer, in *interim) (*http.Response, *requestBody, error) {
	transport := p.requests
	if x.Upgrade {
		transport = p.upgrades
	}
	for fresh := freshAttempts; ; {
		var connected, reused, sent atomic.Bool
		trace := &httptrace.ClientTrace{
			Got1xxResponse: in.handle,
			GotConn:        func(c httptrace.GotConnInfo) { connected.Store(true); reused.Store(c.Reused) },
			WroteHeaders:   func() { sent.Store(true) },
		}
		if p.limiter != nil {
			trace.PutIdleConn = func(error) { p.limiter.yieldIdle() }
		}
		req := x.Request.WithContext(httptrace.WithClientTrace(ctx, trace))
		var body *requestBody
		if req.Body != nil {
			body = &requestBody{body: req.Body, timer: watch}
			req.Body = body
		}
		prepare(req, x.Retry)
		if !x.Upgrade && p.limiter.contended() {
			req.Close = true
		}
		resp, err := transport.RoundTrip(req)
		untouched := body.end(err)
		if err == nil || ctx.Err() != nil || !connected.Load() || sent.Load() || !untouched {
			return resp, body, err
		}
		if !reused.Load() {
			if fresh--; fresh == 0 {
				return resp, body, err
			}
		}
	}
}

// prepare makes net/http send req a second time when a reused connection fails before
// any byte of a response if retry is true, and only then.
func prepare(req *http.Request, retry bool) {
	switch {
	case retry && (req.Method == http.MethodPut || req.Method == http.MethodDelete):
		// net/http repeats a request that has such a field; without a value it is not
		// sent. GET, HEAD and OPTIONS it repeats anyway.
		if _, given := req.Header["X-Idempotency-Key"]; !given {
			req.Header["X-Idempotency-Key"] = []string{}
		}
	case !retry:
		// A caller's own field of these names means something between it and the
		// upstream; net/http must not act on it, and looks for this spelling alone.
		respell(req.Header, "Idempotency-Key", "idempotency-key")
		respell(req.Header, "X-Idempotency-Key", "x-idempotency-key")
	}
	// An upstream that answers without asking for an announced body does not
	// get it: without this, net/http sends it to keep the connection.
	if req.Header.Get("Expect") != "" {
		req.Close = true
	}
}

func respell(h http.Header, from, to string) {
	if values, ok := h[from]; ok {
		delete(h, from)
		h[to] = values
	}
}

// interim passes 1xx answers on until the final head has come: net/http may
// call it from another goroutine, even then.
type interim struct {
	mu      sync.Mutex
	forward func(int, http.Header)
}

func (i *interim) handle(status int, header textproto.MIMEHeader) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	// 100 has done its work when the body is read; the client's server sends
	// one of its own then.
	if i.forward != nil && status != http.StatusContinue {
		i.forward(status, http.Header(header))
	}
	return nil
}

func (i *interim) stop() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.forward = nil
}
