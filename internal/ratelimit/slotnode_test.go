package ratelimit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/ratelimit/slottest"
)

// slotNode is one process with a keeper of slots.
type slotNode struct {
	name   string
	t      *testing.T
	store  *slottest.Store
	keeper *ratelimit.SlotKeeper
	set    *ratelimit.SlotSet
	limits *ratelimit.Limiter
	began  time.Time
	lapsed *atomic.Bool // its lease has ended
}

// startSlots starts processes, which end with the test.
func startSlots(t *testing.T, m *slottest.Store, nodes int, serve bool) (list []*slotNode) {
	t.Helper()
	for i := range nodes {
		name := string(rune('a' + i))
		lapsed := new(atomic.Bool)
		k, err := ratelimit.NewSlotKeeper(ratelimit.SlotKeeperConfig{
			Store: m, Process: name, Nodes: func() int { return nodes }, Serve: serve, Leased: func() bool { return !lapsed.Load() },
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := k.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		set := ratelimit.NewSlotSet(nil, k, ratelimit.Name{Account: "acct_1", Kind: id.Plan, Of: &ratelimit.PlanLimit{Limit: "parallel", Subject: id.Owner}})
		n := &slotNode{name, t, m, k, set, ratelimit.NewLimiter(func() int64 { return int64(time.Since(began)) }), began, lapsed}
		t.Cleanup(n.stop)
		list = append(list, n)
	}
	return list
}

func (n *slotNode) stop() {
	if err := n.keeper.Stop(context.WithoutCancel(n.t.Context())); err != nil {
		n.t.Error(err)
	}
}

// begin decides one request. The charge is nil unless it was admitted.
func (n *slotNode) begin(most int64) (*ratelimit.Charge, error) {
	c := &ratelimit.Charge{}
	for {
		c.Clear()
		c.Add(ratelimit.Limit{Scope: ratelimit.ConcurrencyScope, Slots: n.set.Slots(aSubject), Most: most}, 1)
		now := time.Now()
		switch n.limits.Decide(ratelimit.Instant{Mono: int64(now.Sub(n.began)), Wall: now.UnixNano()}, c) {
		case ratelimit.Admitted:
			return c, nil
		case ratelimit.Refused:
			if s := c.Worst(); s.Scope != ratelimit.ConcurrencyScope || s.Remaining != 0 || s.RetryAfter != 1 {
				n.t.Errorf("a refusal says %+v", *s)
			}
			return nil, nil
		case ratelimit.NeedsReservation:
			if err := c.Wait(n.t.Context()); err != nil {
				return nil, err
			}
		}
	}
}

// admits begins one request, which must be admitted.
func (n *slotNode) admits(most int64) *ratelimit.Charge {
	n.t.Helper()
	c, err := n.begin(most)
	if c == nil {
		n.t.Fatalf("process %s refuses under %d at %v: %v", n.name, most, time.Since(n.began), err)
	}
	return c
}

// refuses begins one request, which must be refused.
func (n *slotNode) refuses(most int64) {
	n.t.Helper()
	if c, err := n.begin(most); c != nil || err != nil {
		n.t.Fatalf("process %s: admitted %v, error %v; want a refusal", n.name, c != nil, err)
	}
}

func (n *slotNode) end(c *ratelimit.Charge) { n.limits.Settle(c, &ratelimit.Used{}) }

// Guarantee: plans.md, section 6: with a limit of one, a caller that sends one request after the other round three nodes is
// never refused, and waits for a few claims each time. What is not used is given back at once.
func TestSerialCallerGoesRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := slottest.New(4 * time.Millisecond)
		nodes := startSlots(t, store, 3, false)
		longest := time.Duration(0)
		for i := range 300 {
			n := nodes[i%len(nodes)]
			began := time.Now()
			c := n.admits(1)
			longest = max(longest, time.Since(began))
			pass(time.Duration(i%7) * time.Millisecond)
			n.end(c)
		}
		if longest > 50*time.Millisecond {
			t.Errorf("a request waited %v for a slot", longest)
		}
		pass(100 * time.Millisecond)
		if held := store.Held(); held != 0 {
			t.Errorf("%d slots are held", held)
		}
	})
}

