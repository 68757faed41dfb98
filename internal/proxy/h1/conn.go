package h1

import (
	"context"
	"crypto/tls"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/nowait"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/proxy/message"
	"github.com/keygate/keygate/internal/proxy/send"
	"github.com/keygate/keygate/internal/tlspump"
	"github.com/keygate/keygate/internal/upstream"
)

// step is the next action of a connection.
type step uint8

const (
	stepIdle   step = iota // wait for a request, unless one was received already
	stepMore               // receive more of a head
	stepBlock              // continue with ordinary calls (blocking.go)
	stepLinger             // close once the client has read what was sent
	stepClose              // close
	stepReady              // continue with the request
)

// conn is a client's connection. It belongs to the goroutine that serves it. The sweeper uses its
// atomic fields, and other fields only while it holds the phase (phaseClock.hold).
type conn struct {
	engine *Engine
	nc     net.Conn
	tcp    *net.TCPConn // nc, or the TCP connection beneath it; nil if there is none
	raw    syscall.RawConn
	info   ConnInfo

	pump       bool                  // raw is read by onReadable
	plain      bool                  // pump, and tcp is nc
	over       *tlspump.Pump         // if pump is set and nc is a *tls.Conn; else nil
	onReadable func(fd uintptr) bool // readable, made once
	fd         int                   // the descriptor within onReadable, else -1
	cutOff     bool                  // close without the alert that ends a TLS connection properly
	step       step                  // the result of onReadable

	client proxy.Client
	x      *exchange // nil while nothing was received

	affinity send.Affinity

	phase         phaseClock
	reading       phaseClock   // of the client's body
	writing       phaseClock   // to the client
	uploadTimeout atomic.Int64 // ms without progress after which an upload times out, before the response
	uploading     atomic.Bool  // the request's body is being forwarded
	upstream      atomic.Pointer[upstream.H1Conn]
	cancel        atomic.Pointer[context.CancelCauseFunc]
	callMu        sync.Mutex
	call          *send.H2Try // of the exchange, while the sweeper may interrupt it
	sweeper       sweeper
	denied        accesslog.Result               // set by the sweeper ahead of cutAccess
	tunneled      *admit.Admission               // of the tunnel, set ahead of phaseTunnel; then the sweeper's
	detached      atomic.Pointer[proxy.Detached] // the tunnel, once it has begun

	shard *registryShard
	index int
}

func newConn(e *Engine, nc net.Conn, info ConnInfo) *conn {
	c := &conn{engine: e, nc: nc, info: info, fd: -1}
	c.info.Prefix = nil
	c.info.Client = unmapped(info.Client)
	c.client = proxy.Client{Peer: c.info.Client.Addr(), Trusted: info.Trusted, Shard: e.cfg.NewShard()}
	c.tcp = proxy.TCPOf(nc)
	if c.tcp != nil {
		if raw, err := c.tcp.SyscallConn(); err == nil {
			c.raw = raw
		}
	}
	c.plain = nowait.Works && c.raw != nil && net.Conn(c.tcp) == nc
	if _, ok := nc.(*tls.Conn); ok {
		c.over = tlspump.NewPump(nc)
	}
	c.pump = c.plain || c.over != nil
	c.onReadable = c.readable
	// A client that sends nothing at first gets no more time than a client that stops within a
	// head.
	c.phase.enter(phaseNew, e.clock.In(headTime))
	return c
}

// serve runs until the connection has ended.
func (c *conn) serve(prefix []byte) {
	defer c.recover()
	if len(prefix) > 0 {
		c.x = c.engine.exchange(c)
		c.x.add(prefix)
	}
	for {
		var next step
		if c.pump {
			next = c.runPump()
		} else {
			next = c.runReader()
		}
		if next == stepBlock {
			next = c.block(c.x)
		}
		switch next {
		case stepLinger:
			c.linger()
			return
		case stepClose:
			return
		}
		if c.drains() {
			c.linger()
			return
		}
	}
}

