package ratelimit

import (
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Guarantee: while one node is cut off from the store and the others are not, any window admits at most
// capacity + rate × its length + outstanding, and what the node's share gains during the loss. If the node knows
// that the bucket is empty, there is no full share on top. Losses that follow each other do not add up: requests
// that were admitted in an earlier loss are charged to the store, or else to the share, so that all losses
// together admit no more than a single loss with a full share.
func TestNodeAloneWithoutStore(t *testing.T) {
	const perSecond, capacity, ahead, nodes = 300.0, 300.0, 15.0, 3
	for name, tc := range map[string]struct {
		losses          int
		lasts, followed time.Duration
		share           float64 // requests of the share that may pass besides
	}{
		"one short loss":       {1, 300 * time.Millisecond, 3 * time.Second, 0},
		"one long loss":        {1, 5 * time.Second, 3 * time.Second, 0},
		"losses that flap":     {10, 500 * time.Millisecond, 100 * time.Millisecond, capacity / nodes},
		"many that flap":       {40, 250 * time.Millisecond, 100 * time.Millisecond, capacity / nodes},
		"losses with recovery": {4, 900 * time.Millisecond, 900 * time.Millisecond, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCluster(t, nodes, Leased, DivideOnLoss)
				defer c.stop()
				config := Config{Sustained: perSecondRate(perSecond), Burst: perSecondRate(capacity)}
				lasts := 3*time.Second + time.Duration(tc.losses)*(tc.lasts+tc.followed)
				var wait sync.WaitGroup
				for i, n := range c.nodes {
					l := n.limit(1, config)
					wait.Go(func() { n.load(rand.New(rand.NewPCG(1, uint64(i))), lasts, 3*time.Millisecond, l) })
				}
				wait.Go(func() {
					<-time.After(2 * time.Second) // then the bucket is empty
					for range tc.losses {
						c.nodes[0].away.Store(true)
						<-time.After(tc.lasts)
						c.nodes[0].away.Store(false)
						<-time.After(tc.followed)
					}
				})
				wait.Wait()
				gained := perSecond / nodes * (tc.lasts + checkInterval).Seconds() // until the node notices the return
				over, where := c.excess(capacity, ahead+1, perSecond)              // and one for the rounding of a share
				if over > gained+tc.share {
					t.Errorf("%.0f more than without losses: %s; want at most %.0f", over, where, gained+tc.share)
				}
				if tc.losses == 1 && over < gained/4 {
					t.Errorf("%.0f more than without losses, want some: the node has not used its share of %.0f", over, gained)
				}
				t.Logf("%.0f more, of at most %.0f: %s", over, gained+tc.share, where)
			})
		})
	}
}
