package ratelimit

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// admission is a request that was admitted and may yet be given back, or a change of the limit.
type admission struct {
	came      Instant
	charge    Charge
	givenBack bool
	change    *model // what the limit is from now on; else nil
}

// replayKept replays all into m, without the requests that were given back. It fails the test if the bucket refuses one of
// them. It returns the level after the last one.
func replayKept(t failer, m *model, all []*admission) *model {
	for i, a := range all {
		m.advance(a.came.Mono)
		if a.change != nil {
			m = m.changed(a.change)
		}
		if a.givenBack || a.change != nil {
			continue
		}
		if m.level.Cmp(one) < 0 {
			t.Fatalf("request %d, which was kept, at %d, exceeds the limit: %s are left", i, a.came.Mono, m.level.FloatString(9))
		}
		m.take()
	}
	return m
}

// Guarantee: whatever is given back, at whatever time and in whatever order, the requests that are kept obey
// the limit at any time. Requests that are given back make room: if less was used before the requests came than
// was regained while they lasted, or nothing was regained, only the kept requests count.
func TestGivenBackRequestsNeverExceedTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		refill := drawRate(t, "refill")
		capacity := rapid.OneOf(rapid.Int64Range(1, 5), rapid.Int64Range(1, 30)).Draw(t, "capacity")
		p := compile(refill, capacity)
		if !isExact(refill, &p) {
			t.Skip("the rate is not exact")
		}
		now := Instant{Mono: rapid.Int64Range(0, int64(time.Hour)).Draw(t, "start"), Wall: startWall}
		first := newModel(refill, capacity)
		first.last = now.Mono
		l := NewLimiter(func() int64 { return now.Mono })
		limit := Limit{Scope: RouteScope, Params: &p, Bucket: new(Bucket)}
		var all, open []*admission
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			step := drawStep(t, refill, capacity)
			now.Mono += step
			now.Wall += step
			switch i := rapid.IntRange(0, 10).Draw(t, "action"); {
			case i == 10:
				refill, capacity = drawRate(t, "next refill"), rapid.Int64Range(1, 30).Draw(t, "next capacity")
				next := compile(refill, capacity)
				if !isExact(refill, &next) {
					t.Skip("the rate is not exact")
				}
				limit.Params, limit.Bucket = &next, limit.Bucket.Convert(limit.Params, &next, now)
				all = append(all, &admission{came: now, change: newModel(refill, capacity)})
			case i < 5 || len(open) == 0:
				a := &admission{came: now, charge: *chargeOf(limit)}
				if l.Decide(now, &a.charge) == Admitted {
					open, all = append(open, a), append(all, a)
				}
			default:
				n := rapid.IntRange(0, len(open)-1).Draw(t, "which")
				if i != 9 {
					l.Release(&open[n].charge)
					open[n].givenBack = true
				}
				open = slices.Delete(open, n, n+1)
			}
			m := replayKept(t, first.copied(), all)
			m.advance(now.Mono)
			var s [1]Status
			if l.peek(now, []Limit{limit}, s[:]); s[0].Remaining > floorRat(m.level) {
				t.Fatalf("%d are said to be left, but only %s are", s[0].Remaining, m.level.FloatString(9))
			}
		}
	})
}

// Guarantee: of n requests that came together and of which k are given back, in any order, while time passes and the limit
// is changed, only the n−k that are kept count, and what was used before: everything else is given back.
func TestEverythingIsGivenBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.Int64Range(1, 40).Draw(t, "capacity")
		refill := perMinute(rapid.SampledFrom([]int64{1, 10, 60, 600, 6000}).Draw(t, "rate"))
		p := compile(refill, capacity)
		now := at(time.Hour)
		l := NewLimiter(func() int64 { return now.Mono })
		limit := Limit{Scope: RouteScope, Params: &p, Bucket: new(Bucket)}
		stands := rapid.Bool().Draw(t, "time stands still")
		before := rapid.Int64Range(0, capacity).Draw(t, "before")
		var open []*admission
		for i := range capacity {
			a := &admission{came: now, charge: *chargeOf(limit)}
			if r := l.Decide(now, &a.charge); r != Admitted {
				t.Fatalf("request %d: %v", i, r)
			}
			if i >= before {
				open = append(open, a)
			}
		}
		from := now.Mono
		regained := new(big.Rat)
		regain := func() {
			regained.Add(regained, new(big.Rat).Mul(newModel(refill, capacity).rate, new(big.Rat).SetInt64(now.Mono-from)))
			from = now.Mono
		}
		kept := rapid.IntRange(0, len(open)).Draw(t, "kept")
		for len(open) > kept {
			n := rapid.IntRange(0, len(open)-1).Draw(t, "which")
			if !stands {
				now.Mono += rapid.Int64Range(0, int64(20*time.Millisecond)).Draw(t, "passes")
			}
			if rapid.IntRange(0, 9).Draw(t, "change") == 0 {
				regain()
				least := capacity
				if stands {
					least = 1
				}
				capacity = rapid.Int64Range(least, 50).Draw(t, "next capacity")
				refill = perMinute(rapid.SampledFrom([]int64{1, 10, 60, 600, 6000}).Draw(t, "next rate"))
				next := compile(refill, capacity)
				limit.Params, limit.Bucket = &next, limit.Bucket.Convert(limit.Params, &next, now)
			}
			l.Release(&open[n].charge)
			open = slices.Delete(open, n, n+1)
		}
		regain()
		used := new(big.Rat).SetInt64(before)
		if used.Sub(used, regained); used.Sign() < 0 {
			used.SetInt64(0)
		}
		used.Add(used, new(big.Rat).SetInt64(int64(kept)))
		used.Add(used, big.NewRat(1, 10_000)) // changes round by less
		want := max(0, floorRat(used.Sub(new(big.Rat).SetInt64(capacity), used)))
		if stands {
			want = max(0, capacity-before-int64(kept)) // and not at all
		}
		var s [1]Status
		if l.peek(now, []Limit{limit}, s[:]); s[0].Remaining < want {
			t.Fatalf("%d are left, want at least %d: %d were used, and %d of the rest are kept", s[0].Remaining, want, before, kept)
		}
	})
}

