package limitstore

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/keygatetest/redistest"
	"github.com/keygate/keygate/internal/ratelimit"
)

// node is one of several nodes that share limits, as the data plane uses them.
type node struct {
	sharing *ratelimit.Sharing
	store   *Store
	clock   func() ratelimit.Instant
}

// nodeOptions are what differs between nodes.
type nodeOptions struct {
	mode   ratelimit.Mode
	onLoss ratelimit.OnLoss
	share  ratelimit.Share
	skew   time.Duration
	dial   dialer
	log    io.Writer // nil discards
}

// startNode starts a node whose clock is ahead by skew.
func startNode(t *testing.T, server *redistest.Server, name string, o nodeOptions) *node {
	t.Helper()
	a, err := ParseAddress("redis://" + server.Addr)
	if err != nil {
		t.Fatal(err)
	}
	n := &node{}
	log := slog.DiscardHandler
	if o.log != nil {
		log = slog.NewTextHandler(o.log, nil)
	}
	if n.store, err = New(Config{Address: a, Installation: func() string { return "test" }, Node: name, Dial: o.dial, Log: slog.New(log)}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.store.Close)
	clock := ratelimit.NewClock()
	n.clock = func() ratelimit.Instant {
		now := clock.Now()
		now.Mono += int64(o.skew)
		now.Wall += int64(o.skew)
		return now
	}
	n.sharing, err = ratelimit.NewSharing(ratelimit.SharingConfig{
		Mode: o.mode, OnLoss: o.onLoss, Store: n.store, Now: n.clock,
		Shares:  func() ratelimit.Share { return o.share },
		Version: func() int64 { return 1 },
		CatchUp: func(context.Context) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.sharing.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.sharing.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return n
}

// limit returns the limit with the given number of an account.
func (n *node) limit(number byte, c ratelimit.Config) ratelimit.Limit {
	p := ratelimit.Compile(c)
	name := ratelimit.Name{Account: "acct", Kind: id.Route, Owner: [16]byte{number}}
	return ratelimit.Limit{Scope: ratelimit.RouteScope, Params: &p, Bucket: n.sharing.NewBucket(name, &p)}
}

// decide decides one request, as package admit does.
func (n *node) decide(limits ...ratelimit.Limit) (ratelimit.Result, error) {
	var c ratelimit.Charge
	for _, l := range limits {
		c.Add(l, 1)
	}
	limiter := ratelimit.NewLimiter(func() int64 { return n.clock().Mono })
	for {
		switch r := new(ratelimit.Limiter).Decide(n.clock(), &c); r {
		case ratelimit.NeedsTicket:
			if err := c.Wait(context.Background()); err != nil {
				return r, err
			}
		case ratelimit.Refused:
			limiter.Release(&c)
			return r, nil
		default:
			return r, nil
		}
	}
}

// passing is when a request passed: at some moment between two.
type passing struct{ after, before time.Time }

// passings are the requests that passed at all nodes.
type passings struct {
	mu  sync.Mutex
	all []passing
}

// load sends requests at the given pace (0: as fast as it goes) until the time is over.
func (p *passings) load(n *node, until time.Time, pace time.Duration, limits ...ratelimit.Limit) {
	var own []passing
	next := time.Now()
	for {
		now := time.Now()
		if now.After(until) {
			break
		}
		if pace > 0 {
			if now.Before(next) {
				timer := time.NewTimer(next.Sub(now))
				<-timer.C
			}
			next = next.Add(pace)
		}
		one := passing{after: time.Now()}
		if r, err := n.decide(limits...); err == nil && r == ratelimit.Admitted {
			one.before = time.Now()
			own = append(own, one)
		}
	}
	p.mu.Lock()
	p.all = append(p.all, own...)
	p.mu.Unlock()
}

// exceeds returns by how much the requests that certainly passed within some window exceed
// extra + capacity + rate × its length, at most.
func (p *passings) exceeds(capacity, extra, perSecond float64) (most float64, where string) {
	all := slices.Clone(p.all)
	slices.SortFunc(all, func(a, b passing) int { return a.after.Compare(b.after) })
	ends := slices.Clone(all)
	slices.SortFunc(ends, func(a, b passing) int { return a.before.Compare(b.before) })
	step := max(1, len(all)/400) // windows that begin at some of the requests
	most = -1e18
	for i := 0; i < len(all); i += step {
		begin, count := all[i].after, 0.0
		for _, one := range ends {
			if one.after.Before(begin) {
				continue
			}
			count++
			if over := count - extra - capacity - perSecond*one.before.Sub(begin).Seconds(); over > most {
				most = over
				where = fmt.Sprintf("%.0f passed in %v", count, one.before.Sub(begin))
			}
		}
	}
	return most, where
}

// together runs the loads at once.
func together(loads ...func()) {
	var wait sync.WaitGroup
	for _, load := range loads {
		wait.Go(load)
	}
	wait.Wait()
}

func rate(n int64, per time.Duration) ratelimit.Rate { return ratelimit.Rate{Count: n, Per: per} }

// Guarantee: with a real store, whatever the load of each node and however their clocks differ, at most
// capacity + window × rate + outstanding requests pass in any window, and a node makes at most 50
// trips a second for a bucket.
func TestLeasedLimitHoldsOverNodes(t *testing.T) {
	server := redistest.Start(t)
	const perSecond, outstanding = 3000, 150
	for name, paces := range map[string][]time.Duration{
		"all nodes busy":                 {0, 0, 0},
		"one node busy":                  {0, 20 * time.Millisecond, 50 * time.Millisecond},
		"one node busy, others give up":  {0, -1, -1},
		"busy together, each below half": {700 * time.Microsecond, 700 * time.Microsecond},
	} {
		t.Run(name, func(t *testing.T) {
			var all passings
			var loads []func()
			var nodes []*node
			for i := range paces {
				nodes = append(nodes, startNode(t, server, fmt.Sprint(name, i), nodeOptions{mode: ratelimit.Leased, skew: time.Duration(i) * time.Hour}))
			}
			began := time.Now()
			until := began.Add(1500 * time.Millisecond)
			for i, pace := range paces {
				n := nodes[i]
				l := n.limit(byte(len(name)), ratelimit.Config{Sustained: rate(perSecond, time.Second)})
				for range 8 {
					loads = append(loads, func() {
						end := until
						if pace < 0 { // it takes tokens and leaves them
							end = began.Add(200 * time.Millisecond)
						}
						all.load(n, end, max(pace*8, 0), l)
					})
				}
			}
			together(loads...)
			took := time.Since(began).Seconds()
			extra := float64(outstanding)
			for _, n := range nodes {
				if s := n.sharing.Stats(); s.Late+s.Losses > 0 { // the machine is so busy that the loss mode applied
					extra = outstanding + perSecond
				}
			}
			if over, where := all.exceeds(perSecond, extra, perSecond); over > 0 {
				t.Errorf("%.0f too many: %s", over, where)
			}
			for i, n := range nodes {
				if s := n.sharing.Stats(); float64(s.RoundTrips) > 50*took+2 {
					t.Errorf("node %d made %d trips in %.1f s, want at most 50 a second", i, s.RoundTrips, took)
				} else {
					t.Logf("node %d: %+v", i, s)
				}
			}
			t.Logf("%d requests in %.2f s", len(all.all), took)
		})
	}
}
