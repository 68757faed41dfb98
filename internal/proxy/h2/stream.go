package h2

import (
	"cmp"
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/http2"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/proxy/send"
)

// cut is why a stream, or a connection, was ended from outside.
type cut uint8

const (
	notCut          cut = iota
	cutTimeout          // the upstream did not respond in time
	cutDeadline         // the grpc-timeout of the call has passed
	cutReset            // the client has reset the stream
	cutClientClosed     // the client's connection has ended
	cutStalled          // the client has neither sent nor accepted bytes in time
	cutBody             // the request's body is too large
	cutCrowded          // the bounds of proxy.Bodies are reached
	cutPanicked         // a goroutine of the stream panicked
	cutShutdown         // the engine shuts down
	cutAccess           // the request may not go on: stream.denied says why
)

// errPreflight says that the verdict is to respond to a CORS preflight.
var errPreflight = errors.New("h2: a preflight")

// errNoResponse is the error of an exchange that has ended without one, and without a response: a defect.
var errNoResponse error = fault.New(fault.Internal, "the response is missing")

// errCut is the error of waits that a cut has ended.
var errCut = errors.New("h2: the stream was ended")

// stream is a request with its response. Streams are pooled: all state of one request is in
// streamState, which is zeroed for the next.
type stream struct {
	streamState
	attempt  send.Attempt // the upstream half
	req      http2.Request
	trailers http2.TrailerFields
	wake     sync.Cond // its lock is conn.mu; signalled when something that the stream waits for has changed
	in       []byte    // part of the request's body that has arrived and was not forwarded
	out      []byte    // the part of it that is being forwarded
	room     []byte    // memory for SendData
	scratch  [256]byte // memory for ownFields
}

// streamState is the state of one request. Fields are used with conn.mu held, unless a comment says
// that they belong to the goroutine of the stream.
type streamState struct {
	proxy.Exchange
	conn  *conn
	id    uint32
	index int // in conn.streams
	ask   admit.Request
	// The memory of ForwardedFor.
	forwardedFor [4]string

	stage   stage
	until   time.Time // the end of HeadTimeout, once the attempt is prepared
	calling bool      // the attempt is over HTTP/2 and runs: a cut must interrupt it

	why    cut
	denied accesslog.Result // why a cutAccess
	wire   net.Conn         // the upstream's connection, while a cut may end its use
	cancel context.CancelCauseFunc
	since  int64 // when forwarding began, in the engine's milliseconds; 0 before

	admission admit.Admission // what the sweeper reviews, once attended is set
	attended  bool

	// Time, in the engine's milliseconds; 0 means that nothing is awaited.
	deadline   int64 // for the head of the response
	callUntil  int64 // for the whole exchange, from grpc-timeout
	uploadedAt int64 // when the upstream last took a part of the body
	continueAt int64 // when a client that waits for a 100 gets one from the gateway
	readingAt  int64 // since when the body is awaited from the client
	restsAt    int64 // the same, also for a tunnel, and before a client that waits for a 100 has sent anything
	writing    progress
	lingerTill int64 // until when the rest of a refused body is discarded

	// The body of the request.
	hasBody   bool
	ended     bool  // all of it has arrived
	stopped   bool  // it is not forwarded any more
	ending    bool  // the last part of it is being sent
	tooLarge  bool  // it exceeds max_body_bytes
	crowded   bool  // a part of it could not be held (proxy.Bodies)
	taken     int   // bytes that are held
	held      bool  // the stream is counted in proxy.Bodies
	heldHead  int   // with so many bytes
	tail      bool  // trailers has its trailers
	received  int64 // bytes that have arrived
	forwarded int64 // bytes that were forwarded
	refilled  int64 // bytes that are forwarded again; the client has got its window for them already
	expects   bool  // the client waits for a 100
	continued bool  // it got one
	uploading bool  // a goroutine forwards the body
	uploaded  bool  // all of it was sent
	whole     bool  // all of the request was sent at once

	// The tunnel of an extended CONNECT (RFC 8441).
	tunnels  bool   // the request asks for one
	key      string // Sec-WebSocket-Key, for an upstream over HTTP/1.1
	tunneled int64  // bytes that the upstream has sent through it

	// The response.
	headed    bool // the final head was sent
	streaming bool // data followed it
	finished  bool // the end was sent, or the stream was reset
	discard   bool // the body is discarded
	unasked   bool // and the client gets no window for more of it
	discarded int
}

// stage is where the goroutine of a stream goes on.
type stage uint8

const (
	stageServe stage = iota // at the beginning
	stageRun                // where it runs the attempt, which is prepared
)

// progress tells a client that accepts a response too slowly.
type progress struct {
	since int64 // since when the client has accepted less than stallBytes; 0 if nothing waits for it
	bytes int
}

