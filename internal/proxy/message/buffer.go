package message

import (
	"sync"

	"github.com/keygate/keygate/internal/http1"
)

// The parts of a Buffer, in bytes. Data is received after the front part, so that a growing head or
// the size of a chunk has room before the data, and the end of a chunk after it.
const (
	Front      = 2 << 10
	TailRoom   = 256
	bufferSize = Front + http1.MaxHead + TailRoom
)

// KeepRoom is the largest buffer for a head or trailers, in bytes, that is kept for the next exchange.
const KeepRoom = 8 << 10

// Buffer holds a message in transit. A connection has one only while there is data in it.
type Buffer struct {
	Data []byte // own, or a larger slice for a long response head
	own  [bufferSize]byte
}

// Area returns the part to receive into.
func (b *Buffer) Area() []byte { return b.Data[Front : len(b.Data)-TailRoom] }

// Grow makes room for the longest head of a response. It keeps the received bytes.
func (b *Buffer) Grow() {
	data := make([]byte, Front+http1.MaxResponseHead+TailRoom)
	copy(data, b.Data)
	b.Data = data
}

// Buffers is a cache of Buffers. Its zero value is empty. It is safe for concurrent use.
type Buffers struct{ pool sync.Pool }

// Get returns a Buffer.
func (p *Buffers) Get() *Buffer {
	b, ok := p.pool.Get().(*Buffer)
	if !ok {
		b = new(Buffer)
		b.Data = b.own[:]
	}
	return b
}

// Put returns a Buffer to the cache. It drops a slice larger than its own.
func (p *Buffers) Put(b *Buffer) {
	b.Data = b.own[:]
	p.pool.Put(b)
}
