package send

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/http2"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/proxy/message"
	"github.com/keygate/keygate/internal/upstream"
)

// H2Try is a try over an HTTP/2 connection, as H1Try is over HTTP/1.1:
//
//	write                the head of the request
//	tryOpen, Open        sends it, with the first part of the body
//	Send, SendTrailers   the rest of the body, from another goroutine while Run runs
//	Run                  passes the response to a message.Receiver, until all of it has arrived
//	Close                ends the stream
//	Finish               the end of the response, for the message.Receiver
//
// An exchange whose request was sent whole needs no goroutine until it has something to do:
//
//	tryOpen              opens the stream; the request is sent together with others
//	Await                returns at once
//	Waiter.Relay         when the whole response has arrived: Run and Finish do not wait
//	Waiter.Resume        otherwise, for Run, Close and Finish in a goroutine
//
// What arrives is kept until Run passes it on: heads, and at most http2.StreamWindow bytes of data.
// An H2Try serves one request after another, with Reset between them.
type H2Try struct {
	callState
	head requestHead
	body message.Framing // of the request
	in   *arrivals
	data []byte // what is being passed on, from message.Front on
}

// Waiter is an exchange that awaits a response without a goroutine. After Await one of its
// methods is called, once. It must not block.
type Waiter interface {
	// Resume says that Run is to be called: a part of the response has arrived, or Run will fail.
	// Interrupt may call it, with the locks that Interrupt's caller holds.
	Resume()
	// Relay says that the whole response has arrived and the try is over. The reader of the
	// upstream's connection calls it, and then Flush of the result, unless the result is nil. The
	// H2Try may serve the next request before Relay returns.
	Relay() upstream.Flusher
}

type callState struct {
	open     bool
	stale    bool           // a callback may still be using in
	isHead   bool           // the method is HEAD
	tunnels  bool           // the request asks for a WebSocket
	withheld proxy.Withheld // fields that the target does not get
	confirm  upstream.Confirmer
	begun    bool // the receiver has an interim response or the head
	headed   bool // the receiver has the head
	lost     bool // the receiver cannot be reached
	keeps    bool // in.replay may hold something
	again    bool // the request is sent a second time
	moved    int64

	waits   bool  // Run waits; guarded by the lock of in, as the next two
	quiet   int   // calls of Rest since something of the body arrived
	quietAt int64 // moved at the last of them
}

// requestHead is a copy of a request's head. It is complete before the locks of a pool are taken,
// so that nothing can fail, or change, while they are held.
type requestHead struct {
	text   []byte
	fields []headField
}

// headField is a field of a requestHead; its name and value follow the field before it.
type headField struct {
	name, value uint32 // lengths
	sensitive   bool
}

func (h *requestHead) add(name, value string, sensitive bool) {
	h.text = append(append(h.text, name...), value...)
	h.fields = append(h.fields, headField{name: uint32(len(name)), value: uint32(len(value)), sensitive: sensitive})
}

// maxInterim bounds the interim responses of one exchange that wait to be passed on, and maxInterimBytes
// the sum of their heads. A single response may be longer.
const (
	maxInterim      = 64
	maxInterimBytes = 64 << 10
)

// errInterim is the cause of a 502 for an upstream that sends too many interim responses over
// HTTP/2.
var errInterim = fmt.Errorf("more than %d interim responses at once, or %d KiB of them: %w", maxInterim, maxInterimBytes>>10, http1.ErrSyntax)

// errInterrupted is the result of Run after Interrupt.
var errInterrupted = errors.New("send: the try was interrupted")

// arrivals is what has arrived of a response. It implements upstream.H2Exchange.
type arrivals struct {
	stream upstream.H2Stream
	head   *requestHead

	mu   sync.Mutex
	news sync.Cond // signalled when Run can go on
	arrivalsState
	replay   upstream.Replay // what was sent of the request's body
	response http2.Response
	trailers http2.TrailerFields
	data     []byte // from message.Front on
}

