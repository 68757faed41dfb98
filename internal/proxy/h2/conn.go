package h2

import (
	"crypto/tls"
	"net"
	"runtime"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/http2"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/proxy/send"
	"github.com/keygate/keygate/internal/tlspump"
	"github.com/keygate/keygate/internal/upstream"
)

const (
	// readSize is how much is received at once, in bytes: a frame of the longest length that
	// is allowed, with its header.
	readSize = 16<<10 + http2.FrameHeaderLen
	// maxOut bounds the frames of a connection that wait to be sent, in bytes and without replies.
	// Beyond it, responses wait for room.
	maxOut = 80 << 10
	// idleBuffer is the size of the buffers that an idle connection keeps, in bytes.
	idleBuffer = 2 << 10
	// writePiece is the largest single write to a connection that is not pumped, in bytes.
	writePiece = 16 << 10
)

// conn is a client's connection.
type conn struct {
	engine *Engine
	nc     net.Conn
	peer   string
	client proxy.Client
	tls    *tls.Conn        // nc, or nil
	begun  []*stream        // requests to forward, until everything that was received is handled
	unsent upstream.Flusher // an upstream's connection with requests of begun to be sent, or nil

	pump       *tlspump.Pump // nil if nc is read and written with blocking calls
	onReadable func(fd uintptr) bool
	leaving    bool // the client has sent GOAWAY; used by the reader only

	bodies *proxy.ConnBodies // used with mu held

	work sync.WaitGroup // streams that are forwarded, and flushes that other goroutines will make

	mu       sync.Mutex
	proto    *http2.Conn
	streams  []*stream // those that have not ended
	room     sync.Cond // signalled after each write, and when the connection has ended
	flushing bool
	replies  bool   // a read has left something in the pump to be sent
	relayed  bool   // the reader of an upstream's connection will call Flush
	spare    []byte // memory for the output
	ended    cut    // why the connection has ended
	affinity send.Affinity
	parting  bool // the connection ends as in a drain

	times connTimes
}

func newConn(e *Engine, nc net.Conn) *conn {
	c := &conn{engine: e, nc: nc, peer: nc.RemoteAddr().String(), proto: http2.NewConn(http2.Config{ExtendedConnect: true})}
	c.room.L = &c.mu
	c.client = proxy.Client{Trusted: e.cfg.Trusted != nil && e.cfg.Trusted(nc), Shard: e.cfg.NewShard()}
	if addr, ok := nc.RemoteAddr().(*net.TCPAddr); ok {
		c.client.Peer = addr.AddrPort().Addr().Unmap().WithZone("")
	}
	c.bodies = e.bodies.Of(c.client.Peer, c.client.Trusted)
	c.tls, _ = nc.(*tls.Conn)
	c.pump, c.onReadable = tlspump.NewPump(nc), c.readable
	c.times.begin(e.clock.Now())
	return c
}

// serve runs until the connection has ended and all of its streams with it.
func (c *conn) serve() {
	defer func() { _ = c.nc.Close() }()
	defer c.affinity.Close()
	defer c.work.Wait()
	defer c.end(cutClientClosed)
	defer c.recoverIn("an HTTP/2 connection")
	if c.tls != nil && !allowedCipher(c.tls.ConnectionState()) {
		c.fail(http2.InadequateSecurity)
		return
	}
	c.flush()
	c.read()
	c.linger()
}

// fail ends the connection with a code.
func (c *conn) fail(code http2.Code) {
	c.mu.Lock()
	c.proto.GoAway(code)
	c.mu.Unlock()
	c.flush()
}

// allowedCipher reports whether HTTP/2 may use the cipher suite (RFC 9113, appendix A).
func allowedCipher(state tls.ConnectionState) bool {
	if state.Version >= tls.VersionTLS13 {
		return true
	}
	switch state.CipherSuite {
	case tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
		tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
		tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256:
		return true
	}
	return false
}

// read reads the connection to its end.
func (c *conn) read() {
	if c.pump == nil {
		c.readBlocking()
		return
	}
	_ = c.pump.Run(c.onReadable) // the sweeper has set a deadline, or the connection is closed
}

// readable is called once at the start, and then each time the connection becomes readable.
// It returns false to wait for the next time, and holds no buffer while it waits. It does not wait
// for the client to read, except in awaitRoom.
func (c *conn) readable(fd uintptr) (finished bool) {
	b := c.engine.buffer()
	defer c.engine.buffers.Put(b)
	for {
		n, more, err := c.pump.ReadNow(fd, b[:])
		if c.pump.Pending() {
			c.mu.Lock()
			c.replies = true
			c.mu.Unlock()
			if n == 0 {
				c.flushNow()
			}
		}
		switch {
		case n > 0 && !c.feed(b[:n]), err != nil:
			return true
		case !more && (n == 0 || !c.leaving):
			// The end of the connection may have arrived with these bytes and is not signalled
			// again. After GOAWAY that is common, so it is read at once; otherwise the sweeper
			// finds it.
			return false
		}
	}
}

