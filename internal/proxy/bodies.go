package proxy

import (
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/keygate/keygate/internal/fault"
)

// The bounds of Bodies, in bytes.
const (
	// MaxBodies bounds the request bodies held in total, and MaxBodiesOfAddress those held for one client
	// address, or one /64 network of IPv6.
	MaxBodies          = 256 << 20
	MaxBodiesOfAddress = 64 << 20
	// freeBodies is how much an address may hold even if MaxBodies is reached, so that other
	// addresses cannot keep it from sending a request.
	freeBodies = 64 << 10
)

// Bodies bounds the memory for request bodies that have arrived and wait to be forwarded, because the upstream
// has no free connection or reads slowly. The zero value is ready for use. It is safe for concurrent use.
type Bodies struct {
	all atomic.Int64

	mu sync.Mutex
	of map[netip.Addr]*addressBodies
}

// addressBodies counts the bytes held for one address.
type addressBodies struct {
	key   netip.Addr
	held  atomic.Int64
	conns int // connections of the address; guarded by Bodies.mu
}

// ConnBodies counts the bytes held for one connection. Its methods must not be called concurrently.
type ConnBodies struct {
	bodies *Bodies
	of     *addressBodies // nil for a trusted proxy, which has no bound of its own
	held   int64
}

// Of returns the counter for a new connection of a client or a trusted proxy. The caller must call Done when
// the connection ends.
func (b *Bodies) Of(client netip.Addr, trusted bool) *ConnBodies {
	if trusted {
		return &ConnBodies{bodies: b}
	}
	if client = client.Unmap().WithZone(""); client.Is6() {
		p, _ := client.Prefix(64) // it fails only for lengths above 128
		client = p.Addr()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.of[client]
	if a == nil {
		if b.of == nil {
			b.of = map[netip.Addr]*addressBodies{}
		}
		a = &addressBodies{key: client}
		b.of[client] = a
	}
	a.conns++
	return &ConnBodies{bodies: b, of: a}
}

// Done gives back all bytes that the connection holds.
func (c *ConnBodies) Done() {
	c.Give(int(c.held))
	if c.of == nil {
		return
	}
	c.bodies.mu.Lock()
	defer c.bodies.mu.Unlock()
	if c.of.conns--; c.of.conns == 0 {
		delete(c.bodies.of, c.of.key)
	}
}

// Take adds n bytes. If that would exceed a bound, it adds none and reports false.
func (c *ConnBodies) Take(n int) bool {
	all, ofAddress := c.bodies.all.Add(int64(n)), int64(MaxBodiesOfAddress)
	if c.of != nil {
		ofAddress = c.of.held.Add(int64(n))
	}
	c.held += int64(n)
	if ofAddress > MaxBodiesOfAddress || all > MaxBodies && ofAddress > freeBodies {
		c.Give(n)
		return false
	}
	return true
}

// Give gives back n bytes.
func (c *ConnBodies) Give(n int) {
	c.held -= int64(n)
	c.bodies.all.Add(-int64(n))
	if c.of != nil {
		c.of.held.Add(-int64(n))
	}
}

// TooManyBodies returns the 503 for a request whose body exceeds the bounds.
func TooManyBodies() *fault.Error {
	return fault.New(fault.Unavailable, "too many bytes of request bodies are waiting to be forwarded; try again")
}
