package limitstore

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
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
	skew   time.Duration
	log    io.Writer                         // nil discards
	store  func(*Store) ratelimit.LimitStore // what the node uses in place of its Store, if it is not nil
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
	if n.store, err = New(Config{Address: a, Installation: func() string { return "test" }, Node: name, Log: slog.New(log)}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.store.Close)
	var store ratelimit.LimitStore = n.store
	if o.store != nil {
		store = o.store(n.store)
	}
	clock := ratelimit.NewClock()
	n.clock = func() ratelimit.Instant {
		now := clock.Now()
		now.Mono += int64(o.skew)
		now.Wall += int64(o.skew)
		return now
	}
	n.sharing, err = ratelimit.NewSharing(ratelimit.SharingConfig{
		Mode: o.mode, OnLoss: o.onLoss, Store: store, Now: n.clock,
		Shares:  func() ratelimit.Share { return ratelimit.Share{} },
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

// load sends requests at the given pace until the time is over.
func (p *passings) load(n *node, until time.Time, pace time.Duration, limits ...ratelimit.Limit) {
	var own []passing
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for ; !time.Now().After(until); <-tick.C {
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

// virtualStore is a real store for nodes in a bubble of synctest, and has its time. That time stands while a
// question is under way: nothing is late, however busy the machine is.
type virtualStore struct {
	*Store
	calls chan<- func() // to a goroutine outside of the bubble
}

// serveBubble runs functions for a bubble, outside of it, until the test ends.
func serveBubble(t *testing.T) chan<- func() {
	t.Helper()
	calls := make(chan func())
	for range 8 {
		go func() { // ends with the test
			for f := range calls {
				f()
			}
		}()
	}
	t.Cleanup(func() { close(calls) })
	return calls
}

// newVirtualStore makes the script of s read the time from two keys, which each question sets.
func newVirtualStore(t *testing.T, s *Store, calls chan<- func()) ratelimit.LimitStore {
	t.Helper()
	const now = `redis.call('TIME')`
	if strings.Count(takeScript, now) != 1 {
		t.Fatalf("the script does not have %s once", now)
	}
	v := virtualStore{s, calls}
	if err := v.outside(func() (err error) {
		c, err := s.connect()
		if err != nil {
			return err
		}
		script := strings.Replace(takeScript, now, `redis.call('MGET', 'seconds', 'microseconds')`, 1)
		s.sha, err = c.Do(context.Background(), c.B().ScriptLoad().Script(script).Build()).ToString()
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return v
}

// outside runs f outside of the bubble. To wait for a mutex does not let the time of the bubble pass.
func (v virtualStore) outside(f func() error) (err error) {
	var running sync.Mutex
	running.Lock()
	v.calls <- func() {
		defer running.Unlock()
		err = f()
	}
	running.Lock()
	return err
}

// Ask implements ratelimit.LimitStore. A question takes 200 µs.
func (v virtualStore) Ask(_ context.Context, questions []ratelimit.Question) error {
	<-time.After(200 * time.Microsecond)
	now := time.Now()
	return v.outside(func() error {
		c := *v.client.Load()
		set := c.B().Mset().KeyValue().KeyValue("seconds", fmt.Sprint(now.Unix())).KeyValue("microseconds", fmt.Sprint(now.Nanosecond()/1000)).Build()
		if err := c.Do(context.Background(), set).Error(); err != nil {
			return err
		}
		return v.Store.Ask(context.Background(), questions)
	})
}

// Check implements ratelimit.LimitStore.
func (v virtualStore) Check(context.Context) error {
	return v.outside(func() error { return v.Store.Check(context.Background()) })
}

// Guarantee: with a real store, whatever the load of each node and however their clocks differ, at most
// capacity + window × rate + outstanding requests pass in any window, and a node makes at most 50
// trips a second for a bucket.
func TestLeasedLimitHoldsOverNodes(t *testing.T) {
	server := redistest.Start(t)
	const perSecond, outstanding = 3000, 150
	const busy = 150 * time.Microsecond // more than twice the limit by itself
	for name, paces := range map[string][]time.Duration{
		"all nodes busy":                 {busy, busy, busy},
		"one node busy":                  {busy, 20 * time.Millisecond, 50 * time.Millisecond},
		"one node busy, others give up":  {busy, -busy, -busy},
		"busy together, each below half": {700 * time.Microsecond, 700 * time.Microsecond},
	} {
		t.Run(name, func(t *testing.T) {
			calls := serveBubble(t)
			synctest.Test(t, func(t *testing.T) {
				var all passings
				var loads []func()
				var nodes []*node
				for i := range paces {
					nodes = append(nodes, startNode(t, server, fmt.Sprint(name, i), nodeOptions{
						mode: ratelimit.Leased, skew: time.Duration(i) * time.Hour,
						store: func(s *Store) ratelimit.LimitStore { return newVirtualStore(t, s, calls) },
					}))
				}
				began := time.Now()
				for i, pace := range paces {
					n := nodes[i]
					l := n.limit(byte(len(name)), ratelimit.Config{Sustained: rate(perSecond, time.Second)})
					end := began.Add(1500 * time.Millisecond)
					if pace < 0 { // it takes tokens and leaves them
						end, pace = began.Add(200*time.Millisecond), -pace
					}
					for range 8 {
						loads = append(loads, func() { all.load(n, end, pace*8, l) })
					}
				}
				together(loads...)
				took := time.Since(began).Seconds()
				if over, where := all.exceeds(perSecond, outstanding, perSecond); over > 0 {
					t.Errorf("%.0f too many: %s", over, where)
				}
				for i, n := range nodes {
					s := n.sharing.Stats()
					if float64(s.RoundTrips) > 50*took+2 {
						t.Errorf("node %d made %d trips in %.1f s, want at most 50 a second", i, s.RoundTrips, took)
					}
					if s.Late+s.Losses > 0 {
						t.Errorf("node %d: %d requests were late and the store was lost %d times, want never", i, s.Late, s.Losses)
					}
					t.Logf("node %d: %+v", i, s)
				}
				t.Logf("%d requests in %.2f s", len(all.all), took)
			})
		})
	}
}
