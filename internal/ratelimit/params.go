package ratelimit

import (
	"math"
	"math/big"
	"math/bits"
	"time"
)

// horizon is the longest time since the epoch, in nanoseconds, that a bucket can represent:
// 36 years.
const horizon = 1<<60 - 1

// maxWord is the largest state of a bucket. The value above it is closed.
const maxWord = math.MaxUint64 - 1

// Params is a compiled token bucket: what its rate and capacity mean for GCRA. Values are
// comparable.
//
// A bucket counts in units. A request costs a fixed number of units, chosen so that, where
// possible, the bucket gains a whole number of units per nanosecond. If the refill rate is
// n requests in d nanoseconds, in lowest terms, a request costs d units and the bucket
// gains n units per nanosecond. That is exact, and it fits a word of 64 bits up to n = 15
// if the bucket refills within decades: all round rates and most others.
//
// For any other rate, a request costs m units, the most that fit, and the bucket gains
// (m-1)×n/(d-1) units per nanosecond, rounded down. This is slower than the rate by less than one
// part in m: just slow enough that rounding the clock to whole units cannot admit a request early.
// (Proof: the gain over w nanoseconds is less than w(m-1)n/(d-1) + 1. So if wn ≤ jd - 1, the gain
// is less than jm, for every j ≥ 1.) So in every window w at most capacity + w×rate requests pass,
// whatever the rate.
type Params struct {
	limit    int64  // requests, or units of a meter, of the whole limit, even in a share
	grain    int64  // how many of them the bucket counts as one; 1 unless limit is more than MaxCount
	capacity int64  // limit, divided by grain
	meter    bool   // it may go one capacity below empty
	window   int64  // seconds, rounded up, from empty to full; of the whole limit
	policy   string // ";q=" capacity ";w=" window, for RateLimit-Policy
	n, d     uint64 // the rate, in lowest terms: n requests in d nanoseconds; of the whole limit
	cost     uint64 // units that a request costs
	span     uint64 // capacity in units

	gain      uint64 // units gained per nanosecond, times 2^(60+gainShift), rounded down
	wait      uint64 // nanoseconds per unit, times 2^(64-waitShift), rounded down
	far       uint64 // smallest high word of units×wait that until does not handle
	perCost   uint64 // 2^64 ÷ cost, rounded down
	gainShift uint8
	waitShift uint8 // at least 1
}

// Compile returns the token bucket of a configuration that has one (Config.HasBucket).
func Compile(c Config) Params {
	switch {
	case c.Burst.IsZero():
		return compile(c.Sustained, c.Sustained.Count)
	case c.Sustained.IsZero():
		return compile(c.Burst, c.Burst.Count)
	default:
		return compile(c.Sustained, c.Burst.Count)
	}
}

// CompileRate returns the token bucket of a key's rate limit, which has only a sustained
// rate.
func CompileRate(r Rate) Params { return compile(r, r.Count) }

// Capacity returns the number of requests that a full bucket admits at once.
func (p *Params) Capacity() int64 { return p.limit }

func compile(refill Rate, capacity int64) Params {
	n, d := uint64(refill.Count), uint64(refill.Per)
	g := gcd(n, d)
	n, d = n/g, d/g
	p := Params{limit: capacity, grain: 1, capacity: capacity, n: n, d: d}

	hi, lo := bits.Mul64(uint64(capacity), d)
	perSecond := n * uint64(time.Second)
	lo, carry := bits.Add64(lo, perSecond-1, 0)
	seconds, _ := bits.Div64(hi+carry, lo, perSecond)
	p.window = int64(seconds)
	p.policy = policyOf(p.capacity, p.window)

	p.build(n, d, capacity)
	return p
}

// CompileMeter returns the token bucket of a rate, with or without a burst, of units of a meter, up to MaxUnits. The bucket
// may go one capacity below empty (Limiter.Settle). One with a capacity of more than MaxCount counts in steps of
// a thousand-millionth of that, and each amount is rounded up to whole steps. A bucket regains at most 15 steps a nanosecond.
func CompileMeter(c Config) Params {
	if c.Burst.IsZero() {
		c.Burst.Count = c.Sustained.Count
	}
	grain := ceilDiv(c.Burst.Count, MaxCount)
	n, d := meterRate(c.Sustained, grain)
	p := Params{limit: c.Burst.Count, grain: grain, capacity: c.Burst.Count / grain, meter: true, n: n, d: d}
	seconds := new(big.Int).Mul(big.NewInt(c.Burst.Count), big.NewInt(int64(c.Sustained.Per/time.Second)))
	seconds.Add(seconds, big.NewInt(c.Sustained.Count-1)).Div(seconds, big.NewInt(c.Sustained.Count))
	p.window = math.MaxInt32
	if seconds.IsInt64() {
		p.window = min(p.window, seconds.Int64())
	}
	p.policy = policyOf(p.limit, p.window)
	p.build(n, d, p.capacity)
	return p
}

// maxGain is how many requests a nanosecond a word can gain.
const maxGain = 15

