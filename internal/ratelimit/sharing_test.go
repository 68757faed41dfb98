package ratelimit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
)

// cluster is several nodes that share a limit over one store, in virtual time.
type cluster struct {
	t     *testing.T
	store *memoryLimitStore
	nodes []*clusterNode

	mu      sync.Mutex
	passed  []passing
	refused int
}

// passing is when a request passed: at some moment between two.
type passing struct{ after, before time.Time }

type clusterNode struct {
	c       *cluster
	sharing *Sharing
	clock   func() Instant
	share   Share
	away    atomic.Bool // from the store
	version int64
	catchUp func() error
}

// startCluster starts nodes whose clocks differ.
func startCluster(t *testing.T, nodes int, mode Mode, onLoss OnLoss) *cluster {
	t.Helper()
	c := &cluster{t: t, store: newMemoryLimitStore()}
	for i := range nodes {
		clock := NewClock()
		n := &clusterNode{c: c, share: Share{i, nodes}, version: 1, catchUp: func() error { return nil }}
		n.clock = func() Instant {
			now := clock.Now()
			now.Mono += int64(i) * int64(time.Hour)
			return now
		}
		var err error
		n.sharing, err = NewSharing(SharingConfig{
			Mode: mode, OnLoss: onLoss, Store: nodeStore{c.store, fmt.Sprint("node", i), &n.away}, Now: n.clock,
			Shares:  func() Share { return n.share },
			Version: func() int64 { return n.version },
			CatchUp: func(context.Context) error { return n.catchUp() },
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := n.sharing.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.nodes = append(c.nodes, n)
	}
	return c
}

func (c *cluster) stop() {
	for _, n := range c.nodes {
		if err := n.sharing.Stop(context.Background()); err != nil {
			c.t.Error(err)
		}
	}
}

// limit returns the node's part of the limit with the given number.
func (n *clusterNode) limit(number byte, config Config) Limit {
	p := Compile(config)
	return Limit{Scope: RouteScope, Params: &p, Bucket: n.sharing.NewBucket(Name{Account: "acct", Kind: id.Route, Owner: [16]byte{number}}, &p)}
}

// limiter returns a limiter by the clock of the node.
func (n *clusterNode) limiter() *Limiter { return NewLimiter(func() int64 { return n.clock().Mono }) }

// decide decides one request, which is charged 1 of each limit.
func (n *clusterNode) decide(limits ...Limit) (Result, []Status, error) {
	c, status := chargeOf(limits...), make([]Status, len(limits))
	r, err := n.take(c)
	c.copyTo(status)
	return r, status, err
}

// take decides one request, as package admit does.
func (n *clusterNode) take(c *Charge) (Result, error) {
	for {
		switch r := new(Limiter).Decide(n.clock(), c); r {
		case NeedsTicket:
			if err := c.Wait(context.Background()); err != nil {
				return r, err
			}
		case Refused:
			n.limiter().Release(c)
			return r, nil
		default:
			return r, nil
		}
	}
}

// request sends a request and records when it passed.
func (n *clusterNode) request(limits ...Limit) Result {
	after := time.Now()
	r, _, err := n.decide(limits...)
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	if err == nil && r == Admitted {
		n.c.passed = append(n.c.passed, passing{after, time.Now()})
	} else {
		n.c.refused++
	}
	return r
}

// load sends requests for some time, one per pace on average, without waiting for the answers.
func (n *clusterNode) load(random *rand.Rand, lasts, pace time.Duration, limits ...Limit) {
	var wait sync.WaitGroup
	for end := time.Now().Add(lasts); time.Now().Before(end); {
		<-time.After(time.Duration(random.ExpFloat64() * float64(pace)))
		wait.Go(func() { n.request(limits...) })
	}
	wait.Wait()
}

// excess returns by how much the requests that passed within some window exceed capacity + extra +
// rate × its length, at most.
func (c *cluster) excess(capacity, extra, perSecond float64) (most float64, where string) {
	slices.SortFunc(c.passed, func(a, b passing) int { return a.after.Compare(b.after) })
	ends := slices.Clone(c.passed)
	slices.SortFunc(ends, func(a, b passing) int { return a.before.Compare(b.before) })
	step := max(1, len(c.passed)/200) // windows that begin at some of the requests
	most = -1e18
	for i := 0; i < len(c.passed); i += step {
		begin, count := c.passed[i].after, 0.0
		for _, one := range ends {
			if one.after.Before(begin) {
				continue
			}
			count++
			length := one.before.Sub(begin)
			if over := count - extra - capacity - perSecond*length.Seconds(); over > most {
				most, where = over, fmt.Sprintf("%.0f passed in %v", count, length)
			}
		}
	}
	return most, where
}

func (c *cluster) stats() (sum SharingStats) {
	for _, n := range c.nodes {
		s := n.sharing.Stats()
		sum.Late, sum.Losses, sum.Waits, sum.RoundTrips = sum.Late+s.Late, sum.Losses+s.Losses, sum.Waits+s.Waits, sum.RoundTrips+s.RoundTrips
	}
	return sum
}

// Guarantee: in the mode leased at most capacity + window × rate + outstanding requests pass in any
// window, for any load of each node; under enough load, at least 95 % of that pass; a node makes at
// most 50 trips a second for a bucket; and nearly no request of a steady load waits.
func TestLeasedBounds(t *testing.T) {
	const perSecond, lasts = 400.0, 3 * time.Second
	for name, tc := range map[string]struct {
		burst  float64
		demand []float64 // of each node, in parts of the rate
	}{
		"one node":          {400, []float64{3}},
		"equal":             {400, []float64{1, 1, 1}},
		"skewed":            {400, []float64{2.5, 0.02, 0.01, 0.005, 0.001}},
		"below the limit":   {400, []float64{0.3, 0.3, 0.2}},
		"small capacity":    {20, []float64{1, 0.7}},
		"capacity of 0.4 s": {160, []float64{0.5, 0.9, 0.05}},
		"large burst":       {1200, []float64{5, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCluster(t, len(tc.demand), Leased, DivideOnLoss)
				defer c.stop()
				config := Config{Sustained: perSecondRate(perSecond), Burst: perSecondRate(tc.burst)}
				total, outstanding := 0.0, float64(0)
				var wait sync.WaitGroup
				began := time.Now()
				for i, demand := range tc.demand {
					total += demand
					l := c.nodes[i].limit(1, config)
					outstanding = float64(l.Params.ahead())
					random := rand.New(rand.NewPCG(uint64(i), 1))
					wait.Go(func() { c.nodes[i].load(random, lasts, time.Duration(float64(time.Second)/demand/perSecond), l) })
				}
				wait.Wait()
				took := time.Since(began)
				if over, where := c.excess(tc.burst, outstanding, perSecond); over > 0 {
					t.Errorf("%.0f too many: %s", over, where)
				}
				possible := min(total*perSecond*lasts.Seconds(), tc.burst+perSecond*lasts.Seconds())
				if got := float64(len(c.passed)); got < 0.95*possible-3*tc.burst/100 {
					t.Errorf("%.0f requests passed, want nearly %.0f", got, possible)
				}
				s := c.stats()
				for i, n := range c.nodes {
					if trips := n.sharing.Stats().RoundTrips; float64(trips) > 50*took.Seconds()+1 {
						t.Errorf("node %d made %d trips in %v, want at most 50 a second", i, trips, took)
					}
				}
				if s.Late+s.Losses > 0 {
					t.Errorf("%d requests were late and the store was lost %d times, want never", s.Late, s.Losses)
				}
				if waited := float64(s.Waits) / float64(len(c.passed)+c.refused); name == "below the limit" && waited > 0.1 {
					t.Errorf("%.0f %% of the requests waited, want less than 10 %%", 100*waited)
				}
				t.Logf("%d passed, %d refused, %+v", len(c.passed), c.refused, s)
			})
		})
	}
}

