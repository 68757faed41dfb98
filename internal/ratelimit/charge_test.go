package ratelimit

import (
	"math/big"
	"math/bits"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// chargeOf returns a charge of 1 of each limit.
func chargeOf(limits ...Limit) *Charge {
	c := new(Charge)
	for _, l := range limits {
		c.Add(l, 1)
	}
	return c
}

// entriesOf returns the entries of chargeOf.
func entriesOf(limits ...Limit) []entry { return chargeOf(limits...).entries() }

// decide decides a request that is charged 1 of each limit. It returns the statuses, and the index of the worst, or,
// for results other than Admitted and Refused, the index of the limit that caused them; -1 without limits.
func (l *Limiter) decide(now Instant, limits []Limit, status []Status) (Result, int) {
	c := chargeOf(limits...)
	r := l.Decide(now, c)
	return r, c.copyTo(status)
}

// peek is decide for Peek.
func (l *Limiter) peek(now Instant, limits []Limit, status []Status) int {
	c := chargeOf(limits...)
	l.Peek(now, c)
	return c.copyTo(status)
}

func (c *Charge) copyTo(status []Status) (worst int) {
	for i := range c.Shown() {
		status[i] = *c.Status(i)
	}
	if c.count == 0 {
		return -1
	}
	return c.worst
}

// decide is Limiter.decide at a time that stands still.
func decide(now Instant, limits []Limit, status []Status) (Result, int) {
	return new(Limiter).decide(now, limits, status)
}

// peek is Limiter.peek at a time that stands still.
func peek(now Instant, limits []Limit, status []Status) int {
	return new(Limiter).peek(now, limits, status)
}

// drawAmount draws an amount for a limit with the given capacity: mostly an amount that it can have.
func drawAmount(t *rapid.T, capacity int64) int64 {
	return rapid.OneOf(rapid.Just(int64(1)), rapid.Int64Range(1, capacity), rapid.Int64Range(1, capacity), rapid.Just(capacity+1), rapid.Just(int64(MaxUnits))).Draw(t, "amount")
}

// Guarantee: if the rate is exact, a bucket decides about amounts exactly like a token bucket in rational arithmetic:
// it has the amount, or the status says when it will.
func TestAmountsEqualModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		refill := drawRate(t, "refill")
		capacity := rapid.OneOf(rapid.Int64Range(1, 9), rapid.Just(refill.Count), rapid.Int64Range(1, MaxCount)).Draw(t, "capacity")
		p := compile(refill, capacity)
		if !isExact(refill, &p) {
			t.Skip("the rate is not exact")
		}
		now := Instant{Mono: rapid.Int64Range(0, int64(20*365*24*time.Hour)).Draw(t, "start"), Wall: startWall}
		m := newModel(refill, capacity)
		m.last = now.Mono
		var l Limiter
		limit := Limit{Scope: RouteScope, Params: &p, Bucket: new(Bucket)}
		for range rapid.IntRange(1, 30).Draw(t, "requests") {
			step := drawStep(t, refill, capacity)
			now.Mono, now.Wall = now.Mono+step, now.Wall+step
			m.advance(now.Mono)
			amount := drawAmount(t, capacity)
			needed := new(big.Rat).SetInt64(amount)
			var c Charge
			c.Add(limit, amount)
			admitted := m.level.Cmp(needed) >= 0
			if got := l.Decide(now, &c); (got == Admitted) != admitted {
				t.Fatalf("%d of the %s that are left: got %v", amount, m.level.FloatString(9), got)
			}
			s, target := c.Worst(), needed
			if admitted {
				m.level.Sub(m.level, needed)
				target = m.capacity
			}
			if got, want := s.Remaining, floorRat(m.level); admitted && got != want {
				t.Fatalf("%d are left, want %d", got, want)
			}
			if got, want := s.ResetIn, bigCeilSeconds(m.until(target)); amount <= capacity && got != want && want < horizon/second-1 { // beyond, it is a second more
				t.Fatalf("the reset is in %d s, want %d", got, want)
			}
		}
	})
}