type arrivalsState struct {
	interim     []*http2.Response
	crowded     bool // there were more of them than may wait
	headed      bool // response has arrived
	bare        bool // and nothing follows it
	ended       bool
	trailed     bool // trailers have arrived
	err         error
	safe        bool // the server has not processed the request
	interrupted bool

	waiter Waiter // instead of Run; nil once it was called
	call   *H2Try // of waiter
}

func newArrivals() *arrivals {
	a := &arrivals{data: newData()}
	a.news.L = &a.mu
	return a
}

// WriteHead implements upstream.H2Exchange.
func (a *arrivals) WriteHead(w *http2.Conn) {
	rest := a.head.text
	for i := range a.head.fields {
		f := &a.head.fields[i]
		w.Field(rest[:f.name], rest[f.name:f.name+f.value], f.sensitive)
		rest = rest[f.name+f.value:]
	}
}

// TakeInterim implements upstream.H2Exchange.
func (a *arrivals) TakeInterim(r *http2.Response) {
	a.mu.Lock()
	defer a.mu.Unlock()
	size := len(r.Text)
	for _, waiting := range a.interim {
		size += len(waiting.Text)
	}
	if len(a.interim) == maxInterim || len(a.interim) > 0 && size > maxInterimBytes {
		a.err, a.crowded = errInterim, true
		return
	}
	c := &http2.Response{}
	c.Copy(r)
	a.interim = append(a.interim, c)
}

// TakeHead implements upstream.H2Exchange.
func (a *arrivals) TakeHead(r *http2.Response, end bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.response.Copy(r)
	a.headed, a.bare, a.ended = true, end, end
	a.replay.Drop()
}

// TakeData implements upstream.H2Exchange.
func (a *arrivals) TakeData(b []byte, end bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.data = append(a.data, b...)
	a.ended = end
}

// TakeTrailers implements upstream.H2Exchange.
func (a *arrivals) TakeTrailers(t *http2.TrailerFields) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.trailers.Copy(t)
	a.trailed, a.ended = true, true
}

// Settle implements upstream.H2Exchange. After Relay nothing may touch a.
func (a *arrivals) Settle(over bool) upstream.Flusher {
	a.mu.Lock()
	whole := over && a.err == nil && !a.interrupted && len(a.interim) == 0 && proxy.ValidStatus(a.response.Status)
	call := a.call
	w := a.wake()
	if w != nil && whole {
		call.open = false
	}
	a.mu.Unlock()
	switch {
	case w == nil:
	case whole:
		return w.Relay()
	default:
		w.Resume()
	}
	return nil
}

// wake makes Run go on, or returns the Waiter that the caller calls after it has released a.mu.
func (a *arrivals) wake() Waiter {
	w := a.waiter
	a.waiter = nil
	a.news.Signal()
	return w
}

// CanSend implements upstream.H2Exchange. It is never called, because a H2Try does not use SendData.
func (a *arrivals) CanSend() {}

// Fail implements upstream.H2Exchange.
func (a *arrivals) Fail(err error, safe bool) {
	a.mu.Lock()
	if a.err == nil {
		a.err, a.safe = err, safe
	}
	w := a.wake()
	a.mu.Unlock()
	if w != nil {
		w.Resume()
	}
}

// Reset clears all state of a request. The try is over.
func (c *H2Try) Reset() {
	if c.keeps {
		c.in.mu.Lock()
		c.in.replay.Drop()
		c.in.mu.Unlock()
	}
	if c.stale {
		c.in = nil
	}
	c.callState = callState{}
	c.body.Reset()
	c.head.text, c.head.fields = keep(c.head.text, message.KeepRoom), c.head.fields[:0]
	c.data = keep(c.data, message.Front+message.KeepRoom)
	if a := c.in; a != nil {
		a.arrivalsState = arrivalsState{}
		a.head = nil
		a.response.Text, a.trailers.Text = keep(a.response.Text, message.KeepRoom), keep(a.trailers.Text, message.KeepRoom)
		if a.data = keep(a.data, message.Front+message.KeepRoom); a.data == nil {
			c.in = nil
		} else {
			a.data = a.data[:message.Front]
		}
	}
}

