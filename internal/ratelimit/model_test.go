package ratelimit

import (
	"fmt"
	"math/big"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// model is a token bucket in exact rational arithmetic, as the specification describes it:
// it refills at the rate up to its capacity, and a request takes one token.
type model struct {
	capacity *big.Rat
	rate     *big.Rat // tokens in a nanosecond
	level    *big.Rat
	last     int64
}

func newModel(refill Rate, capacity int64) *model {
	m := &model{capacity: new(big.Rat).SetInt64(capacity), rate: big.NewRat(refill.Count, int64(refill.Per))}
	m.level = new(big.Rat).Set(m.capacity)
	return m
}

func (m *model) advance(now int64) {
	gained := new(big.Rat).Mul(m.rate, new(big.Rat).SetInt64(now-m.last))
	m.level.Add(m.level, gained)
	if m.level.Cmp(m.capacity) > 0 {
		m.level.Set(m.capacity)
	}
	m.last = now
}

// copied returns a copy of the model.
func (m *model) copied() *model {
	return &model{m.capacity, m.rate, new(big.Rat).Set(m.level), m.last}
}

// changed returns the bucket with the limit of next, and what is used of m (contract, 4.3).
func (m *model) changed(next *model) *model {
	next = next.copied()
	next.last = m.last
	next.level.Sub(next.capacity, m.level.Sub(m.capacity, m.level))
	if next.level.Sign() < 0 {
		next.level.SetInt64(0)
	}
	return next
}

var one = big.NewRat(1, 1)

func (m *model) take() { m.level.Sub(m.level, one) }

// until returns the nanoseconds, rounded up, until the level is reached.
func (m *model) until(level *big.Rat) *big.Int {
	lack := new(big.Rat).Sub(level, m.level)
	if lack.Sign() <= 0 {
		return new(big.Int)
	}
	lack.Quo(lack, m.rate)
	return ceilRat(lack)
}

func ceilRat(r *big.Rat) *big.Int {
	q, rest := new(big.Int).QuoRem(r.Num(), r.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	return q
}

func floorRat(r *big.Rat) int64 {
	return new(big.Int).Div(r.Num(), r.Denom()).Int64()
}

func bigCeilSeconds(ns *big.Int) int64 {
	return ceilRat(new(big.Rat).SetFrac(ns, big.NewInt(1e9))).Int64()
}

var units = []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour}

func drawRate(t *rapid.T, name string) Rate {
	per := rapid.SampledFrom(units).Draw(t, name+" per")
	count := rapid.OneOf(
		rapid.Int64Range(1, 20),
		rapid.SampledFrom([]int64{50, 60, 100, 300, 600, 1000, 3600, 6000, 86400, 100_000, 1_000_000, MaxCount, 999_999_937}),
		rapid.Int64Range(1, MaxCount),
	).Draw(t, name+" count")
	return Rate{Count: count, Per: per, text: fmt.Sprint(count)}
}

// isExact reports whether the refill needs no rounding (see Params).
func isExact(refill Rate, p *Params) bool {
	d := uint64(refill.Per) / gcd(uint64(refill.Count), uint64(refill.Per))
	return p.cost == d
}

// drawStep draws the time to the next request: nothing, a little, about a whole number of
// token intervals, or long.
func drawStep(t *rapid.T, refill Rate, capacity int64) int64 {
	interval := int64(refill.Per) / refill.Count
	return rapid.OneOf(
		rapid.Just(int64(0)),
		rapid.Int64Range(0, 3),
		rapid.Custom(func(t *rapid.T) int64 {
			k := rapid.Int64Range(0, 5).Draw(t, "intervals")
			return max(0, k*interval+rapid.Int64Range(-2, 2).Draw(t, "off"))
		}),
		rapid.Int64Range(0, 2*interval+2),
		rapid.Int64Range(0, int64(time.Hour)),
		rapid.Just(int64(min(float64(capacity)*float64(interval), 1e16))),
	).Draw(t, "step")
}

// startWall is far from the epoch and in the middle of a second, so that rounding shows.
const startWall = 1_790_000_000_123_456_789

// Guarantee: if the rate is exact, a bucket decides exactly like a token bucket in rational
// arithmetic, including the figures of its Status.
func TestDecisionEqualsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		refill := drawRate(t, "refill")
		capacity := rapid.OneOf(rapid.Int64Range(1, 5), rapid.Just(refill.Count), rapid.Int64Range(1, 100_000)).Draw(t, "capacity")
		p := compile(refill, capacity)
		if !isExact(refill, &p) {
			t.Skip("the rate is not exact")
		}
		start := rapid.Int64Range(0, int64(20*365*24*time.Hour)).Draw(t, "start")
		now := Instant{Mono: start, Wall: startWall}
		m := newModel(refill, capacity)
		m.last = start
		bucket := new(Bucket)
		limits := []Limit{{Scope: RouteScope, Params: &p, Bucket: bucket}}
		var status [1]Status
		for range rapid.IntRange(1, 60).Draw(t, "requests") {
			step := drawStep(t, refill, capacity)
			now.Mono += step
			now.Wall += step
			m.advance(now.Mono)
			if rapid.Float64Range(0, 1).Draw(t, "drain") < 0.1 { // most of what is left at once
				n := min(floorRat(m.level), 300)
				for range n {
					if r, _ := decide(now, limits, status[:]); r != Admitted {
						t.Fatalf("refused with %s left", m.level)
					}
					m.take()
				}
			}
			compareWithModel(t, now, m, limits, status[:])
		}
	})
}