func perSecondRate(n float64) Rate { return Rate{Count: int64(n), Per: time.Second} }

// Guarantee: with any random faults of the store (it refuses, hangs, answers late or not at all, and
// loses its data) at most one more capacity passes in a window, in the mode divide.
func TestFlappingStoreAddsOneCapacity(t *testing.T) {
	const perSecond, capacity, nodes = 200.0, 400.0, 3
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCluster(t, nodes, []Mode{Leased, Exact}[seed%2], DivideOnLoss)
				defer c.stop()
				config := Config{Sustained: perSecondRate(perSecond), Burst: perSecondRate(capacity)}
				var wait sync.WaitGroup
				for i, n := range c.nodes {
					random := rand.New(rand.NewPCG(seed, uint64(i)))
					l := n.limit(1, config)
					wait.Go(func() { n.load(random, 12*time.Second, time.Duration(3+random.IntN(12))*time.Millisecond, l) })
				}
				wait.Go(func() { c.store.flap(rand.New(rand.NewPCG(seed, 99)), 10*time.Second) })
				wait.Wait()
				if over, where := c.excess(capacity, capacity+10+nodes, perSecond); over > 0 {
					t.Errorf("%.0f too many: %s", over, where)
				}
				if s := c.stats(); s.Losses == 0 {
					t.Error("the store was never lost")
				}
			})
		})
	}
}