// keep returns b without content, or nil if it is larger than most.
func keep(b []byte, most int) []byte {
	if cap(b) > most {
		return nil
	}
	return b[:0]
}

// write prepares the head of a request to a target with a pool of HTTP/2 connections.
func (c *H2Try) write(r *Request, to *Target, confirm upstream.Confirmer) {
	h := &c.head
	h.text, h.fields = h.text[:0], h.fields[:0]
	method := proxy.Text(r.Head.Method.Of(r.Text))
	c.isHead, c.tunnels, c.withheld, c.confirm = method == "HEAD", r.WebSocketKey != "", r.withheld(to), confirm
	if c.tunnels { // RFC 8441, 4
		h.add(":method", "CONNECT", false)
		h.add(":protocol", webSocket, false)
	} else {
		h.add(":method", method, false)
	}
	h.add(":scheme", upstream.Scheme(to.of.Base), false)
	h.add(":authority", r.hostFor(to), false)
	h.text = append(h.text, ":path"...)
	start := len(h.text)
	h.text = r.Hop.Verdict.AppendTarget(append(h.text, to.path...))
	h.fields = append(h.fields, headField{name: uint32(len(":path")), value: uint32(len(h.text) - start)})
	r.addTo(h, to)
	c.body.Begin(r.Head, c.tunnels, c.withheld)
	var room [20]byte
	if name, value := c.body.Declared(room[:0], r.Text, r.Head.Fields()); name != "" {
		h.add(name, proxy.Text(value), false)
	}
}

// request returns the request to open a stream for, and prepares for its response.
func (c *H2Try) request(body []byte, end bool) upstream.H2Request {
	if c.in == nil {
		c.in = newArrivals()
	}
	c.in.head = &c.head
	return upstream.H2Request{Exchange: c.in, Confirm: c.confirm, Head: c.isHead, Body: body, End: end, Connect: c.tunnels}
}

// tryOpen sends the head and body if that is possible at once. More of the body may follow unless
// end is set. sent is how much of body was sent; the rest goes with Send. The caller sends the
// request, by Flush of later. later is nil if the request could not be opened.
func (c *H2Try) tryOpen(pool *upstream.H2Pool, body []byte, end bool) (sent int, later upstream.Flusher) {
	r := c.request(body, end)
	if !c.tunnels && !c.body.Fits(len(body), end) {
		return 0, nil // Open returns the error
	}
	later = pool.TryOpenLater(&c.in.stream, r)
	if later == nil {
		return 0, nil
	}
	return c.opened(pool, body, end), later
}

