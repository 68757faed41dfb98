package admit

import (
	"context"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/ratelimit"
)

// limitsHarness has a gateway with a global limit and three limited routes: /all with one
// bucket and a daily cap, /each with a bucket for each key, and the public /open, which is
// configured like /each. The key first has a limit of its own, second has none.
type limitsHarness struct {
	*harness
	first, second string
}

func newLimitsHarness(t *testing.T) *limitsHarness {
	t.Helper()
	h := newHarness(t)
	all := limited(route("/all", "GET"), config(t, "3/day", "", "4/day", ""))
	each := limited(route("/each", "GET"), config(t, "2/day", "", "", ratelimit.PerKey))
	open := public(limited(route("/open", "GET"), config(t, "2/day", "", "", ratelimit.PerKey)))
	h.gateway(func(g *gateway.Gateway) { g.GlobalLimit = config(t, "60/min", "100/s", "", "") }, all, each, open)
	_, first := h.key(func(k *apikey.Key) { k.RateLimit = ratelimit.RateOf(rate(t, "10/h")) })
	_, second := h.key(nil)
	return &limitsHarness{h, first, second}
}

// get decides a GET request of target with a key, or without one if key is "".
func (h *limitsHarness) get(target, key string) *Verdict {
	h.t.Helper()
	req := Request{Target: target}
	if key != "" {
		req.Authorization = "Bearer " + key
	}
	return h.decide(req)
}

// Guarantee: an admitted request is charged to all limits that apply to it, and the header
// fields show the limits (contract, 4.3).
func TestLimitsThatApply(t *testing.T) {
	h := newLimitsHarness(t)
	got := fields(h.get("/all", h.first))
	for name, want := range map[string]string{
		"X-RateLimit-Limit":     "3",
		"X-RateLimit-Remaining": "2",
		"X-RateLimit-Reset":     strconv.FormatInt(h.clock.Wall().Unix()+28800, 10), // a third of a day
		"RateLimit-Policy":      `"key";q=10;w=3600, "route";q=3;w=86400, "daily";q=4;w=86400, "global";q=100;w=100`,
		"RateLimit":             `"key";r=9;t=360, "route";r=2;t=28800, "daily";r=3;t=43200, "global";r=99;t=1`,
		"Retry-After":           "",
	} {
		if got[name] != want {
			t.Errorf("%s: got %q, want %q", name, got[name], want)
		}
	}
}

// Guarantee: a refusal shows only the limits that are known to apply when its check fails,
// and charges none.
func TestLimitsOfRefusals(t *testing.T) {
	h := newLimitsHarness(t)
	for _, c := range []struct {
		name, target string
		withKey      bool
		policy       string
	}{
		{"401", "/all", false, `"global";q=100;w=100`},
		{"404", "/none", true, `"key";q=10;w=3600, "global";q=100;w=100`},
		{"400", "/none?api_key&api_key", true, `"global";q=100;w=100`},
	} {
		key := ""
		if c.withKey {
			key = h.first
		}
		if got := fields(h.get(c.target, key))["RateLimit-Policy"]; got != c.policy {
			t.Errorf("%s: got RateLimit-Policy %q, want %q", c.name, got, c.policy)
		}
	}
	if got, want := fields(h.get("/all", h.first))["RateLimit"], `"key";r=9;t=360, "route";r=2;t=28800, "daily";r=3;t=43200, "global";r=99;t=1`; got != want {
		t.Errorf("after the refusals: got RateLimit %q, want %q", got, want)
	}
}

// Guarantee: a 429 describes the limit that refused, in its body and its header fields, and
// the request passes at the announced time, not a second earlier.
func TestLimitExceeded(t *testing.T) {
	h := newLimitsHarness(t)
	h.get("/all", h.first)
	h.get("/all", h.first)
	h.get("/all", h.second)
	v := h.get("/all", h.first)
	status, body := fault.Response(v.Fault(), "req_1")
	resetAt := strconv.FormatInt(h.clock.Wall().Unix()+28800, 10)
	want := `{"error":"rate_limit_exceeded","message":"the route's rate limit is exceeded: wait for the number of seconds in the Retry-After header, then try again",` +
		`"limit":3,"remaining":0,"reset_at":` + resetAt + `,"limit_scope":"route","request_id":"req_1"}` + "\n"
	if status != 429 || string(body) != want {
		t.Errorf("got %d %s, want 429 %s", status, body, want)
	}
	got := fields(v)
	for name, want := range map[string]string{"X-RateLimit-Limit": "3", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": resetAt, "Retry-After": "28800"} {
		if got[name] != want {
			t.Errorf("%s: got %q, want %q", name, got[name], want)
		}
	}
	h.clock.Advance(28800 * time.Second)
	if v := h.get("/all", h.second); v.Action != Forward {
		t.Errorf("at the announced reset: got %v, want Forward", v.Fault())
	}
	h.clock.Advance(28800*time.Second - time.Second)
	if v := h.get("/all", h.second); v.Action != Refuse {
		t.Error("one second before the next reset: admitted, want a refusal")
	}
}