// drains reports whether the connection ends now, between two requests, because of a shutdown. A connection that
// waits for its first request gets proxy.FirstRequestGrace for it; the sweeper ends this time.
func (c *conn) drains() bool {
	return c.engine.drain.Begun() && phaseOf(c.phase.word.Load()) != phaseNew
}

// recover ends this connection after a panic. Other connections go on.
func (c *conn) recover() {
	if p := recover(); p != nil {
		c.panicked(p)
	}
}

func (c *conn) panicked(p any) {
	c.phase.enter(phaseNone, 0)
	x := c.x
	c.x, c.fd = nil, -1 // not used again, since its state is unknown
	if x == nil {
		c.engine.cfg.Log.Error("connection panicked", "panic", p, "stack", string(debug.Stack()))
		return
	}
	if !x.Begun() {
		x.Verdict, x.Client = admit.Verdict{}, c.client
		x.BeginUndecided(&c.engine.cfg.Config)
	}
	c.endPanicked(x, x.Panicked(p))
}

// endPanicked responds to a request that panicked, or breaks off its response if that has
// started.
func (c *conn) endPanicked(x *exchange, err error) {
	defer c.engine.recoverIn("the end of a connection")
	defer x.ReleaseBody()
	if x.attempt.Open() {
		c.endUpload(x)
		c.dropCall(x)
	}
	_ = x.attempt.Fail(nil)
	if x.responded || x.Ended() {
		x.Emit(x.endOf(accesslog.Failed, x.attempt.Status(), x.attempt.Moved()))
		c.abort(x.response.reset)
		return
	}
	x.Verdict.Close = true
	if c.refuse(x, err) == stepLinger {
		c.linger()
	}
}

// control calls f with the client's descriptor. It reports false if there is none.
func (c *conn) control(f func(fd uintptr) bool) (result bool) {
	if c.raw == nil {
		return false
	}
	if err := c.raw.Control(func(fd uintptr) { result = f(fd) }); err != nil {
		return true // closed
	}
	return result
}

// cutReading ends a phase in which the connection waits for the client.
func (c *conn) cutReading(word uint64, why cut) {
	if c.phase.end(word, why) {
		_ = c.nc.SetReadDeadline(past)
	}
}

// cutExchange ends a phase in which the connection waits for the upstream. Only the sweeper calls
// it, and holds the phase meanwhile, so that it never ends the next exchange, which may begin after
// a 504.
func (c *conn) cutExchange(word uint64, why cut) {
	if c.phase.hold(word) {
		c.cutNow(word|held, why)
		c.phase.unhold()
	}
}

// cutNow is cutExchange without holding the phase, for a connection that serves no other
// request.
func (c *conn) cutNow(word uint64, why cut) {
	if !c.phase.end(word, why) {
		return
	}
	if up := c.upstream.Load(); up != nil {
		up.Interrupt()
	}
	c.interruptCall()
	if cancel := c.cancel.Load(); cancel != nil {
		(*cancel)(c.causeOf(why))
	}
}

// deny ends a phase of an exchange, or a tunnel, whose request may not go on. Only the sweeper
// calls it, and holds the phase of an exchange. If the response has begun, it is broken off, even
// if the client does not read; otherwise the client gets the refusal.
func (c *conn) deny(word uint64, result accesslog.Result) {
	c.denied = result
	c.cutNow(word, cutAccess)
	switch phaseOf(word) {
	case phaseStream, phaseTunnel:
		_ = c.nc.SetDeadline(past)
	}
}

// cutAll ends the connection in any phase.
func (c *conn) cutAll() {
	word := c.phase.word.Load()
	switch phaseOf(word) {
	case phaseWait, phaseExchange, phaseStream, phaseTunnel:
		c.cutNow(word, cutShutdown)
	default: // c.upstream may already serve another connection
		c.phase.end(word, cutShutdown)
	}
	_ = c.nc.SetDeadline(past)
}

