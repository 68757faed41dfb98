package proxy

import (
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/keygate/keygate/internal/fault"
)

// The bounds of Bodies.
const (
	// MaxBodies bounds the bytes of requests held in total, and MaxBodiesOfAddress those held for one client
	// address, or one /64 network of IPv6.
	MaxBodies          = 256 << 20
	MaxBodiesOfAddress = 64 << 20
	// freeBodies is how much an address may hold even if MaxBodies is reached, so that other
	// addresses cannot keep it from sending a request.
	freeBodies = 64 << 10
	// MaxStreams bounds the requests over HTTP/2 in flight in total, of which each takes some 20 KiB, and
	// MaxStreamsOfAddress and freeStreams are for their number what the other bounds are for bytes.
	MaxStreams          = 128 << 10
	MaxStreamsOfAddress = 8 << 10
	freeStreams         = 4
	// MaxResponses bounds the memory in total for responses that clients over HTTP/2 do not take, in bytes, and
	// MaxResponsesOfAddress and freeResponses are for it what the first bounds are for requests.
	MaxResponses          = 2 << 30
	MaxResponsesOfAddress = 512 << 20
	freeResponses         = 256 << 10
	// FreeHead is the longest head of a request, in bytes, that is not counted.
	FreeHead = 4 << 10
)

// Bodies bounds the memory for requests over HTTP/2 that have arrived and wait, because the upstream has no free connection,
// reads slowly or responds late: their bodies, their long heads, and their number. A client needs few bytes to send very many
// of them, since HPACK compresses heads that are alike. It also bounds the memory for responses that their clients do not take,
// which cost a client nothing. The zero value is ready for use. It is safe for concurrent use.
type Bodies struct {
	all       atomic.Int64
	streams   atomic.Int64
	responses atomic.Int64

	mu sync.Mutex
	of map[netip.Addr]*addressBodies
}

// addressBodies counts the bytes held for one address, and its requests.
type addressBodies struct {
	key       netip.Addr
	held      atomic.Int64
	streams   atomic.Int64
	responses atomic.Int64
	conns     int // connections of the address; guarded by Bodies.mu
}

// ConnBodies counts the bytes held for one connection, and its requests. Its methods must not be called concurrently.
type ConnBodies struct {
	bodies    *Bodies
	of        *addressBodies // nil for a trusted proxy, which has no bound of its own
	held      int64
	streams   int64
	responses int64
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

// Done gives back all that the connection holds.
func (c *ConnBodies) Done() {
	c.Give(int(c.held))
	c.addStreams(-c.streams)
	c.GiveResponse(int(c.responses))
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

// TakeResponse adds n bytes of a response that the client does not take. If that would exceed a bound, it adds none and
// reports false.
func (c *ConnBodies) TakeResponse(n int) bool {
	all, ofAddress := c.bodies.responses.Add(int64(n)), int64(MaxResponsesOfAddress)
	if c.of != nil {
		ofAddress = c.of.responses.Add(int64(n))
	}
	c.responses += int64(n)
	if ofAddress > MaxResponsesOfAddress || all > MaxResponses && ofAddress > freeResponses {
		c.GiveResponse(n)
		return false
	}
	return true
}

// GiveResponse gives back n bytes of a response.
func (c *ConnBodies) GiveResponse(n int) {
	c.responses -= int64(n)
	c.bodies.responses.Add(-int64(n))
	if c.of != nil {
		c.of.responses.Add(-int64(n))
	}
}

// Open adds a request and the bytes of its head. If that would exceed a bound, it adds nothing and reports false.
func (c *ConnBodies) Open(head int) bool {
	all, ofAddress := c.addStreams(1)
	if ofAddress > MaxStreamsOfAddress || all > MaxStreams && ofAddress > freeStreams || head > 0 && !c.Take(head) {
		c.addStreams(-1)
		return false
	}
	return true
}

// Close gives back what Open has added.
func (c *ConnBodies) Close(head int) {
	c.addStreams(-1)
	if head > 0 {
		c.Give(head)
	}
}

// addStreams adds n requests. ofAddress is 0 for a trusted proxy that has no more than all may have.
func (c *ConnBodies) addStreams(n int64) (all, ofAddress int64) {
	c.streams += n
	all = c.bodies.streams.Add(n)
	switch {
	case c.of != nil:
		ofAddress = c.of.streams.Add(n)
	case all > MaxStreams:
		ofAddress = MaxStreamsOfAddress
	}
	return all, ofAddress
}

// TooManyBodies returns the 503 for a request that exceeds the bounds.
func TooManyBodies() *fault.Error {
	return fault.New(fault.Unavailable, "too many requests, or too many bytes of them, are waiting to be forwarded; try again")
}