// Guarantee: the same holds while requests come and are given back together: the kept requests never exceed
// the limit, and once everything else is given back, the rest of the limit passes.
func TestGivingBackTogether(t *testing.T) {
	clock := NewClock()
	l := NewLimiter(clock.Mono)
	p := compile(perDay(8), 8)
	for round := range *rounds / 10 {
		limit := Limit{Scope: RouteScope, Params: &p, Bucket: new(Bucket)}
		var done sync.WaitGroup
		kept := make([]int, 4)
		for w := range kept {
			random := rand.New(rand.NewPCG(uint64(round), uint64(w)))
			done.Go(func() {
				for range 4 {
					c := chargeOf(limit)
					if l.Decide(clock.Now(), c) != Admitted {
						runtime.Gosched()
						continue
					}
					if random.IntN(3) == 0 {
						kept[w]++
						continue
					}
					l.Release(c)
				}
			})
		}
		done.Wait()
		total := kept[0] + kept[1] + kept[2] + kept[3]
		more := 0
		for now := clock.Now(); ; more++ {
			if r, _ := l.decide(now, []Limit{limit}, make([]Status, 1)); r != Admitted {
				break
			}
		}
		if total+more != 8 {
			t.Fatalf("%d requests were kept, and %d more passed, want 8 of 8 a day in all", total, more)
		}
	}
}

// requestAndFail sends a request whose upstream cannot be reached: it is given back after some time.
func (n *clusterNode) requestAndFail(after time.Duration, limits ...Limit) Result {
	c := chargeOf(limits...)
	r, err := n.take(c)
	if err == nil && r == Admitted {
		<-time.After(after)
		n.limiter().Release(c)
	}
	return r
}

// Guarantee: nodes that share limits over a store give back as well: requests that did not reach their
// upstreams do not count, and requests that did obey the limit over all nodes.
func TestNodesGiveBack(t *testing.T) {
	for _, mode := range []Mode{Leased, Exact} {
		for _, config := range []Config{{Sustained: perMinute(20)}, {Sustained: perSecondRate(2000)}} {
			synctest.Test(t, func(t *testing.T) {
				c := startCluster(t, 2, mode, DivideOnLoss)
				defer c.stop()
				capacity := config.Sustained.Count
				var limits []Limit
				for _, n := range c.nodes {
					limits = append(limits, n.limit(1, config))
				}
				var wait sync.WaitGroup
				for i := range min(capacity, 400) {
					wait.Go(func() { c.nodes[i%2].requestAndFail(3*time.Millisecond, limits[i%2]) })
				}
				wait.Wait()
				<-time.After(200 * time.Millisecond) // twice, for amounts that are reported with the next question
				passed := int64(0)
				for range 2 * capacity {
					if c.nodes[passed%2].request(limits[passed%2]) != Admitted {
						break
					}
					passed++
				}
				if passed < capacity*94/100 {
					t.Errorf("%s, %d: after failed requests only %d passed", mode, capacity, passed)
				}
			})
		}
	}
}

// Guarantee: requests that are given back never make nodes admit more than the limit plus the tokens that
// they may hold.
func TestNodesThatGiveBackExceedNothing(t *testing.T) {
	for seed := range uint64(6) {
		for _, mode := range []Mode{Leased, Exact} {
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 1))
				c := startCluster(t, 3, mode, DivideOnLoss)
				defer c.stop()
				rate := int64(50 + random.IntN(1000))
				p := compile(perSecond(rate), rate)
				var wait sync.WaitGroup
				for i, n := range c.nodes {
					l := n.limit(1, Config{Sustained: perSecond(rate)})
					own := rand.New(rand.NewPCG(seed, uint64(i)+2))
					wait.Go(func() { n.load(own, 3*time.Second, time.Second/time.Duration(rate), l) })
					failing := rand.New(rand.NewPCG(seed, uint64(i)+9))
					wait.Go(func() {
						var each sync.WaitGroup
						for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
							<-time.After(time.Duration(failing.ExpFloat64() * float64(time.Second) / float64(rate)))
							lasts := time.Duration(failing.ExpFloat64() * float64(30*time.Millisecond))
							each.Go(func() { n.requestAndFail(lasts, l) })
						}
						each.Wait()
					})
				}
				wait.Wait()
				if over, where := c.excess(float64(rate), float64(p.ahead()), float64(rate)); over > 0 {
					t.Errorf("seed %d, %s: %d/s was exceeded by %.1f requests, %s", seed, mode, rate, over, where)
				}
			})
		}
	}
}