// meterRate returns the rate in lowest terms: at most n times grain units in d nanoseconds. n is at most MaxCount.
func meterRate(r Rate, grain int64) (n, d uint64) {
	bigN := big.NewInt(r.Count)
	bigD := new(big.Int).Mul(big.NewInt(int64(r.Per)), big.NewInt(grain))
	g := new(big.Int).GCD(nil, nil, bigN, bigD)
	bigN.Div(bigN, g)
	bigD.Div(bigD, g)
	round := func(by *big.Int) { // down, so that the bucket never regains more than the rate
		bigN.Div(bigN, by)
		bigD.Add(bigD, by).Sub(bigD, big.NewInt(1)).Div(bigD, by)
	}
	if most := new(big.Int).Mul(bigD, big.NewInt(maxGain)); bigN.Cmp(most) > 0 {
		return maxGain, 1
	}
	if bigN.Cmp(big.NewInt(MaxCount)) > 0 {
		round(big.NewInt(ceilDiv(bigN.Int64(), MaxCount)))
	}
	if bigD.BitLen() > 62 { // a step then takes a century
		bigN.SetInt64(1)
		bigD.SetInt64(1 << 62)
	}
	return bigN.Uint64(), bigD.Uint64()
}

// ceilDiv returns n/by, rounded up, for n that is not negative.
func ceilDiv(n, by int64) int64 { return n/by + min(n%by, 1) }

// build chooses the units of a bucket of the capacity that gains n requests in d nanoseconds.
func (p *Params) build(n, d uint64, capacity int64) {
	most := capacity
	if p.meter {
		most *= 2
	}
	if n <= maxGain && uint64(most)+1 <= (maxWord-n*horizon)/d {
		p.cost, p.gain, p.gainShift = d, n<<60, 0
		p.wait, p.waitShift = 1<<63, 1
		if n > 1 {
			p.wait = inverse(n) >> 1
		}
	} else {
		p.fit(n, d, most)
	}
	p.span = uint64(capacity) * p.cost
	p.perCost = inverse(p.cost)
	p.far = 1<<(60-p.waitShift) - 1
}

// inverse returns 2^64 ÷ v, rounded down, at most 2^64-1.
func inverse(v uint64) uint64 {
	if v == 1 {
		return math.MaxUint64
	}
	q, _ := bits.Div64(1, 0, v)
	return q
}

// fit chooses cost and gain for a refill of n requests in d nanoseconds that a word cannot
// represent exactly. most is how many requests may be used at once.
func (p *Params) fit(n, d uint64, most int64) {
	bigN, bigD := new(big.Int).SetUint64(n), new(big.Int).SetUint64(d)

	// The word must hold horizon×n/d×cost + (most+1)×cost.
	room := new(big.Int).Lsh(bigN, 60)
	room.Add(room, new(big.Int).Mul(big.NewInt(most+1), bigD))
	cost := new(big.Int).SetUint64(maxWord)
	cost.Mul(cost, bigD).Div(cost, room)
	p.cost = cost.Uint64()

	gain := cost
	if !p.meter { // whose units may be a nanosecond early
		gain.Sub(gain, big.NewInt(1))
		bigD.Sub(bigD, big.NewInt(1))
	}
	gain.Mul(gain, bigN).Lsh(gain, 124)
	gain.Div(gain, bigD)
	excess := gain.BitLen() - 64 // the gain is below 16 units, so 64 bits hold it times 2^60
	p.gainShift = uint8(124 - excess - 60)
	p.gain = gain.Rsh(gain, uint(excess)).Uint64()

	wait := new(big.Int).Lsh(big.NewInt(1), 124+uint(p.gainShift))
	wait.Div(wait, new(big.Int).SetUint64(p.gain))
	excess = max(wait.BitLen()-64, 1)
	p.waitShift = uint8(excess)
	p.wait = wait.Rsh(wait, uint(excess)).Uint64()
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// unitsAt returns the units gained from the epoch to mono.
func (p *Params) unitsAt(mono int64) uint64 {
	if uint64(mono) > horizon {
		mono = max(0, min(mono, horizon))
	}
	return p.gained(uint64(mono))
}

func (p *Params) gained(ns uint64) uint64 {
	hi, _ := bits.Mul64(ns<<4, p.gain)
	return hi >> (p.gainShift & 63)
}

// unitsOf returns the units that the amount, 0 to MaxUnits, costs, but at most one request more than the
// capacity, so that they can be added to unitsAt.
func (p *Params) unitsOf(amount int64) uint64 {
	hi, lo := bits.Mul64(uint64(amount), p.cost)
	if most := p.span + p.cost; hi > 0 || lo > most {
		return most
	}
	return lo
}

// fits reports whether the bucket has the given units left, when used units are used.
func (p *Params) fits(used, units uint64) bool { return units <= p.span && used <= p.span-units }

// requests returns how many whole requests the units pay for.
func (p *Params) requests(units uint64) int64 {
	q, _ := bits.Mul64(units, p.perCost) // at most one too few
	if units-q*p.cost >= p.cost {
		q++
	}
	return int64(q)
}

// until returns the shortest time, in nanoseconds, in which a bucket gains the units,
// whenever it begins. near is false if the time is beyond the horizon: then use untilFar.
func (p *Params) until(units uint64) (ns uint64, near bool) {
	hi, lo := bits.Mul64(units, p.wait)
	ns, near = hi<<(p.waitShift&63)|lo>>(-p.waitShift&63), hi < p.far
	for near && p.gained(ns) < units { // the estimate is at most a few too low
		ns++
	}
	return ns, near
}

// untilFar returns the time of until in seconds, rounded up.
func (p *Params) untilFar(units uint64) (seconds int64) {
	hi, lo := bits.Mul64(units, p.wait)
	s := p.waitShift
	q, _ := bits.Div64(hi>>(64-s), hi<<s|lo>>(64-s), uint64(time.Second))
	return int64(q) + 1
}
