package h1

import (
	"sync"

	"github.com/keygate/keygate/internal/http1"
)

// The parts of a buffer. Data is received behind the front, so that a head that grows, or
// the size of a chunk, finds room before it, and the end of a chunk behind it.
const (
	front      = 2 << 10
	tailRoom   = 256
	bufferSize = front + http1.MaxHead + tailRoom
)

// buffer holds a message on its way. It is held only while there is something in it.
type buffer struct {
	data []byte // own, or more for the head of a response that needs it
	own  [bufferSize]byte
}

// area returns the part to receive into.
func (b *buffer) area() []byte { return b.data[front : len(b.data)-tailRoom] }

// grow makes room for the longest head of a response. What was received stays.
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

// release takes a buffer back. Room beyond its own is given up.
func (p *pools) release(b *buffer) {
	b.data = b.own[:]
	p.buffers.Put(b)
}