// opened records that the stream was opened, and starts keeping the body if more of it will follow. It returns
// how much of the first part of the body was sent with the head.
func (c *H2Try) opened(pool *upstream.H2Pool, body []byte, end bool) (sent int) {
	c.open = true
	a := c.in
	sent = a.stream.First()
	_ = c.count(sent, end && sent == len(body)) // it fits
	if end && sent == len(body) || c.again {
		return sent
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if c.keeps = !a.headed; c.keeps {
		a.replay.Begin(pool)
		a.replay.Add(body[:sent])
	}
	return sent
}

// count counts a part of the body. Data of a tunnel is not part of a body.
func (c *H2Try) count(n int, end bool) error {
	if c.tunnels {
		return nil
	}
	return c.body.Count(n, end)
}

// Await makes w be called when Run can go on, in a try whose request was sent whole. It reports
// false if Run can go on now.
func (c *H2Try) Await(w Waiter) bool {
	a := c.in
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.interrupted || a.headed || a.err != nil || len(a.interim) > 0 {
		return false
	}
	a.waiter, a.call = w, c
	return true
}

// Open does the same as tryOpen, but sends the request itself and waits for a connection until the deadline or the
// end of ctx. The errors are the same as from upstream.H2Pool.Open.
func (c *H2Try) Open(ctx context.Context, deadline time.Time, pool *upstream.H2Pool, body []byte, end bool) (sent int, err error) {
	r := c.request(body, end)
	if !c.tunnels && !c.body.Fits(len(body), end) {
		return 0, message.ErrFraming
	}
	if err := pool.Open(ctx, deadline, &c.in.stream, r); err != nil {
		return 0, err
	}
	return c.opened(pool, body, end), nil
}

// Send sends more of the body, and its end if end is set. It blocks until the server has room for
// all of it, and fails once the try is over. If the body differs from what the head declares, Run
// fails, too.
func (c *H2Try) Send(body []byte, end bool) error {
	if err := c.count(len(body), end); err != nil {
		c.in.Fail(err, false)
		return err
	}
	if c.keeps {
		c.in.mu.Lock()
		c.in.replay.Add(body)
		c.in.mu.Unlock()
	}
	return c.in.stream.Send(context.Background(), body, end)
}

// SendTrailers ends the body with the trailers that may be forwarded, which are spans of text.
func (c *H2Try) SendTrailers(text []byte, trailers []http1.Field) error {
	if !proxy.EachTrailer(text, trailers, false, c.withheld, func(*http1.Field) {}) {
		return c.Send(nil, true)
	}
	if err := c.count(0, true); err != nil {
		c.in.Fail(err, false)
		return err
	}
	ok := c.in.stream.SendTrailers(func(w *http2.Conn) {
		proxy.EachTrailer(text, trailers, false, c.withheld, func(f *http1.Field) { w.Field(f.Name.Of(text), f.Value.Of(text), f.Sensitive) })
	})
	if !ok {
		return io.ErrClosedPipe
	}
	return nil
}

// Interrupt makes Run return, from another goroutine.
func (c *H2Try) Interrupt() {
	a := c.in
	a.mu.Lock()
	a.interrupted = true
	w := a.wake()
	a.mu.Unlock()
	if w != nil {
		w.Resume()
	}
}

// Close ends the try. After that, nothing of it is sent or received.
func (c *H2Try) Close() {
	if !c.open {
		return
	}
	c.open = false
	c.stale = !c.in.stream.Close() || c.stale
}

// Address returns the network address of the server.
func (c *H2Try) Address() string { return c.in.stream.Address() }

// Lost reports whether Run failed because of the message.Receiver.
func (c *H2Try) Lost() bool { return c.lost }

// Again prepares to send the same request a second time. The try is over.
func (c *H2Try) Again() {
	state, head, body := callState{isHead: c.isHead, tunnels: c.tunnels, withheld: c.withheld, confirm: c.confirm, again: true}, c.head, c.body
	c.head, c.body = requestHead{}, message.Framing{}
	c.Reset()
	c.callState, c.head, c.body = state, head, body
	c.body.Restart()
}

// AppendSent appends the part of the body that was given to Open and Send before the try failed. ok is
// false if it was not kept: it was too long, or the response had begun.
func (c *H2Try) AppendSent(dst []byte) (_ []byte, ok bool) {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	sent, ok := c.in.replay.Bytes()
	return append(dst, sent...), ok
}

// Safe reports whether the server has certainly not processed the request whose Run failed.
func (c *H2Try) Safe() bool {
	a := c.in
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err != nil && a.safe
}

// Stale reports whether Run failed because of a connection that had carried another request before, and
// nothing of the response has arrived.
func (c *H2Try) Stale() bool { return !c.begun && c.in.stream.Stale() }

// Bare reports whether the response has ended with its head, so that it has neither a body
// nor trailers.
func (c *H2Try) Bare() bool { return c.in.bare }

// Status returns the status of the response, whose head has arrived.
func (c *H2Try) Status() int { return c.in.response.Status }

// Arrived returns how many bytes of the response's body have arrived and were not passed on,
// within Waiter.Relay.
func (c *H2Try) Arrived() int { return len(c.in.data) - message.Front }

// Moved returns how many bytes of the response's body have arrived.
func (c *H2Try) Moved() int64 { return c.moved }

// Run passes the response to a message.Receiver. It returns when the whole body has arrived; Finish
// passes on its last part and the end. After an error, Lost says whether the client caused it.
func (c *H2Try) Run(to message.Receiver) error {
	a := c.in
	a.mu.Lock()
	defer a.mu.Unlock()
	for {
		switch {
		case a.interrupted:
			return errInterrupted
		case len(a.interim) > 0:
			r := a.interim[0]
			a.interim = a.interim[1:]
			c.begun = true
			if err := c.pass(func() error { return to.TakeInterim(r.Text, &r.Response) }); err != nil {
				return err
			}
		case a.crowded && !c.headed:
			return errInterim
		case a.headed && !c.headed:
			if err := c.passHead(to); err != nil {
				return err
			}
			if !a.ended && a.err == nil { // the head must not wait for data
				if err := c.passData(to); err != nil {
					return err
				}
			}
		case a.ended:
			c.swap()
			return nil
		case len(a.data) > message.Front:
			if err := c.passData(to); err != nil {
				return err
			}
		case a.err != nil:
			return a.err
		default:
			c.waits = true
			a.news.Wait()
			c.waits = false
		}
	}
}

// restTicks is how many ticks of an engine nothing of a body may arrive before the memory for it is given up.
const restTicks = int(time.Second/proxy.Tick) + 1

// Rest gives up the memory of a response of which nothing has arrived for a second, such as a stream of events. The engine calls it
// at each tick, from another goroutine than that of Run.
func (c *H2Try) Rest() {
	a := c.in
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case !c.waits || len(a.data) > message.Front || c.quietAt != c.moved:
		c.quiet, c.quietAt = 0, c.moved
		return
	case c.quiet < restTicks:
		c.quiet++
		return
	}
	const most = message.Front + message.KeepRoom
	if c.data = keep(c.data, most); cap(a.data) > most {
		a.data = newData()
	}
}