// Guarantee: neither do requests that hang, and are given back when their charge has long been regained.
func TestGivingBackLateExceedsNothing(t *testing.T) {
	const rate = 400
	for _, mode := range []Mode{Leased, Exact} {
		for _, hangs := range []time.Duration{30 * time.Millisecond, 300 * time.Millisecond, 3 * time.Second} {
			t.Run(fmt.Sprint(mode, " ", hangs), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := startCluster(t, 2, mode, DivideOnLoss)
					defer c.stop()
					outstanding := int64(0)
					var wait sync.WaitGroup
					for i, n := range c.nodes {
						l := n.limit(1, Config{Sustained: perSecondRate(rate)})
						outstanding = l.Params.ahead()
						// Until a request fails, about as many as the limit admits hang. From then on other
						// requests use the limit, and none is refused.
						wait.Go(func() {
							var each sync.WaitGroup
							for end := time.Now().Add(hangs); time.Now().Before(end); {
								<-time.After(2 * time.Second / rate * 21 / 20)
								each.Go(func() { n.requestAndFail(hangs, l) })
							}
							each.Wait()
						})
						wait.Go(func() {
							<-time.After(hangs)
							n.load(rand.New(rand.NewPCG(uint64(i), 3)), hangs+2*time.Second, time.Second/rate, l)
						})
					}
					wait.Wait()
					if over, where := c.excess(rate, float64(outstanding), rate); over > 0 {
						t.Errorf("%d/s was exceeded by %.1f requests, %s", rate, over, where)
					}
				})
			})
		}
	}
}

// Guarantee: a request that a node's share has counted, and that was reported to the store before it is given back,
// stays counted: no other, unreported request is forgotten in its place.
func TestGivingBackForgetsNoOtherRequest(t *testing.T) {
	for name, config := range map[string]Config{
		"what was reported":        {Sustained: perDay(10)},
		"what is forgotten anyway": {Sustained: perSecondRate(10)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCluster(t, 1, Leased, DivideOnLoss)
				defer c.stop()
				n := c.nodes[0]
				l := n.limit(1, config)
				lose := func(lost bool) { c.store.set(func() { c.store.down = lost }) }
				lose(true)
				hung := chargeOf(l)
				r, err := n.take(hung)
				if r != Admitted || err != nil {
					t.Fatal(r, err)
				}
				if config.Sustained.Per > time.Second {
					lose(false)
					<-time.After(time.Second)
					lose(true)
				}
				<-time.After(2 * time.Second)
				for range 3 {
					if n.request(l) != Admitted {
						t.Fatal("refused")
					}
				}
				n.limiter().Release(hung)
				e := l.Bucket.lease
				e.mu.Lock()
				defer e.mu.Unlock()
				if got := e.debt.sum(); got != 3 {
					t.Errorf("the node owes %d requests, want 3", got)
				}
			})
		})
	}
}

// Guarantee: beyond the most gifts of a report, a request is given back as if it were charged with an older
// answer. Everything that is true of gifts holds for it too.
func TestTooManyGiftsAreTakenForOlderOnes(t *testing.T) {
	var d debt
	for i := range int64(MaxGifts) {
		d.give(1, &answer{level: 1000, time: 1000 * (i + 1)})
	}
	for _, a := range []answer{{level: 400, part: 5, time: 2_000_000}, {level: 3000, time: 255_500}} {
		d.give(1, &a)
	}
	if len(d.gifts) != MaxGifts {
		t.Fatalf("%d gifts, want %d", len(d.gifts), MaxGifts)
	}
	want := gift{3, answer{level: 3000, time: 255_500}}
	if got := d.gifts[MaxGifts-1]; got != want {
		t.Errorf("the last gift is %+v, want %+v", got, want)
	}
}

// Guarantee: what a bucket remembers is bounded, however often its limit changes.
func TestChangesRememberABoundedNumberOfRefunds(t *testing.T) {
	p := []Params{compile(perDay(10), 10), compile(perDay(5), 5)}
	l := NewLimiter(func() int64 { return 0 })
	limit := Limit{Scope: RouteScope, Params: &p[0], Bucket: new(Bucket)}
	for i := range 3 * maxRefunds {
		for l.Decide(at(0), chargeOf(limit)) == Admitted {
		}
		next := &p[(i+1)%2]
		limit.Params, limit.Bucket = next, limit.Bucket.Convert(limit.Params, next, at(0))
	}
	r := limit.Bucket.refunds.Load()
	if r == nil || len(r.recent) != maxRefunds {
		t.Fatalf("got %+v, want %d refunds", r, maxRefunds)
	}
}