// readBlocking is read with blocking calls. It holds no buffer between frames: it waits for one
// byte, which cannot complete a frame, and then reads the rest.
func (c *conn) readBlocking() {
	var first [1]byte
	for {
		if c.isBetween() {
			n, err := c.nc.Read(first[:])
			if n == 0 || err != nil || !c.feed(first[:n]) {
				return
			}
		}
		b := c.engine.buffer()
		n, err := c.nc.Read(b[:])
		again := n > 0 && c.feed(b[:n])
		c.engine.buffers.Put(b)
		if err != nil || !again {
			return
		}
	}
}

func (e *Engine) buffer() *[readSize]byte {
	if b, ok := e.buffers.Get().(*[readSize]byte); ok {
		return b
	}
	return new([readSize]byte)
}

// isBetween reports whether the next byte begins a frame.
func (c *conn) isBetween() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.proto.BetweenFrames()
}

// feed takes bytes of the client. It reports false if the connection must end.
func (c *conn) feed(b []byte) bool {
	again := c.take(b)
	for i, s := range c.begun {
		c.begun[i] = nil
		c.start(s)
	}
	c.begun = c.begun[:0]
	c.sendRequests(nil)
	c.flushNow()
	return again
}

// take is feed without what follows the last event.
func (c *conn) take(b []byte) bool {
	e := c.engine
	var ev http2.Event
	c.mu.Lock()
	defer c.mu.Unlock()
	c.awaitRoom()
	c.times.received(e.clock.Now())
	c.proto.Feed(e.clock.Mono(), b)
	for c.ended == notCut && c.proto.Next(&ev) {
		c.event(&ev)
		c.awaitRoom()
	}
	begun, open := c.proto.AwaitsHead()
	c.times.awaits(begun, open, e.clock.Now())
	if c.proto.Err() != nil {
		// A response could not be sent any more, and would be recorded as the upstream's failure.
		c.cutStreams(cutClientClosed)
		return false
	}
	return c.ended == notCut
}

// awaitRoom blocks the reader while the client leaves too much output unread, so that output is
// bounded. c.mu is held, and released meanwhile.
func (c *conn) awaitRoom() {
	full := func() bool {
		return (c.proto.Backlogged() || c.proto.Pending() > maxOut+http2.MaxBacklog) && c.ended == notCut
	}
	for full() {
		if c.flushOut(false); full() {
			c.room.Wait()
		}
	}
}

// event handles an event of the protocol. c.mu is held; it is released while a request is
// decided.
func (c *conn) event(ev *http2.Event) {
	s, _ := ev.Owner.(*stream)
	switch ev.Kind {
	case http2.Head:
		c.head(ev)
	case http2.Data:
		s.data(ev.Data, ev.End)
	case http2.Trailers:
		s.takeTrailers()
	case http2.Reset:
		if s != nil {
			s.cut(cutReset)
		}
	case http2.Window:
		if s != nil {
			s.wake.Broadcast()
			break
		}
		fallthrough
	case http2.SettingsChanged:
		for _, s := range c.streams {
			s.wake.Broadcast()
		}
	case http2.PingReply:
		c.times.pingReply(c)
	case http2.GoAway: // the client opens no more streams, or will read no more
		c.leaving = true
	}
}

// flush sends what waits to be sent, unless another goroutine is sending already.
func (c *conn) flush() {
	c.mu.Lock()
	c.flushOut(true)
	c.mu.Unlock()
}

// flushNow is flush for the reader, which must not wait for the client to read, because the client
// may read only after it has sent everything. Another goroutine sends what does not fit into the
// socket.
func (c *conn) flushNow() {
	c.mu.Lock()
	c.flushOut(false)
	c.mu.Unlock()
}

// flushLocked is flush with c.mu held, which it releases while it writes.
func (c *conn) flushLocked() { c.flushOut(true) }

// flushOut is flush, or flushNow if wait is false, with c.mu held.
func (c *conn) flushOut(wait bool) {
	if c.flushing || !c.mustFlush() {
		return
	}
	c.flushing = true
	if c.proto.Streams() > 0 {
		// Others that are ready append their frames first.
		c.mu.Unlock()
		runtime.Gosched()
		c.mu.Lock()
	}
	c.sendOut(wait)
}

