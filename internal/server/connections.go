package server

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/edge"
	"github.com/keygate/keygate/internal/nowait"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/service"
)

// connSlots bounds the connections of a listener outside the data plane, such as the listener of
// the management API. A connection has a slot from Accept to Close, and is busy while a request of
// it is being handled. If all slots are taken, a new connection replaces the one that has been idle
// for longest, of the address with the most idle connections, so that idle connections never keep a
// request out. If no connection is idle, the new one is closed. At most three quarters of the slots
// can be busy for one address.
//
// A connection that is closed while its client still sends is closed in stages (proxy.Linger). It keeps its
// slot meanwhile, and counts as idle.
//
// It is safe for concurrent use.
type connSlots struct {
	max, perAddress int
	name            string
	linger          *proxy.Linger
	log             *slog.Logger
	lingering       service.Group

	mu   sync.Mutex
	open map[*slotConn]struct{}
	busy map[edge.Block]int // connections of each address, without zeros

	warned time.Time // when warn last wrote a line
}

// newConnSlots returns the given number of slots for the listener that is called name in the log. A
// nil log discards messages.
func newConnSlots(slots int, name string, linger *proxy.Linger, log *slog.Logger) *connSlots {
	log = cmp.Or(log, slog.New(slog.DiscardHandler))
	return &connSlots{max: slots, perAddress: max(1, slots-slots/4), name: name, linger: linger, log: log, open: map[*slotConn]struct{}{}, busy: map[edge.Block]int{}}
}

// Listener returns l with its connections bounded.
func (p *connSlots) Listener(l net.Listener) net.Listener { return &slotListener{l, p} }

// slotKey is the key of a connection in the context of its requests.
type slotKey struct{}

// ConnContext is the http.Server.ConnContext that Handler needs.
func (*connSlots) ConnContext(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok { // TLS
		c = t.NetConn()
	}
	return context.WithValue(ctx, slotKey{}, c)
}

// Stop waits for connections that are being closed in stages. When ctx ends, it closes them.
func (p *connSlots) Stop(ctx context.Context) {
	if p.lingering.Stop(ctx) != nil {
		_ = p.lingering.Stop(context.WithoutCancel(ctx)) // they are closed
	}
}

// Handler returns h with connections counted as busy while h runs. Beyond the bound of one
// address the connection is closed without a response.
func (p *connSlots) Handler(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, ok := r.Context().Value(slotKey{}).(*slotConn)
		if !ok {
			h.ServeHTTP(w, r)
			return
		}
		if !p.begin(c) {
			p.warn("too many requests from one address at once: closing a connection", "connections", p.perAddress)
			panic(http.ErrAbortHandler)
		}
		body := &watchedBody{ReadCloser: r.Body}
		if r.ProtoMajor == 1 {
			r.Body = body
		}
		defer func() { p.end(c, r.ProtoMajor == 1 && r.ContentLength != 0 && !body.ended) }()
		h.ServeHTTP(w, r)
	})
}

func (p *connSlots) begin(c *slotConn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.requests == 0 {
		if p.busy[c.block] >= p.perAddress {
			return false
		}
		p.busy[c.block]++
	}
	c.requests++
	c.unread = false
	return true
}

// end ends what begin began. unread is set if a part of the request's body was not read.
func (p *connSlots) end(c *slotConn, unread bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.unread = unread
	if c.requests--; c.requests > 0 {
		return
	}
	c.since = time.Now()
	if p.busy[c.block]--; p.busy[c.block] == 0 {
		delete(p.busy, c.block)
	}
}

// warnInterval is the least time between two lines that warn writes, since any connection could
// cause them.
const warnInterval = 10 * time.Second

func (p *connSlots) warn(message string, args ...any) {
	p.mu.Lock()
	now := time.Now()
	due := now.Sub(p.warned) >= warnInterval
	if due {
		p.warned = now
	}
	p.mu.Unlock()
	if due {
		p.log.Warn(message, append(args, "listener", p.name)...)
	}
}

// add gives c a slot, and returns the connection to close for it: nil, another, or c itself.
func (p *connSlots) add(c *slotConn) (out *slotConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.open) >= p.max {
		if out = p.longestIdle(); out == nil {
			return c
		}
		delete(p.open, out)
	}
	p.open[c] = struct{}{}
	return out
}

// longestIdle returns the connection that has been idle for longest, of the address with the most
// idle connections, or nil if none is idle.
func (p *connSlots) longestIdle() *slotConn {
	idle := map[edge.Block]int{}
	for c := range p.open {
		if c.requests == 0 {
			idle[c.block]++
		}
	}
	var found *slotConn
	for c := range p.open {
		if c.requests > 0 {
			continue
		}
		if found == nil || idle[c.block] > idle[found.block] || idle[c.block] == idle[found.block] && c.since.Before(found.since) {
			found = c
		}
	}
	return found
}

func (p *connSlots) remove(c *slotConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
}

// slotConn is a connection that has a slot.
type slotConn struct {
	net.Conn
	slots *connSlots
	block edge.Block

	requests int       // being handled; guarded by connSlots.mu, as is since
	since    time.Time // when it became idle
	unread   bool      // the body of the last request was not read to its end
}

// Close closes the connection and frees its slot, in the background if its client still sends.
func (c *slotConn) Close() error {
	if c.stillSends() && c.CloseWrite() == nil && c.slots.lingering.Go(c.close) {
		return nil
	}
	err := c.Conn.Close()
	c.slots.remove(c)
	return err
}

// CloseWrite closes the sending side.
func (c *slotConn) CloseWrite() error {
	tcp, ok := c.Conn.(*net.TCPConn)
	if !ok {
		return errors.ErrUnsupported
	}
	return tcp.CloseWrite()
}

// stillSends reports whether bytes from the client are unread or still to come.
func (c *slotConn) stillSends() bool {
	c.slots.mu.Lock()
	unread := c.unread
	c.slots.mu.Unlock()
	tcp, ok := c.Conn.(*net.TCPConn)
	if unread || !ok {
		return unread
	}
	if raw, err := tcp.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { // it fails if the connection is closed already
			var b [1]byte
			n, errno := nowait.Peek(int(fd), b[:])
			unread = n > 0 && errno == 0
		})
	}
	return unread
}

// close ends a connection whose sending side is closed: when its client closes too, or after a while.
func (c *slotConn) close(context.Context) {
	defer c.slots.remove(c)
	defer func() { _ = c.Conn.Close() }()
	defer context.AfterFunc(c.slots.lingering.Grace(), func() { _ = c.Conn.Close() })()
	c.slots.linger.DiscardFrom(c.Conn)
}

// watchedBody is the body of a request. It notes whether it was read to its end.
type watchedBody struct {
	io.ReadCloser
	ended bool
}

// Read implements io.Reader.
func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.ended = b.ended || errors.Is(err, io.EOF)
	return n, err
}

type slotListener struct {
	net.Listener
	slots *connSlots
}

// Accept returns the next connection that has a slot.
func (l *slotListener) Accept() (net.Conn, error) {
	for {
		nc, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		tcp, _ := nc.RemoteAddr().(*net.TCPAddr) // nil has an address as well: none
		c := &slotConn{Conn: nc, slots: l.slots, block: edge.BlockOf(tcp.AddrPort().Addr()), since: time.Now()}
		out := l.slots.add(c)
		if out != nil {
			_ = out.Conn.Close()
		}
		if out == c {
			l.slots.warn("too many requests at once: new connections are closed", "connections", l.slots.max)
			continue
		}
		return c, nil
	}
}
