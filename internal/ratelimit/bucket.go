package ratelimit

import (
	"math"
	"math/bits"
)

// closed is the state of a bucket that a change or a sweep has replaced.
const closed = math.MaxUint64

// Bucket is the state of one token bucket. The zero value is full. The caller keeps the
// Params that belong to it. It is safe for concurrent use.
type Bucket struct {
	// For a bucket that nodes share, it is the state that the limit store has last returned, in
	// which all granted tokens count as used.
	bucketState
	lease *Lease // of a bucket that nodes share; else nil
}

// Convert closes b, which has the parameters old, and returns a bucket with the parameters
// p in which the same number of requests is used (contract, 4.3). Use beyond p's capacity is
// forgotten. If the parameters are equal, Convert returns b itself. Decisions that still use b
// return Stale, so publish the returned bucket at once. Convert a bucket only once: converting a
// closed bucket yields an empty one.
func (b *Bucket) Convert(old, p *Params, now Instant) *Bucket {
	if *old == *p {
		return b
	}
	c := new(Bucket)
	word := b.state.Swap(closed)
	if b.lease != nil {
		c.lease = b.lease.succeed(c, p, now)
	}
	if word == closed {
		word = old.unitsAt(now.Mono) + old.span
	}
	c.state.Store(convert(old, p, word, now.Mono))
	return c
}

// convert returns the state under p in which as many requests are used at mono as in the
// state word under old, at most p's capacity. It rounds fractions of a request up.
func convert(old, p *Params, word uint64, mono int64) uint64 {
	used := min(old.used(word, mono), old.span)
	hi, lo := bits.Mul64(used, p.cost)
	lo, carry := bits.Add64(lo, old.cost-1, 0)
	hi += carry
	units := p.span
	if hi < old.cost { // else the quotient exceeds 64 bits, and so p.span
		q, _ := bits.Div64(hi, lo, old.cost)
		units = min(q, p.span)
	}
	return p.unitsAt(mono) + units
}

// used returns the units that a bucket in the state word lacks at mono.
func (p *Params) used(word uint64, mono int64) uint64 {
	if at := p.unitsAt(mono); word > at {
		return word - at
	}
	return 0
}