// Guarantee: whatever answers get lost, never more requests are in flight on all nodes together than the limit says; when
// they have ended, everything is given back, and the limit can be used to the full by one node.
func TestNodesTogether(t *testing.T) {
	for _, most := range []int64{1, 3, 10, 60} {
		for _, losses := range []bool{false, true} {
			t.Run(fmt.Sprint(most, losses), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := slottest.New(3 * time.Millisecond)
					nodes := startSlots(t, store, 3, false)
					var flying, admitted, refused, away atomic.Int64
					var all sync.WaitGroup
					for i := range 64 {
						all.Go(func() {
							r := rand.New(rand.NewPCG(uint64(most), uint64(i)))
							for range 40 {
								n := nodes[r.IntN(len(nodes))]
								c, err := n.begin(most)
								switch {
								case fault.CodeOf(err) == fault.Unavailable && losses:
									away.Add(1)
									pass(20 * time.Millisecond)
									continue
								case err != nil:
									t.Error(err)
									return
								case c == nil:
									refused.Add(1)
									pass(time.Duration(r.IntN(200)) * time.Millisecond)
									continue
								}
								if now := flying.Add(1); now > most {
									t.Errorf("%d requests are in flight under %d", now, most)
								}
								admitted.Add(1)
								pass(time.Duration(r.IntN(30)) * time.Millisecond)
								flying.Add(-1)
								n.end(c)
							}
						})
					}
					ended := make(chan struct{})
					var breaking sync.WaitGroup
					if losses {
						breaking.Go(func() {
							r := rand.New(rand.NewPCG(7, uint64(most)))
							for {
								select {
								case <-ended:
									return
								case <-time.After(time.Duration(r.IntN(50)) * time.Millisecond):
									store.SetFailing(r.IntN(6) == 0, r.IntN(2) == 0)
								}
							}
						})
					}
					all.Wait()
					close(ended)
					breaking.Wait()
					store.SetFailing(false, false)
					t.Logf("%d admitted, %d refused, %d without the store, %d claims", admitted.Load(), refused.Load(), away.Load(), store.Claims())
					pass(4 * time.Second)
					if held := store.Held(); held != 0 {
						t.Errorf("%d slots are held", held)
					}
					if admitted.Load() < 64 && !losses {
						t.Errorf("only %d were admitted", admitted.Load())
					}
					for range most {
						nodes[0].admits(most)
					}
					nodes[0].refuses(most)
					nodes[1].refuses(most)
				})
			})
		}
	}
}

// Guarantee: as many callers as the limit allows, each with one request after the other on any of three nodes, are never
// refused.
func TestJustEnoughSlots(t *testing.T) {
	for _, most := range []int{2, 5, 20, 100} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes := startSlots(t, slottest.New(4*time.Millisecond), 3, false)
				var all sync.WaitGroup
				var refused atomic.Int64
				for i := range most {
					all.Go(func() {
						r := rand.New(rand.NewPCG(uint64(most), uint64(i)))
						for range 200 {
							n := nodes[r.IntN(len(nodes))]
							c, err := n.begin(int64(most))
							if err != nil {
								t.Error(err)
							}
							if c == nil {
								refused.Add(1)
								continue
							}
							pass(time.Duration(r.IntN(60)) * time.Millisecond)
							n.end(c)
						}
					})
				}
				all.Wait()
				if n := refused.Load(); n > 0 {
					t.Errorf("%d of %d requests were refused", n, 200*most)
				}
			})
		})
	}
}

// Guarantee: as long as many are left, requests begin without a claim of their own. What is not in use is given back after
// a second, though not while it is used again and again.
func TestSlotsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := slottest.New(2 * time.Millisecond)
		n := startSlots(t, store, 3, false)[0]
		const most, block = 1200, 100
		n.end(n.admits(most))
		if held := store.Held(); held != 1+block {
			t.Errorf("%d slots are held after one request, want it and a block", held)
		}
		claims := store.Claims()
		for range 100 { // one after the other, for five seconds
			pass(50 * time.Millisecond)
			began := time.Now()
			n.end(n.admits(most))
			if waited := time.Since(began); waited > 0 {
				t.Errorf("a request waited %v", waited)
			}
		}
		if more := store.Claims() - claims; more > 0 {
			t.Errorf("%d claims for requests in a block", more)
		}
		var charges []*ratelimit.Charge
		for range 500 {
			charges = append(charges, n.admits(most))
			pass(time.Millisecond)
		}
		if more := store.Claims() - claims; more > 20 {
			t.Errorf("%d claims for 500 requests", more)
		}
		for _, c := range charges {
			n.end(c)
		}
		pass(2 * time.Second)
		if held := store.Held(); held != 0 || n.keeper.Count() != 0 {
			t.Errorf("%d slots are held, of %d subjects", held, n.keeper.Count())
		}
	})
}

