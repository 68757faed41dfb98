package admit

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/keygatetest/redistest"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/ratelimit/limitstore"
	"github.com/keygate/keygate/internal/snapshot"
)

// planNode returns a node that follows the source of h and shares its limits. late reports whether it has ever decided
// without the limit store.
func planNode(t *testing.T, h *harness, server *redistest.Server, name string, mode ratelimit.Mode) (n *harness, late func() bool) {
	t.Helper()
	address, err := limitstore.ParseAddress("redis://" + server.Addr)
	if err != nil {
		t.Fatal(err)
	}
	store, err := limitstore.New(limitstore.Config{Address: address, Installation: func() string { return "test" }, Node: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	now := ratelimit.NewClock().Now
	sharing, err := ratelimit.NewSharing(ratelimit.SharingConfig{
		Mode: mode, OnLoss: ratelimit.RefuseOnLoss, Store: store, Now: now,
		Version: func() int64 { return n.follower.InForce() },
		CatchUp: func(ctx context.Context) error { return n.follower.CatchUp(ctx) },
	})
	if err != nil {
		t.Fatal(err)
	}
	n = newHarnessWith(t, func(c *snapshot.Config) { c.Source, c.Sharing, c.Now = h.source, sharing, now })
	if n.admit, err = New(Config{Follower: n.follower, Now: now}); err != nil {
		t.Fatal(err)
	}
	if err := sharing.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sharing.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return n, func() bool { return sharing.Stats().Late+sharing.Stats().Losses > 0 }
}

// admits makes n requests with the keys in turn, and returns how many were admitted.
func (h *harness) admits(n int, secrets ...string) (admitted int64) {
	v := new(Verdict)
	for i := range n {
		req := Request{Method: "GET", Host: "any.example", Target: "/", Authorization: "Bearer " + secrets[i%len(secrets)], Authorizations: 1}
		for {
			h.admit.Decide(&req, v)
			if v.Action != Wait {
				break
			}
			if err := h.admit.Wait(context.Background(), v); err != nil { // the store was late
				break
			}
		}
		if v.result() == accesslog.Forwarded {
			admitted++
		}
	}
	return admitted
}

// Guarantee: over three nodes, a limit of a plan admits an owner no more than it allows, with whatever keys and at whatever
// node, and all of it if the limit store decides each request and answers in time. After the plan is raised, the difference is there at once.
func TestLimitOfAPlanOverNodes(t *testing.T) {
	for _, mode := range []ratelimit.Mode{ratelimit.Exact, ratelimit.Leased} {
		t.Run(string(mode), func(t *testing.T) {
			server := redistest.Start(t)
			h := newHarness(t)
			p := h.plan("free", "a owner 60/day", "b key 1000/day")
			h.gateway(byDefault(p.ID), route("/", "GET"))
			o := h.owner("customer", "")
			_, first := h.keyOf(&o, "")
			_, second := h.keyOf(&o, "")
			var nodes [3]*harness
			var late [3]func() bool
			for i := range nodes {
				nodes[i], late[i] = planNode(t, h, server, fmt.Sprint("node", i), mode)
			}
			total := int64(0)
			for _, limit := range []int64{60, 90} {
				p.Limits = h.planLimits(fmt.Sprintf("a owner %d/day", limit), "b key 1000/day")
				h.source.PutPlan(p)
				var admitted atomic.Int64
				var all sync.WaitGroup
				for _, n := range nodes {
					n.catchUp()
					all.Go(func() { admitted.Add(n.admits(100, first, second)) })
				}
				all.Wait()
				got, want := admitted.Load(), map[int64]int64{60: 60, 90: 30}[limit]
				if total += got; total > limit {
					t.Errorf("limit %d: %d requests were admitted", limit, total)
				}
				if mode == ratelimit.Exact && got != want && !late[0]() && !late[1]() && !late[2]() {
					t.Errorf("limit %d: %d requests were admitted, want %d", limit, got, want)
				}
			}
		})
	}
}