func compareWithModel(t *rapid.T, now Instant, m *model, limits []Limit, status []Status) {
	want := m.level.Cmp(one) >= 0
	r, _ := decide(now, limits, status)
	s := status[0]
	switch {
	case want && (r != Admitted || s.Refused):
		t.Fatalf("level %s: got %v, refused %v, want Admitted", m.level, r, s.Refused)
	case !want && (r == Admitted || !s.Refused):
		t.Fatalf("level %s: got %v, refused %v, want a refusal", m.level, r, s.Refused)
	}
	target := one
	if want {
		m.take()
		target = m.capacity
	}
	if got, want := s.Remaining, floorRat(m.level); got != want {
		t.Fatalf("remaining %d, want %d", got, want)
	}
	wait := m.until(target)
	if got, want := s.ResetIn, bigCeilSeconds(wait); got != want {
		t.Fatalf("reset in %d, want %d", got, want)
	}
	if got, want := s.ResetAt, bigCeilSeconds(wait.Add(wait, big.NewInt(now.Wall))); got != want {
		t.Fatalf("reset at %d, want %d", got, want)
	}
	if !want && s.RetryAfter != max(1, s.ResetIn) {
		t.Fatalf("retry after %d, reset in %d", s.RetryAfter, s.ResetIn)
	}
	window := ceilRat(new(big.Rat).Quo(m.capacity, new(big.Rat).Mul(m.rate, big.NewRat(1e9, 1)))).Int64()
	if s.Window != window {
		t.Fatalf("window %d, want %d", s.Window, window)
	}
}

// Guarantee: in every window w at most capacity + w×rate requests pass, whatever the rate.
// A refusal is correct up to rounding: a request passes at most one part in cost, and two
// units, after its exact time.
func TestDecisionNeverExceedsRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		refill := drawRate(t, "refill")
		capacity := rapid.OneOf(rapid.Int64Range(1, 5), rapid.Int64Range(1, 30), rapid.Just(refill.Count)).Draw(t, "capacity")
		p := compile(refill, capacity)
		now := Instant{Mono: rapid.Int64Range(0, int64(30*365*24*time.Hour)).Draw(t, "start"), Wall: startWall}
		bucket := new(Bucket)
		limits := []Limit{{Scope: RouteScope, Params: &p, Bucket: bucket}}
		var status [1]Status
		m := newModel(refill, capacity) // charged with what passes
		m.last = now.Mono
		var passed []int64
		charges := int64(0)
		for range rapid.IntRange(1, 100).Draw(t, "requests") {
			now.Mono += drawStep(t, refill, capacity)
			m.advance(now.Mono)
			r, _ := decide(now, limits, status[:])
			if r == Admitted {
				m.take()
				passed = append(passed, now.Mono)
				charges++
				continue
			}
			// Rounding may delay a request by two units, and by one part in cost of the units
			// gained since the bucket was last full, which is less than the number of charges.
			slack := new(big.Rat).SetFrac(new(big.Int).SetInt64(charges+3), new(big.Int).SetUint64(p.cost))
			if isExact(refill, &p) {
				slack = new(big.Rat)
			}
			if late := new(big.Rat).Sub(m.level, one); late.Cmp(slack) > 0 || late.Sign() == 0 && slack.Sign() == 0 {
				t.Fatalf("refused with level %s, which is late by more than %s", m.level.FloatString(12), slack.FloatString(12))
			}
		}
		checkWindows(t, refill, capacity, passed)
	})
}

type failer interface {
	Fatalf(format string, args ...any)
}

// checkWindows fails the test if more requests passed in any window than the limit allows.
func checkWindows(t failer, refill Rate, capacity int64, passed []int64) {
	for i, from := range passed {
		for j := i + int(min(capacity, int64(len(passed)))); j < len(passed); j++ {
			// n ≤ capacity + w×count/per
			n, w := int64(j-i+1), passed[j]-from
			left := new(big.Int).Mul(big.NewInt(n-capacity), big.NewInt(int64(refill.Per)))
			right := new(big.Int).Mul(big.NewInt(w), big.NewInt(refill.Count))
			if left.Cmp(right) > 0 {
				t.Fatalf("%d requests passed in %d ns: more than %d and %d in %v", n, w, capacity, refill.Count, refill.Per)
			}
		}
	}
}

// checkAllWindows does the same as checkWindows for many requests, in one pass: among the windows
// that end with a given request, the fullest starts where count×per - time×rate was least.
func checkAllWindows(t failer, refill Rate, capacity int64, passed []int64) {
	slices.Sort(passed)
	least := new(big.Int)
	for n, at := range passed {
		// charge(n) = n×per - at×count; a window from i to n holds n-i+1 ≤ capacity + w×rate.
		charge := new(big.Int).Mul(big.NewInt(int64(n)), big.NewInt(int64(refill.Per)))
		charge.Sub(charge, new(big.Int).Mul(big.NewInt(at), big.NewInt(refill.Count)))
		if n == 0 || charge.Cmp(least) < 0 {
			least.Set(charge)
		}
		over := charge.Sub(charge, least)
		if most := new(big.Int).Mul(big.NewInt(capacity-1), big.NewInt(int64(refill.Per))); over.Cmp(most) > 0 {
			t.Fatalf("request %d of %d passed over capacity %d and rate %v", n, len(passed), capacity, refill)
		}
	}
}
