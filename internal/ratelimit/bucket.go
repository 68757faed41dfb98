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
	b.replaceBy(&c.bucketState, old, p, now.Mono)
	if b.lease != nil {
		c.lease = b.lease.succeed(c, p, now)
	}
	return c
}

// convert returns the state under p in which as many requests, or units of a meter, are used at mono as in the state word
// under old, at most all that p can lack. It rounds fractions up.
func convert(old, p *Params, word uint64, mono int64) uint64 {
	return p.unitsAt(mono) + min(old.scaleUp(old.used(word, mono), p), p.most())
}

// most returns the units that a bucket may lack: its capacity, and as much again of a meter's.
func (p *Params) most() uint64 {
	if p.meter {
		return 2 * p.span
	}
	return p.span
}

// scaleUp converts units of p to units of the parameters to: as many as the same requests cost there, rounded up.
func (p *Params) scaleUp(units uint64, to *Params) uint64 {
	scaled, exact := p.scale(units, to)
	if !exact && scaled < math.MaxUint64 {
		scaled++
	}
	return scaled
}

// scale is scaleUp, rounded down. It reports whether the result is exact.
func (p *Params) scale(units uint64, to *Params) (scaled uint64, exact bool) {
	scaled, exact = mulDiv(units, to.cost, p.cost)
	if p.grain != to.grain {
		var whole bool
		scaled, whole = mulDiv(scaled, uint64(p.grain), uint64(to.grain))
		exact = exact && whole
	}
	return scaled, exact
}

// mulDiv returns n × by ÷ per, rounded down, at most math.MaxUint64, and whether this is exact.
func mulDiv(n, by, per uint64) (q uint64, exact bool) {
	hi, lo := bits.Mul64(n, by)
	if hi >= per {
		return math.MaxUint64, false
	}
	q, rest := bits.Div64(hi, lo, per)
	return q, rest == 0
}

// used returns the units that a bucket in the state word lacks at mono.
func (p *Params) used(word uint64, mono int64) uint64 {
	if at := p.unitsAt(mono); word > at {
		return word - at
	}
	return 0
}