// Guarantee: no amount from 1 to MaxUnits overflows a state, at any time that a bucket can represent, of any limit
// and any share of it. An amount beyond the capacity never fits.
func TestAmountsDoNotOverflow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.OneOf(rapid.Int64Range(1, 9), rapid.Int64Range(1, MaxCount), rapid.Just(int64(MaxCount))).Draw(t, "capacity")
		whole := compile(drawRate(t, "refill"), capacity)
		share := whole.share(Share{Index: rapid.IntRange(0, 4).Draw(t, "index"), Of: rapid.IntRange(1, 5).Draw(t, "of")})
		amount := drawAmount(t, capacity)
		for _, p := range []*Params{&whole, &share} {
			units, fits := p.unitsOf(amount), uint64(amount) <= p.span/p.cost
			if hi, lo := bits.Mul64(uint64(amount), p.cost); fits && (hi > 0 || units != lo) {
				t.Fatalf("%d cost %d units, want %d", amount, units, lo)
			}
			if p.fits(0, units) != fits {
				t.Fatalf("%d of a capacity of %d fit: %t, want %t", amount, p.span/p.cost, !fits, fits)
			}
			full, carry := bits.Add64(p.unitsAt(horizon), p.span, 0)
			if over, carry2 := bits.Add64(full, p.cost, 0); carry+carry2 > 0 || over > maxWord || units > p.span+p.cost {
				t.Fatalf("a charge of %d at the horizon does not fit a word", amount)
			}
		}
	})
}

// Guarantee: a released charge counts as never taken, whatever the amounts, and is released only once; a
// settled charge stays.
func TestAmountsAreGivenBackOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, day := compile(perDay(1000), 1000), compile(perDay(5000), 5000)
		now := at(time.Hour)
		l := NewLimiter(func() int64 { return now.Mono })
		limits := []Limit{{Scope: RouteScope, Params: &p, Bucket: new(Bucket)}, {Scope: GlobalScope, Params: &day, Bucket: new(Bucket)}}
		used := [2]int64{}
		for range rapid.IntRange(1, 20).Draw(t, "requests") {
			var c Charge
			amounts := [2]int64{drawAmount(t, 1000), drawAmount(t, 1000)}
			for i := range limits {
				c.Add(limits[i], amounts[i])
			}
			admitted := used[0]+amounts[0] <= 1000 && used[1]+amounts[1] <= 5000
			if got := l.Decide(now, &c); (got == Admitted) != admitted {
				t.Fatalf("%v after %v are used: got %v", amounts, used, got)
			}
			if keep := rapid.Bool().Draw(t, "keep"); keep {
				c.settle()
				if admitted {
					used[0], used[1] = used[0]+amounts[0], used[1]+amounts[1]
				}
			}
			l.Release(&c)
			l.Release(&c)
			c.settle()
			l.Peek(now, &c)
			if got, want := [2]int64{c.Status(0).Remaining, c.Status(1).Remaining}, [2]int64{1000 - used[0], 5000 - used[1]}; got != want {
				t.Fatalf("%v are left, want %v", got, want)
			}
		}
	})
}

// Guarantee: of requests with several amounts that come together, none is refused while each of its limits has the
// amount, and none takes more than there is.
func TestAmountsThatComeTogether(t *testing.T) {
	clock := NewClock()
	l := NewLimiter(clock.Mono)
	random := rand.New(rand.NewPCG(3, 4))
	p := compile(perDay(9), 9)
	for range *rounds / 4 {
		limits := []Limit{{Scope: KeyScope, Params: &p, Bucket: new(Bucket)}, {Scope: RouteScope, Params: &p, Bucket: new(Bucket)}}
		var charges [4]Charge
		var results [4]Result
		for i := range charges {
			for _, limit := range limits {
				charges[i].Add(limit, 1+random.Int64N(5))
			}
		}
		var done sync.WaitGroup
		for i := range charges {
			done.Go(func() { results[i] = l.Decide(clock.Now(), &charges[i]) })
		}
		done.Wait()
		var taken [2]int64
		for i := range charges {
			if results[i] == Admitted {
				taken[0], taken[1] = taken[0]+charges[i].entries()[0].amount, taken[1]+charges[i].entries()[1].amount
			}
		}
		for i := range charges {
			e := charges[i].entries()
			if results[i] != Admitted && taken[0]+e[0].amount <= 9 && taken[1]+e[1].amount <= 9 || taken[0] > 9 || taken[1] > 9 {
				t.Fatalf("request %d of %d and %d: %v, though %v of 9 were taken", i, e[0].amount, e[1].amount, results[i], taken)
			}
		}
	}
}