// newData returns memory for a little data.
func newData() []byte { return make([]byte, message.Front, message.Front+1<<10) }

// pass calls the receiver with the lock of the arrivals released. If the call fails, the client
// is lost.
func (c *H2Try) pass(call func() error) error {
	c.in.mu.Unlock()
	defer c.in.mu.Lock()
	err := call()
	c.lost = err != nil
	return err
}

// passHead passes the final head to the receiver. The lock is held, as for pass.
func (c *H2Try) passHead(to message.Receiver) error {
	c.begun, c.headed = true, true
	c.in.mu.Unlock()
	defer c.in.mu.Lock()
	r := &c.in.response // which is not written again
	if !proxy.ValidStatus(r.Status) {
		return proxy.ErrStatus
	}
	return to.TakeHead(r.Text, &r.Response, r.Framing(c.isHead))
}

// passData passes the data that has arrived, if any, to the receiver, and lets the server send the same
// number of bytes.
func (c *H2Try) passData(to message.Receiver) error {
	c.swap()
	buf, end := c.buffer()
	err := c.pass(func() error { return to.TakeData(buf, message.Front, end) })
	if err == nil && end > message.Front {
		c.in.stream.Consumed(end - message.Front)
	}
	return err
}

// swap takes the data that has arrived. The lock is held.
func (c *H2Try) swap() {
	if c.data == nil {
		c.data = newData()
	}
	c.data, c.in.data = c.in.data, c.data[:message.Front]
	c.moved += int64(len(c.data) - message.Front)
}

// buffer returns the data that was taken, buf[message.Front:end], with the room around it that a
// message.Receiver needs.
func (c *H2Try) buffer() (buf []byte, end int) {
	end = len(c.data)
	c.data = slices.Grow(c.data, message.TailRoom)
	return c.data[:end+message.TailRoom], end
}

// Finish passes the last data and the end of the response to the message.Receiver.
func (c *H2Try) Finish(to message.Receiver) error {
	buf, end := c.buffer()
	if t := &c.in.trailers; c.in.trailed {
		return to.TakeEnd(buf, message.Front, end, t.Text, t.Fields())
	}
	return to.TakeEnd(buf, message.Front, end, nil, nil)
}
