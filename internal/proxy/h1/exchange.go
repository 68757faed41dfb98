package h1

import (
	"io"
	"syscall"
	"time"

	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/upstream"
)

const (
	// inSize is the room for a request's head, and for a small body, before more
	// is taken.
	inSize = 8 << 10
	// spliceFrom is the least rest of a body that is worth passing on without
	// looking at it. The last bytes are always received, so that the upstream's
	// connection is free before a slow client has them.
	spliceFrom = 256 << 10
	spliceKeep = http1.MaxHead
)

// exchange is one request on its way, with the room that it needs. It is kept
// for the next one, of whichever connection.
type exchange struct {
	proxy.Exchange
	c *conn

	// What was received: in[start:end] is still to be read, and begins with the
	// request, whose head's spans are of head. after is where what follows the
	// request begins.
	in         []byte
	start, end int
	after      int
	unseen     bool // something was put there that nobody has looked at
	own        [inSize]byte
	head       []byte
	known      bool      // the head was read
	hasBody    bool      // the request's body is passed on
	forwarded  [4]string // room for ForwardedFor
	parser     http1.RequestParser
	req        http1.Request

	ask admit.Request

	writer  requestWriter
	body    recoder // the request's body, on its way to the upstream
	taken   bool    // what came of the body with the head is in out, and no longer to be read
	out     []byte  // what the upstream gets first
	relay   relay
	mode    mode
	closing func() bool             // made once
	tracing func(dst []byte) []byte // made once

	// Towards the upstream.
	up         *upstream.H1Conn
	onUpstream func(fd uintptr) bool // made once
	upload     *upload
	patience   time.Duration // for the head of the answer, what it takes to connect included
	deadline   int64         // for the same, in the engine's milliseconds
	sent       bool          // the request's first part is out
	got        bool          // a byte of an answer came
	streaming  bool
	answered   bool // a byte of the final answer went to the client
	buf        *buffer
	from, to   int     // what of buf is still to be relayed
	last       relayed // the end of the answer, which is still to be sent
	err        error   // the upstream's
	clientErr  error
	splice     io.LimitedReader
}

// mode is what is to be done outside of the pump.
type mode uint8

const (
	modeUpload  mode = iota // the body of the request is still coming
	modeUpgrade             // the request may become a tunnel
	modeForeign             // the upstream is not plain HTTP/1.1
	modeDrain               // the request was refused before its body came
)

// exchange returns one for c.
func (e *Engine) exchange(c *conn) *exchange {
	x, ok := e.pools.exchanges.Get().(*exchange)
	if !ok {
		x = &exchange{}
		x.in = x.own[:]
		x.onUpstream = x.readUpstream
		x.closing = x.mustClose
		x.tracing = x.appendTraceparent
	}
	x.c = c
	return x
}

// release gives x back. Its connection keeps nothing of it.
func (e *Engine) release(x *exchange) {
	x.dropBuffer()
	x.c, x.up, x.upload, x.known = nil, nil, nil, false
	x.in = x.own[:]
	x.parser.Reset()
	x.rewind()
	e.pools.exchanges.Put(x)
}

func (x *exchange) empty() bool { return x.start == x.end }

func (x *exchange) rewind() { x.start, x.end, x.unseen = 0, 0, false }

// space is where to receive into; it is never empty.
func (x *exchange) space() []byte { return x.in[x.end:] }

// put appends what came from elsewhere.
func (x *exchange) put(b []byte) {
	for len(x.in)-x.end <= len(b) {
		x.grow()
	}
	x.end += copy(x.in[x.end:], b)
	x.unseen = true
}

// makeSpace makes sure that there is room to receive into.
func (x *exchange) makeSpace() {
	if x.start > 0 {
		x.end = copy(x.in, x.in[x.start:x.end])
		x.start = 0
	}
	if x.end == len(x.in) {
		x.grow()
	}
}

func (x *exchange) grow() {
	in := make([]byte, 2*len(x.in))
	copy(in, x.in[:x.end])
	x.in = in
}

// next goes on behind the request.
func (x *exchange) next() {
	x.start = x.after
	x.known, x.upload = false, nil
	x.parser.Reset()
}