// Guarantee: if all are in use on another node, a request is refused soon, and as soon if many come at once, for few claims.
// A refusal says nothing of the next request: if one is free by then, it is admitted.
func TestRefusalByAnotherNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := slottest.New(2 * time.Millisecond)
		nodes := startSlots(t, store, 2, false)
		a, b := nodes[0], nodes[1]
		first, second := a.admits(2), a.admits(2)
		began := time.Now()
		b.refuses(2)
		if took := time.Since(began); took > 200*time.Millisecond {
			t.Errorf("the refusal took %v", took)
		}
		began = time.Now()
		claims := store.Claims()
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() { b.refuses(2) })
		}
		all.Wait()
		if took := time.Since(began); took > 200*time.Millisecond {
			t.Errorf("further refusals took %v", took)
		}
		if more := store.Claims() - claims; more > 20 {
			t.Errorf("%d claims for 100 refusals at once", more)
		}
		a.end(first)
		c := b.admits(2)
		a.refuses(2)
		a.end(second)
		b.end(c)
	})
}

// Guarantee: a request waits for half a second at most, however often others take what it has waited for.
func TestWaitForSlotsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := startSlots(t, slottest.New(2*time.Millisecond), 2, false)
		keeps := nodes[0].admits(2)
		var all sync.WaitGroup
		var longest atomic.Int64
		for i := range 400 {
			all.Go(func() {
				for range 4 {
					began := time.Now()
					c, err := nodes[1].begin(2)
					if err != nil {
						t.Error(err)
					}
					took := time.Since(began)
					for was := longest.Load(); int64(took) > was && !longest.CompareAndSwap(was, int64(took)); was = longest.Load() {
					}
					if c != nil {
						pass(time.Duration(5+i%3) * time.Millisecond)
						nodes[1].end(c)
					}
				}
			})
		}
		all.Wait()
		if took := time.Duration(longest.Load()); took > 500*time.Millisecond {
			t.Errorf("a request waited %v", took)
		}
		nodes[0].end(keeps)
	})
}

// Guarantee: when few are left, a caller that sends one request soon after the other to the same node costs few claims.
func TestSlotLingers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := slottest.New(2 * time.Millisecond)
		n := startSlots(t, store, 3, false)[0]
		for range 100 {
			c := n.admits(1)
			pass(30 * time.Millisecond)
			n.end(c)
			pass(3 * time.Millisecond)
		}
		if claims := store.Claims(); claims > 10 {
			t.Errorf("%d claims", claims)
		}
		pass(20 * time.Millisecond)
		if held := store.Held(); held != 0 {
			t.Errorf("%d slots are held", held)
		}
	})
}

// Guarantee: with serve, requests that begin on what was granted under a lease that has ended are counted as unconfirmed, and
// the node says so: others may have what it uses.
func TestSlotsAfterTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, serve := range []bool{true, false} {
			n := startSlots(t, slottest.New(2*time.Millisecond), 2, serve)[0]
			n.end(n.admits(100)) // and keeps a block
			n.lapsed.Store(true)
			for range 5 {
				n.end(n.admits(100))
			}
			want := int64(0)
			if serve {
				want = 5
			}
			if got := n.keeper.Unconfirmed(); got != want || (n.keeper.Degraded() != "") != serve {
				t.Errorf("serve %v: %d are unconfirmed, want %d; degraded: %q", serve, got, want, n.keeper.Degraded())
			}
			n.lapsed.Store(false)
			n.end(n.admits(100))
			if got := n.keeper.Unconfirmed(); got != want || n.keeper.Degraded() != "" {
				t.Errorf("serve %v: %d are unconfirmed under a lease, want %d; degraded: %q", serve, got, want, n.keeper.Degraded())
			}
		}
	})
}

// Guarantee: with serve, a limit of which the store says nothing in time is counted by this process alone, and no other
// limit is, until the store has answered.
func TestSlowClaimConcernsItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := slottest.New(2 * time.Millisecond)
		n := startSlots(t, store, 2, true)[0]
		other := *n
		other.set = ratelimit.NewSlotSet(nil, n.keeper, ratelimit.Name{Account: "acct_2", Kind: id.Route, Owner: aSubject})
		store.SetHanging(true)
		late := n.admits(1)
		if n.keeper.Unconfirmed() != 1 || n.keeper.Degraded() == "" {
			t.Errorf("%d are unconfirmed, want 1; degraded: %q", n.keeper.Unconfirmed(), n.keeper.Degraded())
		}
		time.AfterFunc(200*time.Millisecond, func() { store.SetHanging(false) })
		n.end(other.admits(1))
		if n.keeper.Unconfirmed() != 1 {
			t.Error("a request of another limit did not wait for its claim")
		}
		pass(100 * time.Millisecond)
		if why := n.keeper.Degraded(); why != "" {
			t.Errorf("still degraded: %s", why)
		}
		n.end(late)
	})
}

