package snapshot_test

import (
	"context"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/clientip"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
)

// pass returns how many of n requests that are charged c are admitted now.
func (h *harness) pass(c *ratelimit.Charge, n int) int {
	h.t.Helper()
	passed := 0
	var l ratelimit.Limiter
	for range n {
		r := l.Decide(h.clock.Now(), c)
		for r == ratelimit.NeedsReservation {
			if err := c.Wait(context.Background()); err != nil {
				h.t.Fatal(err)
			}
			r = l.Decide(h.clock.Now(), c)
		}
		switch r {
		case ratelimit.Admitted:
			passed++
		case ratelimit.Stale:
			h.t.Fatal("a limit in force is closed")
		}
	}
	return passed
}

// left returns the status of the limit of c that has the fewest requests left.
func (h *harness) left(c *ratelimit.Charge) ratelimit.Status {
	new(ratelimit.Limiter).Peek(h.clock.Now(), c)
	return *c.Worst()
}

// shown returns the number of limits of c.
func (h *harness) shown(c *ratelimit.Charge) int {
	new(ratelimit.Limiter).Peek(h.clock.Now(), c)
	return c.Shown()
}

func (h *harness) routeLimits(gatewayID, path string, bucket [16]byte) *ratelimit.Charge {
	var c ratelimit.Charge
	h.follower.Current().GatewayByID(gatewayID).FindNode(path).Route("GET").AddLimits(&c, bucket, clientip.Group{})
	return &c
}

func (h *harness) keyLimits(secret string) *ratelimit.Charge {
	var c ratelimit.Charge
	h.follower.Current().FindKey(secret).AddLimits(&c)
	return &c
}

// limitsHarness has a gateway with a global limit and a route for each kind of limit.
type limitsHarness struct {
	*harness
	g                           gateway.Gateway
	shared, each, daily, dailyE gateway.Route
}

// newLimitsHarness returns a limitsHarness in which limitsKey has used 40 of the 100
// requests of a bucket, 20 of the 50 of a daily cap, and 400 of 1000 globally.
func newLimitsHarness(t *testing.T) *limitsHarness {
	t.Helper()
	h := &limitsHarness{harness: newHarness(t)}
	h.g = h.gateway()
	h.g.GlobalLimit = config(t, "1000/day", "", "", "")
	h.shared = route("/shared", config(t, "100/day", "", "", ""), "GET")
	h.each = route("/each", config(t, "100/day", "", "", ratelimit.PerKey), "GET")
	h.daily = route("/daily", config(t, "", "", "50/day", ""), "GET")
	h.dailyE = route("/daily-each", config(t, "", "", "50/day", ratelimit.PerKey), "GET")
	h.put()
	for path, want := range map[string]int{"/shared": 40, "/each": 40, "/daily": 20, "/daily-each": 20} {
		if got := h.pass(h.routeLimits(h.g.ID, path, limitsKey), want); got != want {
			t.Fatalf("%s admits %d requests, want %d", path, got, want)
		}
	}
	h.pass(h.global(), 400)
	return h
}

var limitsKey = [16]byte{7}

// put stores the gateway with its routes and more, and catches up.
func (h *limitsHarness) put(more ...gateway.Route) {
	h.t.Helper()
	h.source.PutGateway(h.g, append([]gateway.Route{h.shared, h.each, h.daily, h.dailyE}, more...)...)
	h.catchUp()
}

func (h *limitsHarness) global() *ratelimit.Charge {
	var c ratelimit.Charge
	h.follower.Current().GatewayByID(h.g.ID).AddLimit(&c)
	return &c
}