// Guarantee: with per: key each key has its own bucket. Callers of a public route have no
// key, so they share one.
func TestPerKeyLimits(t *testing.T) {
	h := newLimitsHarness(t)
	for _, c := range []struct {
		name, target string
		keys         [3]string
	}{
		{"first key", "/each", [3]string{h.first, h.first, h.first}},
		{"second key", "/each", [3]string{h.second, h.second, h.second}},
		{"public route", "/open", [3]string{h.first, h.second, ""}},
	} {
		for i, key := range c.keys {
			want := Forward
			if i == 2 {
				want = Refuse
			}
			if v := h.get(c.target, key); v.Action != want {
				t.Errorf("%s, request %d: got action %d, want %d", c.name, i, v.Action, want)
			}
		}
	}
}

// Guarantee: every response has the X-RateLimit-* headers, and the default limit is not an
// item of the IETF fields.
func TestDefaultGlobalLimit(t *testing.T) {
	h := newHarness(t)
	h.gateway(nil, route("/a", "GET"))
	_, key := h.key(nil)
	got := fields(h.decide(Request{Target: "/a", Authorization: "Bearer " + key}))
	if got["X-RateLimit-Limit"] != "1000000" || got["X-RateLimit-Remaining"] != "999999" || got["RateLimit-Policy"] != "" || got["RateLimit"] != "" {
		t.Errorf("got fields %v, want the default limit in X-RateLimit-* only", got)
	}
}

// Guarantee: while a limit is changed repeatedly, every decision ends, and no more requests pass
// than the limits allow.
func TestDecideDuringChanges(t *testing.T) {
	h := newHarness(t)
	r := limited(route("/a", "GET"), config(t, "1000/day", "", "", ""))
	g := h.gateway(nil, r)
	k, secret := h.key(func(k *apikey.Key) { k.RateLimit = ratelimit.RateOf(rate(t, "1000000/day")) })
	var (
		passed  atomic.Int64
		stop    atomic.Bool
		callers sync.WaitGroup
	)
	for range 8 {
		callers.Go(func() {
			var v Verdict
			for !stop.Load() {
				h.admit.Decide(&Request{Method: "GET", Target: "/a", Host: "x", Authorization: "Bearer " + secret, Authorizations: 1}, &v)
				switch {
				case v.Action == Forward:
					passed.Add(1)
				case v.Code != fault.RateLimitExceeded:
					t.Errorf("got %v, want Forward or code rate_limit_exceeded", v.Fault())
					return
				}
				runtime.Gosched()
			}
		})
	}
	awaittest.True(t, "the limits are in use", func() bool { return passed.Load() > 0 || t.Failed() })
	for i := range 200 {
		// The refill rates alternate; a change keeps what was used.
		r.RateLimit = config(t, []string{"500/day", "1000/day"}[i%2], "1000/s", "", "")
		h.source.PutGateway(g, r)
		k.RateLimit = ratelimit.RateOf(rate(t, []string{"500000/day", "1000000/day"}[i%2]))
		h.source.PutKey(k)
		if err := h.follower.CatchUp(context.Background()); err != nil {
			t.Error(err)
		}
		runtime.Gosched()
	}
	stop.Store(true)
	callers.Wait()
	if got := passed.Load(); got > 1000 || got == 0 {
		t.Errorf("%d requests passed, want 1 to 1000", got)
	}
}

// Guarantee: a request that must wait for a daily cap is decided afterwards.
func TestWaitEnds(t *testing.T) {
	h := newHarness(t)
	h.gateway(nil, limited(route("/a", "GET"), config(t, "", "", "1000/day", "")))
	_, key := h.key(nil)
	passed := 0
	for range 1100 {
		if h.decide(Request{Target: "/a", Authorization: "Bearer " + key}).Action == Forward {
			passed++
		}
	}
	if passed != 1000 {
		t.Errorf("%d of 1100 requests pass, want 1000", passed)
	}
	if v := h.decide(Request{Target: "/a", Authorization: "Bearer " + key}); v.Fault().Limit.Scope != "daily" || v.Fault().Limit.ResetAt != h.clock.Wall().Truncate(24*time.Hour).Unix()+86400 {
		t.Errorf("got %+v, want the daily limit, which resets at midnight", v.Fault().Limit)
	}
}