func (x *exchange) dropBuffer() {
	if x.buf != nil {
		x.c.engine.pools.release(x.buf)
		x.buf, x.out = nil, nil
	}
}

// mustClose reports whether the connection cannot serve another request after
// this one.
func (x *exchange) mustClose() bool {
	return x.c.engine.draining.Load() || x.upload != nil && !x.upload.ending.Load()
}

// exchange sends the request in x.out, unless it is sent already, and relays the
// answer. In the pump it runs within onReadable.
func (c *conn) exchange(x *exchange) step {
	retry := !x.sent
	if retry {
		c.begin(x)
	}
	for {
		err := c.run(x)
		if err == nil {
			return c.finish(x)
		}
		if !retry || x.got || !x.up.Reused() || !c.repeatable(x) || c.main.wasCut() != notCut {
			return c.broken(x, err)
		}
		retry = false
		if next := c.reconnect(x); next != stepReady {
			return next
		}
		c.begin(x)
	}
}

// begin makes the relay ready and tells the sweeper that an answer is awaited.
func (c *conn) begin(x *exchange) {
	x.err, x.clientErr, x.got, x.streaming, x.answered = nil, nil, false, false, false
	x.last = relayed{}
	g := x.Verdict.Gateway
	r := &x.relay
	r.begin()
	r.isHead = x.ask.Method == "HEAD"
	r.oldClient, r.keep, r.trailers = x.req.Minor == 0, x.req.KeepAlive(), x.req.WantsTrailers()
	r.verdict, r.id, r.closing = &x.Verdict, x.RequestID(), x.closing
	r.date = *c.engine.clock.date.Load()
	if x.mode == modeUpgrade {
		r.asked = upgradeOf(&x.req, x.head)
	}
	c.up.Store(x.up)
	c.patience.Store(g.Upstream.Timeout.Milliseconds())
	x.deadline = c.engine.clock.in(x.patience)
	if c.main.enter(phaseExchange, x.deadline) != notCut {
		x.relay.keep = false // the connection was about to be closed
	}
}

// run reads the upstream until its answer is complete, or a tunnel begins.
func (c *conn) run(x *exchange) error {
	for {
		err := x.up.Raw().Read(x.onUpstream)
		switch {
		case x.err != nil:
			return x.err
		case x.clientErr != nil:
			return x.clientErr
		case err != nil:
			return err
		case x.relay.state != relayBody:
			return nil
		}
		if err := c.passOn(x); err != nil {
			return err
		}
	}
}

// passOn moves most of what is left of a long body from socket to socket.
func (c *conn) passOn(x *exchange) error {
	left := &x.relay.body.left
	x.splice = io.LimitedReader{R: x.up.NetConn(), N: *left - spliceKeep}
	c.writing.enter(phaseWriting, c.engine.clock.in(stallTime))
	n, err := c.tcp.ReadFrom(&x.splice)
	c.writing.enter(phaseNone, 0)
	*left -= n
	x.relay.body.moved += n
	if err != nil {
		x.clientErr = err
		return err
	}
	if x.splice.N > 0 {
		x.err = errCut
		return errCut
	}
	return nil
}

// readUpstream is called once at first, when it sends the request, and each time
// that the upstream's connection has become readable. It returns false to wait
// for the next time.
func (x *exchange) readUpstream(fd uintptr) (finished bool) {
	if !x.sent {
		x.sent = true
		n, errno := send(int(fd), x.out)
		if errno == again {
			if _, err := x.up.NetConn().Write(x.out[n:]); err != nil {
				errno = syscall.EPIPE
			} else {
				errno = 0
			}
		}
		x.dropBuffer()
		if errno == 0 {
			return false
		}
		// The upstream has closed the connection, perhaps with an answer.
		x.err = errno
	}
	for {
		if x.buf == nil {
			x.buf, x.from, x.to = x.c.engine.pools.buffer(), front, front
		}
		n, errno := receive(int(fd), x.room())
		switch {
		case errno == again:
			if x.from == x.to {
				x.dropBuffer()
			}
			return x.err != nil
		case errno != 0:
			x.err = errno
			return true
		case n == 0:
			x.endOfUpstream()
			return true
		}
		x.to += n
		x.got = true
		if x.relayAll() {
			return true
		}
	}
}

