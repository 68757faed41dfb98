package h1

import (
	"sync"

	"github.com/keygate/keygate/internal/http1"
)

// The parts of a buffer. Data is received after the front part, so that a growing head or
// the size of a chunk has room before the data, and the end of a chunk after it.
const (
	front      = 2 << 10
	tailRoom   = 256
	bufferSize = front + http1.MaxHead + tailRoom
)

// buffer holds a message in transit. A connection has one only while there is data in it.
type buffer struct {
	data []byte // own, or a larger slice for a long response head
	own  [bufferSize]byte
}

// area returns the part to receive into.
func (b *buffer) area() []byte { return b.data[front : len(b.data)-tailRoom] }

// grow makes room for the longest head of a response. It keeps the received bytes.
func (b *buffer) grow() {
	data := make([]byte, front+http1.MaxResponseHead+tailRoom)
	copy(data, b.data)
	b.data = data
}

// pools are the engine's caches.
type pools struct {
	buffers   sync.Pool // of *buffer
	exchanges sync.Pool // of *exchange
}

func (p *pools) buffer() *buffer {
	if b, ok := p.buffers.Get().(*buffer); ok {
		return b
	}
	return newBuffer()
}

func newBuffer() *buffer {
	b := new(buffer)
	b.data = b.own[:]
	return b
}

// release returns a buffer to the pool. It drops a slice larger than its own.
func (p *pools) release(b *buffer) {
	b.data = b.own[:]
	p.buffers.Put(b)
}