// write sends b to the client, and blocks if necessary.
func (c *conn) write(b []byte) error {
	switch {
	case len(b) == 0:
		return nil
	case c.over != nil:
		return c.writeOver(b)
	case c.fd >= 0:
		n, errno := nowait.Send(c.fd, b)
		switch {
		case errno == 0:
			return nil
		case errno != nowait.Again:
			return errno
		}
		b = b[n:]
	}
	c.writing.enter(phaseWriting, c.engine.clock.In(stallTime))
	_, err := c.nc.Write(b)
	c.writing.enter(phaseNone, 0)
	return err
}

// writeOver is write for a pumped connection over TLS. It also sends bytes that a read has left to
// be sent, even if b is empty.
func (c *conn) writeOver(b []byte) error {
	all, err := c.over.Write(b)
	if all || err != nil {
		return err
	}
	c.writing.enter(phaseWriting, c.engine.clock.In(stallTime))
	err = c.over.Finish()
	c.writing.enter(phaseNone, 0)
	return err
}

// linger closes the connection in stages (proxy.Linger).
func (c *conn) linger() {
	half, ok := c.nc.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	b := c.engine.buffers.Get()
	defer c.engine.buffers.Put(b)
	end := c.engine.clock.In(proxy.LingerTime)
	c.engine.cfg.Linger.Discard(b.Data, func(b []byte) (int, error) {
		if !c.discards(end) {
			return 0, message.ErrTruncated
		}
		return c.nc.Read(b)
	})
}

// discards starts waiting for more bytes to discard, at the latest until end, a time in the engine's
// milliseconds. It reports false if discarding is over.
func (c *conn) discards(end int64) bool {
	return c.phase.enter(phaseDrain, min(c.engine.clock.In(proxy.LingerSilence), end)) == notCut
}

// abort closes the connection so that the client does not take a truncated message for a
// complete one. reset is set if only a reset shows the difference.
func (c *conn) abort(reset bool) step {
	if reset && c.tcp != nil {
		_ = c.tcp.SetLinger(0)
		c.cutOff = true // for closeAll: the pump still reads the connection here
	}
	return stepClose
}

// context returns a context that ends when the sweeper ends the exchange, for calls that no
// deadline can end. In a shutdown its cause is proxy.ErrCut.
func (c *conn) context() (ctx context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	c.cancel.Store(&cancel)
	if why := c.phase.wasCut(); why != notCut {
		cancel(c.causeOf(why))
	}
	return ctx, func() {
		c.cancel.Store(nil)
		cancel(nil)
	}
}

// causeOf returns the cause for ending a context.
func (c *conn) causeOf(why cut) error {
	switch why {
	case cutShutdown:
		return proxy.ErrCut
	case cutAccess:
		return &proxy.AccessError{Result: c.denied}
	}
	return nil
}

// setCall lets the sweeper interrupt a call. With nil the sweeper can interrupt none, and setCall waits if it
// is just doing so.
func (c *conn) setCall(call *send.H2Try) {
	c.callMu.Lock()
	defer c.callMu.Unlock()
	c.call = call
}

// dropCall ends what setCall has begun for a call of x.
func (c *conn) dropCall(x *exchange) {
	if x.attempt.Multiplexed() {
		c.setCall(nil)
	}
}

// interruptCall ends what the call waits for, if there is one.
func (c *conn) interruptCall() {
	c.callMu.Lock()
	defer c.callMu.Unlock()
	if c.call != nil {
		c.call.Interrupt()
	}
}

// restCall lets the call give up memory, if there is one.
func (c *conn) restCall() {
	c.callMu.Lock()
	defer c.callMu.Unlock()
	if c.call != nil {
		c.call.Rest()
	}
}

// closeAll closes the connection and releases its exchange.
func (c *conn) closeAll() {
	if c.cutOff {
		_ = c.tcp.Close()
	}
	_ = c.nc.Close()
	c.affinity.Close()
	if c.x != nil {
		if c.x.known {
			c.x.emitNoResponse(c.phase.enter(phaseNone, 0))
		}
		c.engine.release(c.x)
		c.x = nil
	}
}