// Guarantee: no publication refills a bucket or resets a daily count (contract, 4.3).
func TestPublicationsRefillNothing(t *testing.T) {
	h := newLimitsHarness(t)
	for name, publish := range map[string]func(){
		"storing the same again": func() { h.put() },
		"an unrelated change":    func() { h.g.Name = "other"; h.put() },
		"another gateway":        func() { h.source.PutGateway(h.gateway()); h.catchUp() },
		"a trimmed change log":   func() { h.source.Trim(); h.source.PutAccount(h.account); h.source.Trim(); h.catchUp() },
		"Load":                   func() { _ = h.follower.Load(context.Background()) },
		"a new method":           func() { h.shared.Methods = []string{"GET", "POST"}; h.put() },
		"CatchUp only":           h.catchUp,
		"a new route":            func() { h.put(route("/new", ratelimit.Config{}, "GET")) },
		"deleting a gateway":     func() { h.source.DeleteGateway("gw_unknown"); h.catchUp() },
		"another account":        func() { h.source.PutAccount(account.Account{ID: id.New(id.Account), Name: "x"}); h.catchUp() },
	} {
		publish()
		for path, want := range map[string]int64{"/shared": 60, "/each": 60, "/daily": 30, "/daily-each": 30} {
			if s := h.left(h.routeLimits(h.g.ID, path, limitsKey)); s.Remaining != want {
				t.Errorf("after %s: %s has %d left, want %d", name, path, s.Remaining, want)
			}
		}
		if s := h.left(h.global()); s.Remaining != 600 || s.Default {
			t.Errorf("after %s: the global limit is %+v, want 600 left of the gateway's own", name, s)
		}
	}
}

// Guarantee: a changed limit keeps what was used of it, and a removed global limit is replaced by
// the default limit (contract, 4.3).
func TestChangedLimitsKeepTheirLevel(t *testing.T) {
	h := newLimitsHarness(t)
	h.shared.RateLimit = config(t, "200/day", "", "", "")
	h.each.RateLimit = config(t, "50/day", "", "", ratelimit.PerKey)
	h.daily.RateLimit = config(t, "", "", "30/day", "")
	h.dailyE.RateLimit = config(t, "", "", "60/day", ratelimit.PerKey)
	h.g.GlobalLimit = config(t, "500/day", "", "", "")
	h.put()
	for path, want := range map[string]int{"/shared": 160, "/each": 10, "/daily": 10, "/daily-each": 40} {
		if got := h.pass(h.routeLimits(h.g.ID, path, limitsKey), 300); got != want {
			t.Errorf("%s admits %d requests, want %d", path, got, want)
		}
	}
	if got := h.pass(h.global(), 1000); got != 100 {
		t.Errorf("the global limit admits %d requests, want 100", got)
	}
	h.g.GlobalLimit = ratelimit.Config{}
	h.put()
	if !h.left(h.global()).Default {
		t.Error("a gateway without a global limit does not have the default one")
	}
}

// Guarantee: when one daily count for all callers becomes one for each key, or the reverse,
// counting starts anew and the cap holds.
func TestDailyCapChangesItsKind(t *testing.T) {
	h := newHarness(t)
	g := h.gateway()
	r := route("/d", config(t, "", "", "5/day", ""), "GET")
	for _, per := range []string{"", ratelimit.PerKey, ""} {
		r.RateLimit.Per = per
		h.source.PutGateway(g, r)
		h.catchUp()
		if got := h.pass(h.routeLimits(g.ID, "/d", [16]byte{1}), 20); got > 5 {
			t.Errorf("per %q: %d requests pass, want at most 5", per, got)
		}
	}
	r.RateLimit = ratelimit.Config{}
	h.source.PutGateway(g, r)
	h.catchUp()
	if n := h.shown(h.routeLimits(g.ID, "/d", [16]byte{})); n != 0 {
		t.Errorf("%d limits after their removal, want 0", n)
	}
}