// newStream returns a stream for a head that has arrived. c.mu is held.
func (c *conn) newStream(id uint32) *stream {
	s, ok := c.engine.streams.Get().(*stream)
	if !ok {
		s = &stream{}
		s.attempt.Init(&c.engine.messages)
	}
	s.conn, s.id, s.index = c, id, len(c.streams)
	s.wake.L = &c.mu
	s.Client = c.client
	c.streams = append(c.streams, s)
	c.times.idle = 0
	c.proto.SetOwner(id, s)
	return s
}

// keepBytes is the largest buffer that a stream keeps for the next request, in bytes.
const keepBytes = 16 << 10

// free ends the stream: its slot is free, and its memory serves another stream. c.mu is held, and
// no goroutine of the stream runs except the caller.
func (s *stream) free() {
	c := s.conn
	s.give(s.taken)
	s.ReleaseBody()
	if s.held {
		c.bodies.Close(s.heldHead)
	}
	c.proto.Done(s.id)
	last := len(c.streams) - 1
	c.streams[s.index] = c.streams[last]
	c.streams[s.index].index = s.index
	c.streams[last] = nil
	c.streams = c.streams[:last]
	c.times.ended(len(c.streams), c.engine.clock.Now())
	s.attempt.Reset()
	s.streamState = streamState{}
	s.in, s.out, s.room = kept(s.in), kept(s.out), kept(s.room)
	s.req.Text, s.trailers.Text = kept(s.req.Text), kept(s.trailers.Text)
	c.engine.streams.Put(s)
}

// hold counts the stream in proxy.Bodies until free, together with the memory of a long head, of which an upstream over HTTP/2
// gets a copy. It reports false if a bound is reached. c.mu is held.
func (s *stream) hold() bool {
	if s.held {
		return true
	}
	head := 0
	if n := len(s.req.Text); n > proxy.FreeHead {
		head = 2 * n
	}
	if s.held = s.conn.bodies.Open(head); s.held {
		s.heldHead = head
	}
	return s.held
}

// end notes that the response has ended. If the request has ended too, the stream's slot is free at
// once: the client may open another stream as soon as it reads the end, perhaps before the
// goroutine of this stream goes on. conn.mu is held.
func (s *stream) end() {
	s.finished = true
	if s.ended && !s.uploading {
		s.conn.proto.Done(s.id)
	}
}

func kept(b []byte) []byte {
	if cap(b) > keepBytes {
		return nil
	}
	return b[:0]
}

// cut ends what the stream waits for. c.mu is held.
func (s *stream) cut(why cut) {
	if s.discard { // it has its response
		s.free()
		return
	}
	if s.why != notCut || s.finished {
		return
	}
	s.why = why
	if s.wire != nil {
		_ = s.wire.SetDeadline(past)
	}
	if s.calling {
		s.attempt.H2().Interrupt()
	}
	if s.cancel != nil {
		s.cancel(s.cause())
	}
	s.wake.Broadcast()
	c := s.conn
	c.room.Broadcast()
}

// cause returns the cause for ending a context.
func (s *stream) cause() error {
	switch s.why {
	case cutShutdown:
		return proxy.ErrCut
	case cutAccess:
		return &proxy.AccessError{Result: s.denied}
	}
	return errCut
}

// head handles the head of a request: it decides the request, and responds unless the request is to
// be forwarded. c.mu is held.
func (c *conn) head(ev *http2.Event) {
	s := c.newStream(ev.Stream)
	if c.times.draining == 0 && c.engine.drain.Announced() {
		c.drain(c.engine.clock.Now()) // ahead of the response
	}
	err := c.proto.ReadRequest(&s.req)
	if c.proto.Err() != nil {
		s.finished = true
		s.free()
		return
	}
	s.ended, s.hasBody = ev.End, !ev.End
	if malformed, ok := err.(http2.MalformedError); ok { //nolint:errorlint // it is not wrapped, and errors.As would allocate
		s.Method, s.Major = proxy.Text(s.req.Method.Of(s.req.Text)), 2
		s.BeginUndecided(&c.engine.cfg.Config)
		s.ended = true // the stream is reset at once
		s.refuse(proxy.Malformed(string(malformed)))
		return
	}
	s.read()
	if method := s.ask.Method; err != nil && method != "TRACE" && method != "CONNECT" {
		s.BeginUndecided(&c.engine.cfg.Config)
		if errors.Is(err, http1.ErrTarget) {
			err = proxy.TargetTooLong()
		} else {
			err = proxy.HeadTooLarge()
		}
		s.refuse(err)
		return
	}
	if s.tunnels && !s.asksForWebSocket() {
		s.BeginUndecided(&c.engine.cfg.Config)
		s.refuse(proxy.ProtocolNotSupported())
		return
	}
	c.mu.Unlock()
	verdict := s.decide()
	c.mu.Lock()
	if verdict != nil {
		s.refuse(verdict)
		return
	}
	switch s.Verdict.Action {
	case admit.Forward, admit.Wait, admit.Respond, admit.Serve:
		if !s.hold() {
			s.refuse(proxy.TooManyBodies())
			return
		}
		c.begun = append(c.begun, s)
	case admit.Preflight:
		s.preflight()
	default:
		s.refuse(s.Verdict.Fault())
	}
}