// room returns where to receive into. It is empty only if a body fills the buffer, which
// is never the case: all of it has been relayed by then.
func (x *exchange) room() []byte {
	limit := len(x.buf.data) - tailRoom
	if x.to == limit && x.from > front {
		x.to = front + copy(x.buf.data[front:], x.buf.data[x.from:x.to])
		x.from = front
	}
	if x.to == limit && x.relay.state == relayHead {
		x.buf.grow()
		limit = len(x.buf.data) - tailRoom
	}
	return x.buf.data[x.to:limit]
}

// endOfUpstream takes the end of the upstream's connection.
func (x *exchange) endOfUpstream() {
	end, err := x.relay.closed(x.to > x.from)
	if err != nil {
		if x.err == nil {
			x.err = err
		}
		return
	}
	x.err = nil
	x.last = relayed{end: end}
}

// relayAll relays what came from the upstream. It returns false if more is to be
// read of it.
func (x *exchange) relayAll() (finished bool) {
	r := &x.relay
	for {
		out, err := r.step(x.buf.data, x.from, x.to)
		switch {
		case err != nil:
			x.err = err
			return true
		case r.state == relayHead && out.next == x.from:
			return false // the head is incomplete
		}
		x.from = out.next
		if r.state != relayHead {
			x.MarkResponse(r.resp.Status)
		}
		switch r.state {
		case relayDone:
			// The upstream's connection is given back before the client, who
			// may be slow, has the rest.
			x.last = out
			x.err = nil
			return true
		case relayHead: // a 1xx
			if x.clientErr = x.pass(&out); x.clientErr != nil {
				return true
			}
			if x.from == x.to {
				x.from, x.to = front, front
				return false
			}
			continue
		}
		x.answered = true
		if x.clientErr = x.pass(&out); x.clientErr != nil || r.state == relayTunnel {
			return true
		}
		x.from, x.to = front, front
		if !x.streaming {
			x.streaming = true
			if x.c.main.enter(phaseStream, 0) != notCut {
				x.err = errCut
				return true
			}
		}
		return x.canPassOn()
	}
}

// canPassOn reports whether the rest of the body can go from socket to socket.
func (x *exchange) canPassOn() bool {
	b := &x.relay.body
	return b.in == http1.ByLength && b.left >= spliceFrom+spliceKeep && x.c.pump
}

// pass sends to the client while the request's body may still be under way.
func (x *exchange) pass(out *relayed) error {
	u := x.upload
	if u == nil {
		return x.c.deliver(out)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.settled = u.settled || x.relay.continued || x.relay.state != relayHead
	if u.invited && x.relay.state == relayHead && x.relay.resp.Status == 100 {
		return nil // the client has had one
	}
	return x.c.deliver(out)
}

// deliver sends to the client.
func (c *conn) deliver(out *relayed) error {
	if err := c.write(out.head); err != nil {
		return err
	}
	if err := c.write(out.body); err != nil {
		return err
	}
	return c.write(out.end)
}

// finish ends an exchange whose answer is complete, or which has become a
// tunnel.
func (c *conn) finish(x *exchange) step {
	if x.relay.state == relayTunnel {
		return c.tunnel(x)
	}
	uploaded := c.endUpload(x)
	why := c.main.enter(phaseIdle, c.engine.clock.in(idleTime))
	c.uses = 0
	if why == notCut && uploaded && x.relay.reusable() {
		if x.Verdict.Key != nil {
			c.uses, c.key = x.up.Uses(), x.Verdict.Key.UUID()
		}
		x.up.Release()
	} else {
		x.up.Discard()
	}
	c.hint, x.up = x.up, nil
	x.emitForwarded()
	err := c.deliver(&x.last)
	x.last = relayed{}
	x.dropBuffer()
	switch {
	case err != nil || why == cutGone:
		return stepClose
	case !uploaded || why != notCut:
		return stepLinger
	case x.relay.keep:
		return stepIdle
	case x.relay.reset || !x.req.KeepAlive() && x.after == x.end:
		return stepClose // as the client expects; it has nothing more to say
	default:
		return stepLinger
	}
}