// Guarantee: what a node keeps for later goes to another one that needs it.
func TestBlocksAreGivenToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := startSlots(t, slottest.New(2*time.Millisecond), 2, false)
		a, b := nodes[0], nodes[1]
		keeps := a.admits(100)
		for range 99 {
			b.admits(100)
		}
		b.refuses(100)
		a.end(keeps)
		pass(100 * time.Millisecond)
		b.admits(100)
	})
}

// Guarantee: what a dead process had is free once the store says so. If it lives again, nothing of it is left there.
func TestSlotsOfDeadProcessesAreFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := slottest.New(2 * time.Millisecond)
		nodes := startSlots(t, store, 2, false)
		a, b := nodes[0], nodes[1]
		a.end(a.admits(100)) // and keeps a block
		store.SetDead("a", true)
		var charges []*ratelimit.Charge
		for range 100 {
			charges = append(charges, b.admits(100))
		}
		store.SetDead("a", false)
		a.keeper.Regained()
		a.refuses(100)
		b.end(charges[0])
		pass(200 * time.Millisecond)
		c := a.admits(100)
		a.refuses(100)
		a.end(c)
	})
}

// Guarantee: a process that has got a lease again counts what is in flight.
func TestRegainedProcessCountsWhatIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := slottest.New(2 * time.Millisecond)
		nodes := startSlots(t, store, 2, false)
		a, b := nodes[0], nodes[1]
		first, second := a.admits(3), a.admits(3)
		store.SetDead("a", true)
		b.end(b.admits(3)) // removes the rows of a
		store.SetDead("a", false)
		a.keeper.Regained()
		pass(100 * time.Millisecond)
		b.admits(3)
		b.refuses(3)
		a.end(first)
		a.end(second)
	})
}

// Guarantee: without the store, what a process has is used, and then requests get 503; with serve they pass up to the limit
// on each node, are counted and reported. When the store is back, what is in flight is claimed.
func TestSlotsWithoutTheStore(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		for _, serve := range []bool{false, true} {
			t.Run(fmt.Sprint(hangs, serve), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := slottest.New(2 * time.Millisecond)
					nodes := startSlots(t, store, 2, serve)
					const most, block = 16, 2
					a, b := nodes[0], nodes[1]
					lose := func(lost bool) {
						if hangs {
							store.SetHanging(lost)
						} else {
							store.SetFailing(lost, false)
						}
					}
					a.admits(most)
					lose(true)
					for range block {
						a.admits(most)
					}
					began, passed := time.Now(), block+1
					for ; passed < 2*most; passed++ {
						c, err := a.begin(most)
						if c == nil {
							if serve == (fault.CodeOf(err) == fault.Unavailable) {
								t.Errorf("without the store: %v", err)
							}
							break
						}
					}
					if took := time.Since(began); took > time.Second {
						t.Errorf("decisions took %v", took)
					}
					want := block + 1
					if serve {
						want = most
						b.admits(most)
					}
					if passed != want || a.keeper.Unconfirmed() != int64(want-block-1) || (a.keeper.Degraded() != "") != serve {
						t.Errorf("%d passed, want %d; %d unconfirmed; degraded: %q", passed, want, a.keeper.Unconfirmed(), a.keeper.Degraded())
					}
					lose(false)
					pass(3 * time.Second)
					if held := store.Held(); held < int64(want) {
						t.Errorf("%d slots are held, and at least %d are in use", held, want)
					}
					if why := a.keeper.Degraded(); why != "" {
						t.Errorf("still degraded: %s", why)
					}
					if serve {
						b.refuses(most)
					}
				})
			})
		}
	}
}

// Guarantee: if the limit is lowered, what was granted under the higher one counts no more once a request was decided under
// the lower.
func TestLoweredLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := startSlots(t, slottest.New(2*time.Millisecond), 3, false)
		for _, n := range nodes {
			n.end(n.admits(120)) // keeps a block of ten
		}
		admitted := 0
		for range 4 {
			for _, n := range nodes {
				if c, err := n.begin(2); err != nil {
					t.Fatal(err)
				} else if c != nil {
					admitted++
				}
			}
		}
		if admitted != 2 {
			t.Errorf("%d are in flight under 2", admitted)
		}
	})
}
