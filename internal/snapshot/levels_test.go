package snapshot_test

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/clientip"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
)

// levelsHarness has a gateway with a route whose limits all callers share, a route with
// limits for each key and one without limits, another gateway with a limited route, and
// keys with a rate limit: own for both gateways, elsewhere for the other, and idle, which
// makes no request.
type levelsHarness struct {
	*harness
	t                    *testing.T
	g                    gateway.Gateway
	shared, each, free   gateway.Route
	own, elsewhere, idle heldKey
}

func newLevelsHarness(t *testing.T) *levelsHarness {
	t.Helper()
	h := &levelsHarness{harness: newHarness(t), t: t}
	h.g = h.gateway()
	other := h.gateway()
	h.g.GlobalLimit = config(t, "100/min", "", "", "")
	h.shared = route("/shared", config(t, "10/min", "", "50/day", ""), "GET")
	h.each = route("/each", config(t, "6/min", "", "20/day", "key"), "GET")
	h.free = route("/free", ratelimit.Config{}, "GET")
	h.source.PutGateway(h.g, h.shared, h.each, h.free)
	h.source.PutGateway(other, route("/shared", config(t, "10/min", "", "", ""), "GET"))
	h.own, h.elsewhere = h.keyWith(t, "7/min", ""), h.keyWith(t, "7/min", other.ID)
	h.idle = h.keyWith(t, "7/min", h.g.ID)
	h.catchUp()
	return h
}

// request charges one request of path for each of keys.
func (h *levelsHarness) request(path string, keys ...heldKey) {
	h.t.Helper()
	s := h.follower.Current()
	r := s.GatewayByID(h.g.ID).FindNode(path).Route("GET")
	for _, held := range keys {
		k := s.FindKey(held.secret)
		var c ratelimit.Charge
		k.AddLimits(&c)
		r.AddLimits(&c, k.BucketID(), clientip.Group{})
		s.GatewayByID(h.g.ID).AddLimit(&c)
		for {
			result := new(ratelimit.Limiter).Decide(h.clock.Now(), &c)
			if result == ratelimit.Admitted {
				break
			}
			if result != ratelimit.NeedsReservation {
				h.t.Fatalf("got %v, want Admitted or NeedsReservation", result)
			}
			if err := c.Wait(context.Background()); err != nil {
				h.t.Fatal(err)
			}
		}
	}
}

// requests sends two requests of /shared and one of each key of /each, and returns the
// levels that are left.
func (h *levelsHarness) requests() map[string]int64 {
	h.t.Helper()
	h.request("/shared", h.own, h.own)
	h.request("/each", h.own, h.elsewhere)
	return map[string]int64{
		"global": 96, "route shared": 8, "daily shared": 48, "key " + h.own.ID: 4,
		"route each " + h.own.ID: 5, "daily each " + h.own.ID: 19,
		"route each " + h.elsewhere.ID: 5, "daily each " + h.elsewhere.ID: 19,
	}
}

// wantLevels fails the test unless Levels reports exactly want: the requests that are left,
// by scope, route and key.
func (h *levelsHarness) wantLevels(want map[string]int64) {
	h.t.Helper()
	got := map[string]int64{}
	h.follower.Levels(h.t.Context(), h.g.ID, func(l ratelimit.Level) {
		name := l.Scope.String()
		switch l.Route {
		case parse(h.t, id.Route, h.shared.ID):
			name += " shared"
		case parse(h.t, id.Route, h.each.ID):
			name += " each"
		}
		if l.Key != ([16]byte{}) {
			name += " " + id.Format(id.Key, l.Key)
		}
		if _, twice := got[name]; twice {
			h.t.Errorf("%s is reported twice", name)
		}
		got[name] = l.Remaining
	})
	if !maps.Equal(got, want) {
		h.t.Errorf("got levels %v, want %v", got, want)
	}
}

// Guarantee: before any request, Levels reports the limits that callers share, and nothing
// of keys, other gateways or accounts.
func TestLevelsBeforeAnyRequest(t *testing.T) {
	h := newLevelsHarness(t)
	h.wantLevels(map[string]int64{"global": 100, "route shared": 10, "daily shared": 50})
	h.follower.Levels(t.Context(), id.New(id.Gateway), func(l ratelimit.Level) { t.Errorf("an unknown gateway has the level %+v, want none", l) })
}

// Guarantee: Levels reports the limits of single keys while they are in use: not of an idle
// key, and no longer once a bucket is full again.
func TestLevelsOfKeysInUse(t *testing.T) {
	h := newLevelsHarness(t)
	want := h.requests()
	h.wantLevels(want)
	if _, reported := want["key "+h.idle.ID]; reported {
		t.Fatal("the test expects a level of the idle key")
	}
	h.clock.Advance(20 * time.Second)
	want["global"], want["route shared"], want["key "+h.own.ID] = 100, 10, 6
	delete(want, "route each "+h.own.ID)
	delete(want, "route each "+h.elsewhere.ID)
	h.wantLevels(want)
}

// Guarantee: the level of a changed bucket is its new capacity less what was used.
func TestLevelsAfterAChange(t *testing.T) {
	h := newLevelsHarness(t)
	want := h.requests()
	h.clock.Advance(20 * time.Second)
	h.request("/each", h.own, h.own, h.own)
	h.each.RateLimit = config(t, "12/min", "", "20/day", "key")
	h.source.PutGateway(h.g, h.shared, h.each, h.free)
	h.catchUp()
	want["global"], want["route shared"], want["key "+h.own.ID] = 97, 10, 3
	want["route each "+h.own.ID], want["daily each "+h.own.ID] = 9, 16
	delete(want, "route each "+h.elsewhere.ID)
	h.wantLevels(want)
}

type heldKey struct{ ID, secret string }

// keyWith stores a key with a rate limit.
func (h *harness) keyWith(t *testing.T, limit, gatewayID string) heldKey {
	t.Helper()
	k, secret := h.key()
	k.RateLimit, k.GatewayID = keyLimit(t, limit), gatewayID
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
