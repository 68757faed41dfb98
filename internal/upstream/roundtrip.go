package upstream

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/fault"
)

// Exchange is one request to an upstream, with the settings of its exchange.
type Exchange struct {
	// Request has a URL made by Target, and a header that is sent as it is. Its context is
	// ignored. Its body is not closed.
	Request *http.Request
	// Upgrade is set if the request asks for a change of protocol.
	Upgrade bool
	// Retry is set if the request may be sent a second time when a reused connection fails
	// before the first byte of a response. Such a request has no body.
	Retry bool
	// HeadTimeout is the longest time before the head of the response in which the upload
	// makes no progress.
	HeadTimeout time.Duration
	// Interim, if not nil, is called with each 1xx response except 100 and 101, before Send
	// returns. It may keep header. An error ends the exchange as one of the upstream.
	Interim func(status int, header http.Header) error
	// Confirm is asked whenever a connection is about to be used. Its error is that of Send. Nil
	// means that the request may be sent.
	Confirm Confirmer
}

// Response is the head of an upstream's response. Reading its body ends with an error
// unless the upstream's message was complete.
type Response struct {
	*http.Response
	release context.CancelFunc
	over    *transports
	limiter *limiter
}

// Close ends what remains of the exchange in both directions.
func (r *Response) Close() {
	_ = r.Body.Close()
	r.release()
	if over := r.over; over != nil {
		r.over = nil
		over.leave()
	}
	r.limiter.yieldIdle()
}

// Send sends a request and returns the head of the response, which the caller must Close.
// ctx ends the exchange, including the body of the response. The error is that of ctx, of
// Exchange.Confirm or of reading the request's body, or has the code fault.UpstreamUnreachable or
// fault.UpstreamTimeout.
func (p *Pool) Send(ctx context.Context, x *Exchange) (*Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := startHeadTimer(x.HeadTimeout, cancel)
	in := interim{forward: x.Interim}
	var at progress
	wanted := newDemand()
	over := p.use()
	resp, body, err := p.try(context.WithValue(ctx, demandKey{}, wanted), x, over, timer, &in, &at) //nolint:bodyclose // Response.Close does
	timer.stop()
	in.stop()
	if err == nil {
		return &Response{Response: resp, release: func() { cancel(nil) }, over: over, limiter: p.limiter}, nil
	}
	close(wanted.gone)
	defer p.limiter.yieldIdle()
	defer over.leave()
	defer cancel(nil)
	switch {
	case at.denied != nil:
		return nil, at.denied
	case errors.Is(context.Cause(ctx), errHeadTimeout):
		return nil, at.timedOut(p)
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case body != nil && body.failed() != nil:
		return nil, body.failed()
	default:
		return nil, Unreachable(At(at.address(p), err))
	}
}

// progress is how far an attempt got. net/http calls its hooks from several goroutines.
type progress struct {
	dialing atomic.Bool // name resolution or connecting has begun
	denied  error       // of Exchange.Confirm; set on the goroutine that sends the request

	mu   sync.Mutex
	conn net.Conn // nil before there is one
}

func (at *progress) connected(c net.Conn) {
	at.mu.Lock()
	defer at.mu.Unlock()
	at.conn = c
}

// address returns the address of the upstream's connection, or that of p's origin before
// there is one.
func (at *progress) address(p *Pool) string {
	at.mu.Lock()
	defer at.mu.Unlock()
	if at.conn == nil {
		return p.origin.Host
	}
	return at.conn.RemoteAddr().String()
}

// timedOut returns the error for an exchange of p that ended with errHeadTimeout.
func (at *progress) timedOut(p *Pool) *fault.Error {
	at.mu.Lock()
	connected := at.conn != nil
	at.mu.Unlock()
	switch {
	case connected:
		return TimedOut(At(at.address(p), errHeadTimeout))
	case p.limiter != nil && !at.dialing.Load():
		return noFreeConnection()
	default:
		return TimedOut(At(at.address(p), errConnectTimeout))
	}
}

const (
	// freshAttempts is how many times a request is tried on new connections that closed
	// before anything was sent.
	freshAttempts = 10
	// keptAttempts is how many times a request is tried on kept connections that turn out
	// to be unusable. Then it is sent over a new one.
	keptAttempts = 4
)

// attempt is one try to send a request. Its hooks are called from several goroutines.
type attempt struct {
	connected, reused, sent atomic.Bool
	// refused is set if the connection was a kept one on which something had arrived. Then
	// the request was not sent, and whatever came is not a response to it.
	refused atomic.Bool
	body    *requestBody
	cancel  context.CancelCauseFunc
}