// Guarantee: contract 3.2: the old and the new key of a rotation share a bucket, and a
// change of the rate applies to both, in whatever order the records are read.
func TestRotatedKeysShareOneBucket(t *testing.T) {
	h := newHarness(t)
	old, oldSecret := h.key()
	old.RateLimit = ratelimit.RateOf(rate(t, "100/day"))
	h.source.PutKey(old)
	h.catchUp()
	limits := func(secret string) *ratelimit.Charge {
		c := h.keyLimits(secret)
		if n := h.shown(c); n != 1 {
			t.Fatalf("got %d limits, want 1", n)
		}
		return c
	}
	h.pass(limits(oldSecret), 20)
	fresh, freshSecret := h.key()
	fresh.RateLimit, fresh.BucketID = old.RateLimit, old.BucketID
	h.source.PutKey(fresh)
	h.catchUp()
	h.pass(limits(freshSecret), 20)
	if got := h.pass(limits(oldSecret), 10); got != 10 {
		t.Errorf("the old key admits %d requests, want 10", got)
	}
	// 50 of 100 are used. The rate doubles, at first in one of the two records only.
	fresh.RateLimit = ratelimit.RateOf(rate(t, "200/day"))
	h.source.PutKey(fresh)
	h.catchUp()
	if a, b := *limits(oldSecret).Worst(), *limits(freshSecret).Worst(); a != b || a.Limit != 200 {
		t.Errorf("the keys have the limits %+v and %+v, want the same of 200", a, b)
	}
	old.RateLimit = fresh.RateLimit
	h.source.PutKey(old)
	h.catchUp()
	h.source.Trim()
	h.catchUp()
	if err := h.follower.Load(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := h.pass(limits(oldSecret), 60); got != 60 {
		t.Errorf("the old key admits %d requests, want 60", got)
	}
	// The old key is revoked: the bucket stays with the new one.
	old.RevokedAt = time.Unix(1, 0)
	h.source.PutKey(old)
	h.catchUp()
	if got := h.pass(limits(freshSecret), 100); got != 90 {
		t.Errorf("the new key admits %d requests, want 90", got)
	}
}

// Guarantee: the daily cap of a key counts the requests of all keys of its rotation, keeps its
// count when the cap changes and across a restart, and is listed while it is in use.
func TestDailyCapOfAKey(t *testing.T) {
	h := newHarness(t)
	g := h.gateway()
	h.source.PutGateway(g)
	old, oldSecret := h.key()
	old.RateLimit = keyLimit(t, `{"daily":"10/day"}`)
	fresh, freshSecret := h.key()
	fresh.RateLimit, fresh.BucketID = old.RateLimit, old.BucketID
	h.source.PutKey(old)
	h.source.PutKey(fresh)
	h.catchUp()
	limits := h.keyLimits
	if got := h.pass(limits(oldSecret), 4) + h.pass(limits(freshSecret), 10); got != 10 {
		t.Errorf("both keys admit %d requests, want 10", got)
	}
	old.RateLimit = keyLimit(t, `{"sustained":"100/s","daily":"15/day"}`)
	fresh.RateLimit = old.RateLimit
	h.source.PutKey(old)
	h.source.PutKey(fresh)
	h.catchUp()
	if got := h.pass(limits(oldSecret), 3); got != 3 {
		t.Errorf("after a change from 10 to 15: got %d requests of 3 admitted, want 3", got)
	}
	var listed []ratelimit.Level
	h.follower.Levels(t.Context(), g.ID, func(l ratelimit.Level) {
		if l.Scope == ratelimit.KeyDailyScope {
			listed = append(listed, l)
		}
	})
	if len(listed) != 2 || listed[0].Limit != 15 || listed[0].Remaining != 2 {
		t.Errorf("got levels %+v, want 2 of 15 left for both keys", listed)
	}
	if err := h.reserver.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	again := newHarnessOn(t, h.source, h.clock)
	if got := again.pass(again.keyLimits(freshSecret), 5); got != 2 {
		t.Errorf("after a restart: got %d requests admitted, want 2", got)
	}
}

// Guarantee: an expired key of a rotation does not affect the rate limit of the others: the store does not write later
// changes of it to such keys.
func TestExpiredKeysHaveNoSayInTheirRateLimit(t *testing.T) {
	for _, expiredLast := range []bool{false, true} {
		h := newHarness(t)
		active, secret := h.key()
		expired, _ := h.key()
		active.BucketID, active.RateLimit = expired.ID, keyLimit(t, "2/h")
		expired.RateLimit, expired.ExpiresAt = keyLimit(t, "10/h"), time.Unix(0, h.clock.Now().Wall)
		first, last := expired, active
		if expiredLast {
			first, last = active, expired
		}
		h.source.PutKey(first)
		h.catchUp()
		h.source.PutKey(last)
		h.catchUp()
		if got := h.pass(h.keyLimits(secret), 5); got != 2 {
			t.Errorf("%d of 5 requests pass a limit of 2 (the expired key was read last: %v)", got, expiredLast)
		}
	}
}
