package snapshot_test

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/snapshot"
)

// Guarantee: Levels reports every limit of a gateway with what is left of it, limits of
// single keys only while they are in use, and nothing of other gateways or accounts.
func TestLevels(t *testing.T) {
	h := newHarness(t)
	g, other := h.gateway(), h.gateway()
	g.GlobalLimit = config(t, "100/min", "", "", "")
	shared := route("/shared", config(t, "10/min", "", "50/day", ""), "GET")
	each := route("/each", config(t, "6/min", "", "20/day", "key"), "GET")
	free := route("/free", ratelimit.Config{}, "GET")
	h.source.PutGateway(g, shared, each, free)
	h.source.PutGateway(other, route("/shared", config(t, "10/min", "", "", ""), "GET"))
	own, elsewhere := h.keyWith(t, "7/min", ""), h.keyWith(t, "7/min", other.ID)
	idle := h.keyWith(t, "7/min", g.ID)
	h.catchUp()

	levels := func() map[string]int64 {
		got := map[string]int64{}
		h.follower.Levels(g.ID, func(l ratelimit.Level) {
			name := l.Scope.String()
			switch l.Route {
			case parse(t, id.Route, shared.ID):
				name += " shared"
			case parse(t, id.Route, each.ID):
				name += " each"
			}
			if l.Key != ([16]byte{}) {
				name += " " + id.Format(id.Key, l.Key)
			}
			if _, twice := got[name]; twice {
				t.Errorf("%s is reported twice", name)
			}
			got[name] = l.Remaining
		})
		return got
	}
	want := map[string]int64{"global": 100, "route shared": 10, "daily shared": 50}
	check := func(when string) {
		t.Helper()
		if got := levels(); !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	check("before any request")

	s := h.follower.Current()
	charge := func(path string, keys ...*snapshot.Key) {
		t.Helper()
		r := s.GatewayByID(g.ID).Find(path).Route("GET")
		for _, k := range keys {
			limits := r.AppendLimits(nil, h.clock.Now(), k.BucketID())
			if l, ok := k.Limit(); ok {
				limits = slices.Insert(limits, 0, l)
			}
			limits = append(limits, s.GatewayByID(g.ID).Global())
			var status [ratelimit.MaxLimits]ratelimit.Status
			for {
				result, worst := ratelimit.Decide(h.clock.Now(), limits, status[:])
				if result == ratelimit.Admitted {
					break
				}
				if result != ratelimit.NeedsReservation {
					t.Fatalf("got %v, want Admitted or NeedsReservation", result)
				}
				if err := h.reserver.Wait(context.Background(), limits[worst].Daily); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	find := func(secret string) *snapshot.Key { return s.FindKey(secret) }
	charge("/shared", find(own.secret), find(own.secret))
	charge("/each", find(own.secret), find(elsewhere.secret))
	want["global"], want["route shared"], want["daily shared"] = 96, 8, 48
	want["key "+own.ID] = 4
	for _, k := range []string{own.ID, elsewhere.ID} {
		want["route each "+k], want["daily each "+k] = 5, 19
	}
	check("after requests")
	if _, reported := want["key "+idle.ID]; reported {
		t.Fatal("the test expects an idle key")
	}

	h.clock.Advance(20 * time.Second)
	want["global"], want["route shared"] = 100, 10
	want["key "+own.ID] = 6
	delete(want, "route each "+own.ID)
	delete(want, "route each "+elsewhere.ID)
	check("after 20 seconds of refill")

	// The level of a changed bucket is in proportion to its new limit.
	charge("/each", find(own.secret), find(own.secret), find(own.secret))
	each.RateLimit = config(t, "12/min", "", "20/day", "key")
	h.source.PutGateway(g, shared, each, free)
	h.catchUp()
	want["global"], want["key "+own.ID], want["route each "+own.ID], want["daily each "+own.ID] = 97, 3, 6, 16
	check("after a change of the limit")

	h.follower.Levels(id.New(id.Gateway), func(l ratelimit.Level) { t.Errorf("an unknown gateway has the level %+v, want none", l) })
}

type heldKey struct{ ID, secret string }

// keyWith stores a key with a rate limit.
func (h *harness) keyWith(t *testing.T, limit, gatewayID string) heldKey {
	t.Helper()
	k, secret := h.key()
	k.RateLimit, k.GatewayID = rate(t, limit), gatewayID
	h.source.PutKey(k)
	return heldKey{k.ID, secret}
}

func parse(t *testing.T, k id.Kind, s string) [16]byte {
	t.Helper()
	u, ok := id.Parse(k, s)
	if !ok {
		t.Fatalf("%q is not a valid identifier", s)
	}
	return u
}