// try sends the request. An HTTP/2 connection may close, or have no stream left, just as a
// request is assigned to it. net/http then tries another connection only if the request has
// no body, and never if it was the connection's first. As nothing was sent, try retries
// these requests too.
//
// Neither is anything sent over a kept HTTP/1.1 connection on which something has arrived.
// try looks at the connection when net/http has chosen it, and before net/http expects a
// response on it.
func (p *Pool) try(ctx context.Context, x *Exchange, over *transports, timer *headTimer, in *interim, at *progress) (*http.Response, *requestBody, error) {
	transport := over.requests
	if x.Upgrade {
		transport = over.upgrades
	}
	for fresh, kept := freshAttempts, keptAttempts; ; {
		a := &attempt{}
		// The end of this context keeps net/http from using another connection by itself
		// once a connection was refused. That of ctx ends it, too.
		var within context.Context
		within, a.cancel = context.WithCancelCause(ctx)
		req := x.Request.WithContext(httptrace.WithClientTrace(within, p.trace(within, x, a, in, at)))
		a.body = newRequestBody(req, timer)
		prepare(req, x.Retry)
		if !x.Upgrade && p.limiter.contended() {
			req.Close = true
		}
		resp, err := transport.RoundTrip(req)
		if at.denied != nil {
			if err == nil {
				_ = resp.Body.Close()
			}
			a.body.end(at.denied)
			return nil, a.body, at.denied
		}
		if a.refused.Load() {
			if err == nil {
				_ = resp.Body.Close()
			}
			a.body.end(errNotQuiet)
			if ctx.Err() != nil {
				return nil, a.body, ctx.Err()
			}
			if kept--; kept == 0 {
				transport = over.single
			}
			continue
		}
		untouched := a.body.end(err)
		if err == nil || ctx.Err() != nil || !a.connected.Load() || a.sent.Load() || !untouched {
			return resp, a.body, err
		}
		a.cancel(nil)
		if !a.reused.Load() {
			if fresh--; fresh == 0 {
				return resp, a.body, err
			}
		}
	}
}

// trace returns the hooks of an attempt. ctx is the attempt's.
func (p *Pool) trace(ctx context.Context, x *Exchange, a *attempt, in *interim, at *progress) *httptrace.ClientTrace {
	wanted, _ := ctx.Value(demandKey{}).(*demand)
	trace := &httptrace.ClientTrace{
		Got1xxResponse: func(status int, header textproto.MIMEHeader) error {
			if a.refused.Load() {
				return errNotQuiet
			}
			return in.handle(status, header)
		},
		GetConn: func(string) { wanted.ask() },
		GotConn: func(c httptrace.GotConnInfo) {
			wanted.serve()
			if c.Reused && !usable(ctx, c.Conn) {
				a.refused.Store(true)
				a.body.refuse()
				a.cancel(errNotQuiet)
				return
			}
			if x.Confirm != nil {
				if at.denied = x.Confirm.Confirm(); at.denied != nil {
					// Nothing is sent: net/http looks at the context before it sends a request over
					// HTTP/2, and over HTTP/1.1 the connection is closed.
					a.body.refuse()
					a.cancel(at.denied)
					if _, w := watchedOf(c.Conn); w == nil || !w.multiplexed {
						_ = c.Conn.Close()
					}
					return
				}
			}
			at.connected(c.Conn)
			a.connected.Store(true)
			a.reused.Store(c.Reused)
		},
		WroteHeaders: func() { a.sent.Store(true) },
	}
	if p.limiter != nil {
		trace.DNSStart = func(httptrace.DNSStartInfo) { at.dialing.Store(true) }
		trace.ConnectStart = func(string, string) { at.dialing.Store(true) }
		trace.PutIdleConn = func(error) { p.limiter.yieldIdle() }
	}
	return trace
}

// prepare makes net/http send req a second time if a reused connection fails before the
// first byte of a response and retry is set, and never otherwise.
func prepare(req *http.Request, retry bool) {
	switch {
	case retry && (req.Method == http.MethodPut || req.Method == http.MethodDelete):
		// net/http retries a request with this field; a field without values is not sent.
		// It retries GET, HEAD and OPTIONS anyway.
		if _, given := req.Header["X-Idempotency-Key"]; !given {
			req.Header["X-Idempotency-Key"] = []string{}
		}
	case !retry:
		// A client's own field of this name is meant for the upstream; net/http must not
		// act on it. It only recognizes the canonical spelling.
		respell(req.Header, "Idempotency-Key", "idempotency-key")
		respell(req.Header, "X-Idempotency-Key", "x-idempotency-key")
	}
	// If the upstream responds without asking for the announced body, the body is not
	// sent. Without Close, net/http would send it to keep the connection usable.
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

// interim forwards 1xx responses until the final head has arrived. net/http may call handle
// from another goroutine, even later.
type interim struct {
	mu      sync.Mutex
	forward func(int, http.Header) error
}

func (i *interim) handle(status int, header textproto.MIMEHeader) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	// A 100 is not passed on: after it the body is read, which makes the server send the
	// client its own 100.
	if i.forward != nil && status != http.StatusContinue {
		return i.forward(status, http.Header(header))
	}
	return nil
}

func (i *interim) stop() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.forward = nil
}
