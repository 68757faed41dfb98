package h1

import (
	"sync"
	"unsafe"

	"github.com/keygate/keygate/internal/http1"
)

// The parts of a buffer. What is received goes behind the front, so that a head
// which grows, or the size of a chunk, finds room before it, and the end of a
// chunk behind it.
const (
	front      = 2 << 10
	tailRoom   = 256
	bufferSize = front + http1.MaxHead + tailRoom
)

// buffer holds messages on their way. It is held only while there is something
// in it.
type buffer [bufferSize]byte

// area returns the part to receive into.
func (b *buffer) area() []byte { return b[front : bufferSize-tailRoom] }

// pools are the engine's caches, which are kept for each core.
type pools struct {
	buffers   sync.Pool // of *buffer
	exchanges sync.Pool // of *exchange
}

func (p *pools) buffer() *buffer {
	if b, ok := p.buffers.Get().(*buffer); ok {
		return b
	}
	return new(buffer)
}

// text returns b as a string that changes with b.
func text(b []byte) string {
	return unsafe.String(unsafe.SliceData(b), len(b)) //nolint:gosec // a copy would be an allocation for each field
}