// sendOut sends until nothing is left. The caller has set c.flushing. c.mu is held, and
// released for a while.
func (c *conn) sendOut(wait bool) {
	for c.mustFlush() {
		out := c.proto.Take(c.spare)
		c.spare, c.replies = nil, false
		c.mu.Unlock()
		all, err := c.write(out, wait)
		c.mu.Lock()
		if !all && err == nil {
			c.work.Add(1)
			go c.finishFlush(out)
			return
		}
		c.flushed(out, err)
	}
	c.flushing = false
	c.room.Broadcast()
}

// Flush implements upstream.Flusher: the reader of an upstream's connection has relayed
// responses, and has nothing more for now.
func (c *conn) Flush() {
	defer c.work.Done()
	defer c.recoverIn("a flush")
	c.mu.Lock()
	defer c.mu.Unlock()
	c.relayed = false
	if !c.flushing && c.mustFlush() {
		c.flushing = true
		c.sendOut(false)
	}
}

// mustFlush reports whether something waits to be sent. c.mu is held.
func (c *conn) mustFlush() bool {
	return (c.proto.Pending() > 0 || c.replies) && c.ended == notCut
}

// flushed ends the write of out, with its error. c.mu is held.
func (c *conn) flushed(out []byte, err error) {
	if cap(out) <= 2*maxOut {
		c.spare = out[:0]
	}
	if err != nil {
		c.endLocked(cutClientClosed)
	}
	c.room.Broadcast()
}

// finishFlush continues a flush on another goroutine, after a part of out was sent.
func (c *conn) finishFlush(out []byte) {
	defer c.work.Done()
	defer c.recoverIn("a flush")
	err := c.pump.Finish()
	c.times.writing.Store(0)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flushed(out, err)
	c.flushing = false
	c.room.Broadcast()
	c.flushOut(true)
}

// shrink frees large buffers of a connection that has become idle. c.mu is held.
func (c *conn) shrink() {
	if cap(c.spare) > idleBuffer {
		c.spare = nil
	}
	if c.proto.Pending() == 0 {
		if out := c.proto.Take(nil); cap(out) <= idleBuffer {
			c.proto.Take(out)
		}
	}
}

// write sends b, and reports whether all of it was sent. If wait is false, write does not block,
// and the caller sends the rest with pump.Finish. Only the flusher calls write.
func (c *conn) write(b []byte, wait bool) (all bool, err error) {
	c.times.writing.Store(c.engine.clock.Now())
	if c.pump == nil {
		err = c.writeBlocking(b)
		all = err == nil
	} else if all, err = c.pump.Write(b); !all && err == nil && wait {
		err = c.pump.Finish()
		all = err == nil
	}
	if all {
		c.times.writing.Store(0)
	}
	return all, err
}

// writeBlocking sends b in pieces with blocking calls.
func (c *conn) writeBlocking(b []byte) error {
	for len(b) > 0 {
		piece := b[:min(len(b), writePiece)]
		c.times.writing.Store(c.engine.clock.Now())
		if _, err := c.nc.Write(piece); err != nil {
			return err
		}
		b = b[len(piece):]
	}
	return nil
}

// end ends the connection and cuts off all of its streams.
func (c *conn) end(why cut) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endLocked(why)
}

func (c *conn) endLocked(why cut) {
	if c.ended == notCut {
		c.ended = why
	}
	c.cutStreams(why)
	c.room.Broadcast()
	_ = c.nc.SetDeadline(past)
}

// cutStreams cuts off all streams. c.mu is held.
func (c *conn) cutStreams(why cut) {
	for i := len(c.streams) - 1; i >= 0; i-- { // cut may remove the stream
		c.streams[i].cut(why)
	}
}

// linger lets the client, if it is still there, read what was sent last: closing a connection with
// unread bytes would reset it.
func (c *conn) linger() {
	c.mu.Lock()
	c.cutStreams(cutClientClosed)
	c.mu.Unlock()
	c.work.Wait()
	c.flush()
	c.mu.Lock()
	for c.flushing && c.ended == notCut {
		c.room.Wait()
	}
	failed := c.proto.Err() != nil && c.ended == notCut
	c.mu.Unlock()
	half, ok := c.nc.(interface{ CloseWrite() error })
	if !failed || !ok || half.CloseWrite() != nil {
		return
	}
	b, began := c.engine.buffer(), time.Now()
	defer c.engine.buffers.Put(b)
	c.engine.cfg.Linger.Discard(b[:], func(b []byte) (int, error) {
		c.mu.Lock()
		ended := c.ended != notCut // by the shutdown
		if !ended {
			_ = c.nc.SetReadDeadline(proxy.LingerUntil(began)) // a failure shows at once
		}
		c.mu.Unlock()
		if ended {
			return 0, errCut
		}
		return c.nc.Read(b)
	})
}
