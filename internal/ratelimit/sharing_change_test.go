package ratelimit

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keygate/keygate/internal/fault"
)

// spend sends requests until one is refused, and returns how many passed.
func (n *clusterNode) spend(t *testing.T, limits ...Limit) (passed int) {
	t.Helper()
	for {
		r, _, err := n.decide(limits...)
		if err != nil {
			t.Fatal(err)
		}
		if r != Admitted {
			return passed
		}
		passed++
	}
}

// Guarantee: a store that has lost its data gets the levels back from what the nodes last heard; the
// highest level counts. The same holds if only the lost buckets show the loss.
func TestEmptiedStoreGetsItsLevelsBack(t *testing.T) {
	for name, restart := range map[string]bool{"restarted": true, "emptied": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCluster(t, 2, Leased, DivideOnLoss)
				defer c.stop()
				a, b := c.nodes[0].limit(1, Config{Sustained: perDay(100)}), c.nodes[1].limit(1, Config{Sustained: perDay(100)})
				for range 30 {
					c.nodes[0].request(a)
				}
				c.nodes[1].request(b) // hears of all 31
				c.store.wipe(restart)
				if passed := c.nodes[0].spend(t, a); passed != 70 {
					t.Errorf("node 0, which has heard of 30 requests, passed %d more, want 70", passed)
				}
				c.store.wipe(restart)
				c.nodes[1].request(b)
				if passed := c.nodes[0].spend(t, a); passed != 0 {
					t.Errorf("after that %d more passed, want 0", passed)
				}
			})
		})
	}
}

// Guarantee: a node with an older configuration catches up before it is answered, and a node whose
// database has another history than the store takes over the store.
func TestOlderNodeCatchesUp(t *testing.T) {
	for name, tc := range map[string]struct {
		catchUp func(n *clusterNode, l *Limit) error
		want    int // requests that pass on the older node
	}{
		"the change is applied": {func(n *clusterNode, l *Limit) error {
			p := Compile(Config{Sustained: perDay(20)})
			l.Bucket, l.Params, n.version = l.Bucket.Convert(l.Params, &p, n.clock()), &p, 8
			return nil
		}, 10},
		"there is no such change": {func(*clusterNode, *Limit) error { return nil }, 90},
		"the database is away":    {func(*clusterNode, *Limit) error { return errors.New("away") }, -1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCluster(t, 2, Leased, DivideOnLoss)
				defer c.stop()
				newer, older := c.nodes[0], c.nodes[1]
				newer.version, older.version = 8, 7
				l := newer.limit(1, Config{Sustained: perDay(20)})
				for range 10 {
					newer.request(l)
				}
				l = older.limit(1, Config{Sustained: perDay(100)})
				caught := false
				older.catchUp = func() error {
					caught = true
					return tc.catchUp(older, &l)
				}
				if _, _, err := older.decide(l); tc.want < 0 {
					if fault.CodeOf(err) != fault.Unavailable {
						t.Errorf("got the error %v, want unavailable", err)
					}
					return
				}
				passed := 0
				for {
					r, _, err := older.decide(l)
					if err != nil {
						t.Fatal(err)
					}
					if r != Admitted && r != Stale {
						break
					}
					if r == Admitted {
						passed++
					}
				}
				if !caught || passed < tc.want-1 || passed > tc.want {
					t.Errorf("caught up: %v, and %d passed, want %d", caught, passed, tc.want)
				}
			})
		})
	}
}

// Guarantee: divided limits are whole shares that sum to the limit and need no store. A node that
// joins takes a share that others give up, and a node that leaves gives the others nothing that it
// may have used.
func TestDividedLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{t: t}
		for i := range 3 {
			n := &clusterNode{c: c, share: Share{i, 3}, clock: NewClock().Now}
			n.sharing, _ = NewSharing(SharingConfig{Mode: Divided, Now: n.clock, Shares: func() Share { return n.share }})
			c.nodes = append(c.nodes, n)
		}
		var limits []Limit
		total := 0
		for i, n := range c.nodes {
			limits = append(limits, n.limit(1, Config{Sustained: perDay(100)}))
			if i > 0 {
				total += n.spend(t, limits[i])
			}
		}
		if total != 66 {
			t.Errorf("two of three nodes passed %d, want 66", total)
		}
		_, s, err := c.nodes[0].decide(limits[0])
		if err != nil || s[0].Limit != 100 || s[0].Remaining != 33 {
			t.Errorf("limit %d with %d remaining, want 100 with 33", s[0].Limit, s[0].Remaining)
		}
		c.nodes[0].share = Share{0, 1} // the others leave
		c.nodes[0].sharing.Reshare()
		if passed := c.nodes[0].spend(t, limits[0]); passed != 33 {
			t.Errorf("the node that is left passes %d at once, want the 33 of its share", passed)
		}
		<-time.After(12 * time.Hour)
		if passed := c.nodes[0].spend(t, limits[0]); passed < 49 || passed > 50 {
			t.Errorf("after half of a day it passes %d, want 50: it has the whole rate", passed)
		}
	})
}
