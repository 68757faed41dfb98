package ratelimit

import "math/bits"

// Share is the part of every divided limit that a node has: the part Index of Of. The zero
// value is the whole.
type Share struct{ Index, Of int }

// of returns the part of n requests that s is. The parts are whole numbers whose sum is n.
func (s Share) of(n int64) int64 {
	if s.Of <= 1 {
		return n
	}
	part := n / int64(s.Of)
	if int64(s.Index) < n%int64(s.Of) {
		part++
	}
	return part
}

// share returns the bucket that a node with the share s has of p. Its capacity is a whole
// number of requests and its refill rate is in proportion, so that the shares of all nodes sum to
// p. It may be 0: then no request passes. The capacity and window that the bucket reports as its
// limit are p's.
func (p *Params) share(s Share) Params {
	c := *p
	capacity := s.of(p.capacity)
	switch capacity {
	case p.capacity:
	case 0:
		c.span = 0
	default:
		n, d := scale(p.n, p.d, uint64(capacity), uint64(p.capacity))
		c.build(n, d, capacity)
	}
	return c
}

// scale returns n/d × part/whole, for part < whole, in lowest terms. If the terms do not fit 62
// bits, it rounds down, by less than one part in 2¹⁴.
func scale(n, d, part, whole uint64) (uint64, uint64) {
	g := gcd(part, whole)
	part, whole = part/g, whole/g
	g = gcd(n, whole)
	n, whole = n/g, whole/g
	g = gcd(part, d)
	part, d = part/g, d/g
	n *= part // at most 10⁹ × 10⁹
	hi, lo := bits.Mul64(d, whole)
	if hi == 0 && lo < 1<<62 {
		return n, lo
	}
	excess := 62
	if hi > 0 {
		excess = 64 + bits.Len64(hi)
	}
	excess = max(excess, 63) - 62
	if n>>excess < 1<<14 { // the rate is then so low that whole nanoseconds for a request are exact enough
		each, rest := bits.Div64(hi, lo, n)
		if rest > 0 {
			each++
		}
		return 1, each
	}
	return n >> excess, (hi<<(64-excess) | lo>>excess) + 1
}
