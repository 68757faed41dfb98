package ratelimit

import (
	"math"
	"math/bits"
	"sync/atomic"
)

// closed is the state of a bucket that a change has replaced.
const closed = math.MaxUint64

// Bucket is the state of one token bucket; the zero value is full. What it holds to,
// its Params, is the caller's to remember. It is safe for concurrent use.
type Bucket struct {
	// state is the reading of Params.unitsAt at which the bucket is full again.
	state atomic.Uint64
}

// Convert closes b, which holds to old, and returns a bucket that holds to
// p with its level in proportion; if both admit the same it returns b itself. Whoever
// still decides by b gets Stale, so publish the bucket that comes back at once, and
// convert a bucket one time only: what a closed bucket becomes is empty.
func (b *Bucket) Convert(old, p *Params, now Instant) *Bucket {
	if *old == *p {
		return b
	}
	c := new(Bucket)
	word := b.state.Swap(closed)
	if word == closed {
		word = old.unitsAt(now.Mono) + old.span
	}
	c.state.Store(convert(old, p, word, now))
	return c
}

// convert returns the state that stands to p as word stands to old. What is used of
// the bucket is rounded up.
func convert(old, p *Params, word uint64, now Instant) uint64 {
	used := min(old.used(word, now.Mono), old.span)
	hi, lo := bits.Mul64(used, p.span)
	lo, carry := bits.Add64(lo, old.span-1, 0)
	scaled, _ := bits.Div64(hi+carry, lo, old.span)
	return p.unitsAt(now.Mono) + scaled
}

// used returns the units that a bucket in state word lacks at mono.
func (p *Params) used(word uint64, mono int64) uint64 {
	if at := p.unitsAt(mono); word > at {
		return word - at
	}
	return 0
}