// Guarantee: over nodes that share a limit, amounts never exceed it, whoever decides: granted tokens, the store, or,
// while the store is lost, the node's share, whose charges are reported to the store later. Amounts that are given back
// may be used again.
func TestSharedAmounts(t *testing.T) {
	for _, mode := range []Mode{Leased, Exact} {
		synctest.Test(t, func(t *testing.T) {
			c := startCluster(t, 2, mode, DivideOnLoss)
			defer c.stop()
			take := func(n *clusterNode, l Limit, amount int64) *Charge {
				charge := new(Charge)
				charge.Add(l, amount)
				r, err := n.take(charge)
				if err != nil {
					t.Fatal(err)
				}
				if r != Admitted {
					return nil
				}
				return charge
			}
			a, b := c.nodes[0].limit(1, Config{Sustained: perDay(100)}), c.nodes[1].limit(1, Config{Sustained: perDay(100)})
			if take(c.nodes[0], a, 101) != nil {
				t.Errorf("%s: 101 of 100 are taken", mode)
			}
			if take(c.nodes[0], a, 60) == nil || take(c.nodes[1], b, 41) != nil {
				t.Fatalf("%s: 60 of 100 are not taken, or 41 of the other 40 are", mode)
			}
			last := take(c.nodes[1], b, 40)
			if last == nil || take(c.nodes[0], a, 1) != nil {
				t.Fatalf("%s: the last 40 are not taken, or one more is", mode)
			}
			c.nodes[1].limiter().Release(last)
			<-time.After(200 * time.Millisecond)
			if take(c.nodes[1], b, 41) != nil || take(c.nodes[1], b, 40) == nil {
				t.Errorf("%s: of the 40 that were given back other than 40 can be taken", mode)
			}

			c.store.set(func() { c.store.down = true })
			wide := c.nodes[0].limit(2, Config{Sustained: perDay(100)})
			if take(c.nodes[0], wide, 40) == nil || take(c.nodes[0], wide, 11) != nil {
				t.Errorf("%s: the share of 50 does not have 40, or has 51", mode)
			}
			c.store.set(func() { c.store.down = false })
			<-time.After(time.Second)
			if other := c.nodes[1].limit(2, Config{Sustained: perDay(100)}); take(c.nodes[1], other, 61) != nil || take(c.nodes[1], other, 60) == nil {
				t.Errorf("%s: after 40 were reported there are not 60 left", mode)
			}
		})
	}
}

// Guarantee: an amount is taken from granted tokens as a whole, or all of it is requested from the store.
func TestAmountsOfTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 1, Leased, DivideOnLoss)
		defer c.stop()
		n := c.nodes[0]
		l := n.limit(1, Config{Sustained: perSecond(1000)})
		e := l.Bucket.lease
		e.held = 8
		e.tokens.Store(packLease(8, n.clock().Mono/int64(time.Millisecond)+grantLife))
		var charge Charge
		charge.Add(l, 5)
		limiter := n.limiter()
		if r := limiter.Decide(n.clock(), &charge); r != Admitted || tokensAt(e.tokens.Load(), n.clock().Mono) != 3 {
			t.Errorf("%v, and %d tokens are left, want 3", r, tokensAt(e.tokens.Load(), n.clock().Mono))
		}
		var next Charge
		next.Add(l, 4)
		if r := limiter.Decide(n.clock(), &next); r != NeedsTicket {
			t.Errorf("4 of 3 tokens: %v, want NeedsTicket", r)
		}
		limiter.Release(&charge)
		if left := tokensAt(e.tokens.Load(), n.clock().Mono); left != 8 {
			t.Errorf("%d tokens are left after 5 were given back, want 8", left)
		}
	})
}
