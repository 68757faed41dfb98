package h2

import (
	"crypto/tls"
	"net"
	"runtime"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/http2"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/proxy/h1"
	"github.com/keygate/keygate/internal/upstream"
)

const (
	// readSize is how much is received at once, in bytes: a frame of the longest length that
	// is allowed, with its header.
	readSize = 16<<10 + http2.FrameHeaderLen
	// maxOut bounds the frames of a connection that wait to be sent, in bytes, replies aside:
	// responses wait for room beyond it.
	maxOut = 80 << 10
	// idleBuffer is the size of the buffers that an idle connection keeps, in bytes.
	idleBuffer = 2 << 10
	// writePiece is the largest single write, in bytes.
	writePiece = 16 << 10
)

// conn is a client's connection.
type conn struct {
	engine *Engine
	nc     net.Conn
	peer   string
	client proxy.Client
	tls    *tls.Conn // nc, or nil
	begun  []*stream // requests to forward, until everything that was received is handled

	work sync.WaitGroup // goroutines of streams

	mu       sync.Mutex
	proto    *http2.Conn
	streams  []*stream // those that have not ended
	room     sync.Cond // signalled after each write, and when the connection has ended
	flushing bool
	spare    []byte // memory for the output
	ended    cut    // why the connection has ended
	origin   h1.Origin
	hint     *upstream.H1Conn // the last connection to an upstream

	times connTimes
}

func newConn(e *Engine, nc net.Conn) *conn {
	c := &conn{engine: e, nc: nc, peer: nc.RemoteAddr().String(), proto: http2.NewConn(http2.Config{})}
	c.room.L = &c.mu
	c.client = proxy.Client{Trusted: e.cfg.Trusted != nil && e.cfg.Trusted(nc), Shard: e.cfg.NewShard()}
	if addr, ok := nc.RemoteAddr().(*net.TCPAddr); ok {
		c.client.Peer = addr.AddrPort().Addr().Unmap().WithZone("")
	}
	c.tls, _ = nc.(*tls.Conn)
	c.times.begin(e.clock.Now())
	return c
}

// serve runs until the connection has ended and all of its streams with it.
func (c *conn) serve() {
	defer func() { _ = c.nc.Close() }()
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

// read reads the connection to its end. Between frames it holds no buffer: it reads one byte,
// which completes nothing, and then the rest.
func (c *conn) read() {
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
	c.flush()
	return again
}

// take is feed without what follows the last event.
func (c *conn) take(b []byte) bool {
	e := c.engine
	var ev http2.Event
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.proto.Backlogged() && c.ended == notCut {
		c.flushLocked()
		if c.proto.Backlogged() && c.ended == notCut {
			c.room.Wait()
		}
	}
	c.times.received(e.clock.Now())
	c.proto.Feed(e.clock.Mono(), b)
	for c.ended == notCut && c.proto.Next(&ev) {
		c.event(&ev)
	}
	begun, open := c.proto.AwaitsHead()
	c.times.awaits(begun, open, e.clock.Now())
	return c.proto.Err() == nil && c.ended == notCut
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
	}
}

// flush sends what waits to be sent, unless another goroutine is doing so.
func (c *conn) flush() {
	c.mu.Lock()
	c.flushLocked()
	c.mu.Unlock()
}

// flushLocked is flush with c.mu held, which it releases while it writes.
func (c *conn) flushLocked() {
	if c.flushing || c.proto.Pending() == 0 || c.ended != notCut {
		return
	}
	c.flushing = true
	if c.proto.Streams() > 0 {
		// Others that are ready append their frames first.
		c.mu.Unlock()
		runtime.Gosched()
		c.mu.Lock()
	}
	for c.proto.Pending() > 0 && c.ended == notCut {
		out := c.proto.Take(c.spare)
		c.spare = nil
		c.mu.Unlock()
		err := c.write(out)
		c.mu.Lock()
		if cap(out) <= 2*maxOut {
			c.spare = out[:0]
		}
		if err != nil {
			c.endLocked(cutClientClosed)
		}
		c.room.Broadcast()
	}
	c.flushing = false
	c.room.Broadcast()
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

// write sends b in pieces. Only the flusher calls it.
func (c *conn) write(b []byte) error {
	for len(b) > 0 {
		piece := b[:min(len(b), writePiece)]
		c.times.writing.Store(c.engine.clock.Now())
		if _, err := c.nc.Write(piece); err != nil {
			return err
		}
		b = b[len(piece):]
	}
	c.times.writing.Store(0)
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

// linger lets the client read what was sent last, if it is still there: closing a connection
// with unread bytes would reset it.
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
	if !failed || !ok || c.nc.SetDeadline(time.Now().Add(lingerTime)) != nil || half.CloseWrite() != nil {
		return
	}
	b := c.engine.buffer()
	defer c.engine.buffers.Put(b)
	for total := 0; total < lingerBytes; {
		n, err := c.nc.Read(b[:])
		if err != nil {
			return
		}
		total += n
	}
}