// flap makes random faults for some time.
func (s *memoryLimitStore) flap(random *rand.Rand, lasts time.Duration) {
	for end := time.Now().Add(lasts); time.Now().Before(end); {
		<-time.After(time.Duration(random.IntN(400)) * time.Millisecond)
		fault := random.IntN(5)
		s.set(func() {
			s.down, s.hangs, s.mute = fault == 0, fault == 1, fault == 2
			s.delay = time.Duration(random.IntN(2000)) * time.Microsecond
			if fault == 3 {
				s.delay = 40 * time.Millisecond
			}
		})
		<-time.After(time.Duration(random.IntN(300)) * time.Millisecond)
		s.set(func() { s.down, s.hangs, s.mute, s.delay = false, false, false, 500*time.Microsecond })
	}
}

// Guarantee: a request waits at most 50 ms for a store that hangs, later requests do not wait, and
// all are decided as the setting says.
func TestStoreThatHangs(t *testing.T) {
	for onLoss, want := range map[OnLoss]string{DivideOnLoss: "5 of 20", AllowOnLoss: "20 of 20", RefuseOnLoss: "0 of 20"} {
		t.Run(string(onLoss), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCluster(t, 2, Leased, onLoss)
				defer c.stop()
				c.store.set(func() { c.store.hangs = true })
				l := c.nodes[0].limit(1, Config{Sustained: perDay(10)})
				passed := 0
				for i := range 20 {
					began := time.Now()
					r, _, err := c.nodes[0].decide(l)
					if waited := time.Since(began); waited > 50*time.Millisecond || i > 0 && waited > 0 {
						t.Errorf("request %d waited %v", i, waited)
					}
					if r == Admitted && err == nil {
						passed++
					}
					if onLoss == RefuseOnLoss && fault.CodeOf(err) != fault.Unavailable {
						t.Errorf("got the error %v, want unavailable", err)
					}
					synctest.Wait() // for the attempt that finds the store lost, which ends at the same time as the first wait
				}
				if got := fmt.Sprintf("%d of 20", passed); got != want {
					t.Errorf("%s passed, want %s", got, want)
				}
				if c.nodes[0].sharing.Trouble() != StoreAway {
					t.Error("the node does not say that the store is away")
				}
				c.store.set(func() { c.store.hangs = false })
				<-time.After(time.Second)
				if _, s, err := c.nodes[1].decide(c.nodes[1].limit(1, Config{Sustained: perDay(10)})); err != nil || onLoss == DivideOnLoss && s[0].Remaining != 4 {
					t.Errorf("after the return %d are left on the other node, %v; want 4: what passed meanwhile was reported", s[0].Remaining, err)
				}
			})
		})
	}
}

// Guarantee: in the mode exact, requests of all nodes are decided one by one: exactly the capacity
// passes, and a request that one limit refuses is charged to none.
func TestExactDecidesAllLimitsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3, Exact, DivideOnLoss)
		defer c.stop()
		var wait sync.WaitGroup
		for _, n := range c.nodes {
			wide, narrow := n.limit(1, Config{Sustained: perDay(1000)}), n.limit(2, Config{Sustained: perDay(10)})
			for range 20 {
				wait.Go(func() { n.request(wide, narrow) })
			}
		}
		wait.Wait()
		if len(c.passed) != 10 {
			t.Errorf("%d passed, want 10", len(c.passed))
		}
		_, s, err := c.nodes[0].decide(c.nodes[0].limit(1, Config{Sustained: perDay(1000)}))
		if err != nil || s[0].Remaining != 989 {
			t.Errorf("of the wide limit %d are left, %v; want 989", s[0].Remaining, err)
		}
	})
}

// Guarantee: a request that waits for several limits, one of which refuses, charges none of them.
func TestLeasedRefusalChargesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 2, Leased, DivideOnLoss)
		defer c.stop()
		var wait sync.WaitGroup
		for _, n := range c.nodes {
			wide, narrow := n.limit(1, Config{Sustained: perDay(1000)}), n.limit(2, Config{Sustained: perDay(10)})
			for range 50 {
				wait.Go(func() { n.request(wide, narrow) })
			}
		}
		wait.Wait()
		if len(c.passed) != 10 {
			t.Errorf("%d passed, want 10", len(c.passed))
		}
		_, s, err := c.nodes[0].decide(c.nodes[0].limit(1, Config{Sustained: perDay(1000)}))
		if err != nil || s[0].Remaining != 989 {
			t.Errorf("of the wide limit %d are left, %v; want 989", s[0].Remaining, err)
		}
	})
}