// read sets what the decision depends on.
func (s *stream) read() {
	s.Major, s.ForwardedFor = 2, s.forwardedFor[:0]
	s.ReadHead(s.conn.engine.cfg.Trust, &s.ask, &s.req.Request, s.req.Text, s)
	s.tunnels = s.req.Protocol.Len() > 0
	s.expects = s.req.ExpectsContinue() && s.hasBody && !s.tunnels
}

// decide sets the verdict. Only a panic makes it return an error.
func (s *stream) decide() (err error) {
	cfg := &s.conn.engine.cfg.Config
	defer func() {
		if p := recover(); p != nil {
			s.Verdict = admit.Verdict{}
			s.BeginUndecided(cfg)
			err = s.Panicked(p)
		}
	}()
	s.ask.Bound = s.conn.affinity.Upstream()
	cfg.Admit.Decide(&s.ask, &s.Verdict)
	s.Begin(cfg, s.Verdict.Now)
	return nil
}

// HeaderValue implements admit.Header.
func (s *stream) HeaderValue(name string) (value string, count int) {
	return proxy.HeaderValue(s.req.Fields(), s.req.Text, name)
}

// start forwards a request, in another goroutine if it needs one.
func (c *conn) start(s *stream) {
	c.work.Add(1)
	waits, err := s.tryForward()
	switch {
	case waits:
	case err != nil:
		s.conclude(err)
		c.work.Done()
	default:
		c.engine.workers.do(s)
	}
}

// run forwards the request and ends the stream.
func (s *stream) run() {
	c := s.conn
	defer c.work.Done()
	defer c.recoverIn("the end of an HTTP/2 stream")
	s.conclude(s.serve())
	c.flush()
}

// conclude ends the stream after its exchange, which failed with err unless that is nil.
func (s *stream) conclude(err error) {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	s.concludeLocked(err)
}

// concludeLocked is conclude with conn.mu held.
func (s *stream) concludeLocked(err error) {
	switch {
	case errors.Is(err, errPreflight):
		s.preflight()
	case s.finished && s.headed: // perhaps before the end of the request
		s.dropBody()
	case s.finished:
		s.free()
	default:
		s.fail(cmp.Or(err, errNoResponse))
	}
}

// serve forwards the request. A panic is the error of the gateway itself.
func (s *stream) serve() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = s.Panicked(p)
			s.abandon()
		}
	}()
	if s.stage == stageRun {
		return s.settle(s.attempt.Run(s))
	}
	if err := s.awaitCap(); err != nil {
		return err
	}
	if s.validates() {
		if err := s.validate(); err != nil {
			return err
		}
		s.ReleaseBody() // from here on proxy.Bodies alone counts it
	}
	switch s.Verdict.Action {
	case admit.Forward:
	case admit.Preflight:
		return errPreflight
	case admit.Respond:
		return s.respondByRoute()
	case admit.Serve:
		return s.serveHolder()
	default:
		return s.Verdict.Fault()
	}
	if err := s.check(); err != nil {
		return err
	}
	if exchange := s.conn.engine.exchange; exchange != nil {
		return exchange(s)
	}
	return s.forward()
}

// check returns an error for a request that must not be forwarded.
func (s *stream) check() error {
	length := int64(0)
	switch {
	case s.tunnels:
		length = -1
	case s.hasBody:
		length = s.req.ContentLength()
	}
	return s.CheckForward(s, length, proxy.Loops(s.req.Text, s.req.Fields(), s.conn.engine.cfg.Via))
}

// awaitCap repeats the decision until the count of the route's daily cap is known.
func (s *stream) awaitCap() error {
	if s.Verdict.Action != admit.Wait {
		return nil
	}
	ctx, done := s.context()
	defer done()
	admitter := s.conn.engine.cfg.Admit
	for s.Verdict.Action == admit.Wait {
		if err := admitter.Wait(ctx, &s.Verdict); err != nil {
			if ctx.Err() != nil {
				return errCut
			}
			return err
		}
		admitter.Decide(&s.ask, &s.Verdict)
	}
	s.MarkSent()
	return nil
}

// context returns a context that ends with the stream, for calls that no deadline can end.
func (s *stream) context() (ctx context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	s.cancel = cancel
	if s.why != notCut {
		cancel(s.cause())
	}
	return ctx, func() {
		c.mu.Lock()
		s.cancel = nil
		c.mu.Unlock()
		cancel(nil)
	}
}

// reset resets the stream, which ends without a whole response. c.mu is held.
func (s *stream) reset(code http2.Code) {
	s.finished = true
	s.conn.proto.Reset(s.id, code)
}

// past is a deadline in the past, which ends every pending call.
var past = time.Unix(1, 0) //nolint:gochecknoglobals // a constant; Go has none of this type
