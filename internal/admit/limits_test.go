package admit

import (
	"context"
	"encoding/json"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/ratelimit"
)

// Guarantee: each request is charged to the limits that apply to it, the header fields show
// them, and a refusal describes the limit that refused (contract, 4.3).
func TestLimitsThatApply(t *testing.T) {
	h := newHarness(t)
	all := limited(route("/all", "GET"), config(t, "3/day", "", "4/day", ""))
	each := limited(route("/each", "GET"), config(t, "2/day", "", "", ratelimit.PerKey))
	open := public(limited(route("/open", "GET"), config(t, "2/day", "", "", ratelimit.PerKey)))
	h.gateway(func(g *gateway.Gateway) { g.GlobalLimit = config(t, "60/min", "100/s", "", "") }, all, each, open)
	_, first := h.key(func(k *apikey.Key) { k.RateLimit = rate(t, "10/h") })
	_, second := h.key(nil)

	v := h.decide(Request{Target: "/all", Authorization: "Bearer " + first})
	got := fields(v)
	reset := strconv.FormatInt(h.clock.Wall().Unix()+28800, 10) // a third of a day
	if got["X-RateLimit-Limit"] != "3" || got["X-RateLimit-Remaining"] != "2" || got["X-RateLimit-Reset"] != reset ||
		got["RateLimit-Policy"] != `"key";q=10;w=3600, "route";q=3;w=86400, "daily";q=4;w=86400, "global";q=100;w=100` ||
		got["RateLimit"] != `"key";r=9;t=360, "route";r=2;t=28800, "daily";r=3;t=43200, "global";r=99;t=1` || got["Retry-After"] != "" {
		t.Errorf("fields %v", got)
	}
	for _, c := range []struct {
		name, target, key, policy string
	}{
		{"401", "/all", "", `"global";q=100;w=100`},
		{"404", "/none", first, `"key";q=10;w=3600, "global";q=100;w=100`},
		{"400", "/none?api_key&api_key", first, `"global";q=100;w=100`},
	} {
		req := Request{Target: c.target}
		if c.key != "" {
			req.Authorization = "Bearer " + c.key
		}
		if v := h.decide(req); fields(v)["RateLimit-Policy"] != c.policy {
			t.Errorf("%s: fields %v, want the policy %s", c.name, fields(v), c.policy)
		}
	}
	// Refusals charged nothing: the key has 9 left of 10.
	h.decide(Request{Target: "/all", Authorization: "Bearer " + first})
	h.decide(Request{Target: "/all", Authorization: "Bearer " + second})
	v = h.decide(Request{Target: "/all", Authorization: "Bearer " + first})
	status, body := fault.Response(v.Fault(), "req_1")
	var b struct {
		Error      string `json:"error"`
		Limit      int64  `json:"limit"`
		Remaining  int64  `json:"remaining"`
		ResetAt    int64  `json:"reset_at"`
		LimitScope string `json:"limit_scope"`
	}
	if err := json.Unmarshal(body, &b); err != nil {
		t.Fatal(err)
	}
	got = fields(v)
	if status != 429 || b.Error != "rate_limit_exceeded" || b.Limit != 3 || b.Remaining != 0 || b.LimitScope != "route" ||
		got["X-RateLimit-Limit"] != "3" || got["X-RateLimit-Remaining"] != "0" ||
		got["X-RateLimit-Reset"] != strconv.FormatInt(b.ResetAt, 10) || b.ResetAt != h.clock.Wall().Unix()+28800 || got["Retry-After"] != "28800" {
		t.Errorf("%d %s, fields %v", status, body, got)
	}
	h.clock.Advance(28800 * time.Second)
	if v := h.decide(Request{Target: "/all", Authorization: "Bearer " + second}); v.Action != Forward {
		t.Errorf("at the announced reset: got %v, want Forward", v.Fault())
	}
	h.clock.Advance(28800*time.Second - time.Second)
	if v := h.decide(Request{Target: "/all", Authorization: "Bearer " + second}); v.Action != Refuse {
		t.Error("admitted one second before the reset, want a refusal")
	}

	for _, key := range []string{first, second} {
		for want := range 3 {
			v := h.decide(Request{Target: "/each", Authorization: "Bearer " + key})
			if (v.Action == Forward) != (want < 2) {
				t.Errorf("request %d of a key: %v", want, v.Fault())
			}
		}
	}
	// Callers of a public route have no key: they share one bucket.
	for want := range 3 {
		v := h.decide(Request{Target: "/open", Authorization: "Bearer " + []string{first, second, ""}[want]})
		if (v.Action == Forward) != (want < 2) {
			t.Errorf("request %d without a key: %v", want, v.Fault())
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
		t.Errorf("fields %v", got)
	}
}

// Guarantee: while a limit is changed again and again, every decision ends, and no more
// requests pass than the limits allow.
func TestDecideDuringChanges(t *testing.T) {
	h := newHarness(t)
	r := limited(route("/a", "GET"), config(t, "1000/day", "", "", ""))
	g := h.gateway(nil, r)
	k, secret := h.key(func(k *apikey.Key) { k.RateLimit = rate(t, "1000000/day") })
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
					t.Errorf("%v", v.Fault())
					return
				}
				runtime.Gosched()
			}
		})
	}
	for passed.Load() == 0 && !t.Failed() {
		runtime.Gosched() // until the limits are in use
	}
	for i := range 200 {
		// The capacities alternate, and the level stays in proportion: what a
		// full bucket of 1000 lets pass, one of 500 does in halves.
		r.RateLimit = config(t, []string{"500/day", "1000/day"}[i%2], "", "", "")
		h.source.PutGateway(g, r)
		k.RateLimit = rate(t, []string{"500000/day", "1000000/day"}[i%2])
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
