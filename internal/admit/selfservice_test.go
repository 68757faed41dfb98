package admit

import (
	"testing"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/owner"
	"github.com/keygate/keygate/internal/ratelimit"
)

// withSelfService switches on what on says.
func withSelfService(on gateway.SelfService) func(*gateway.Gateway) {
	return func(g *gateway.Gateway) { g.Requests.SelfService = on }
}

// Guarantee: plans.md, 9: paths below /.keygate/ are the gateway's own, ahead of all routes, while anything of self-service is
// on. They are checked in the order of routes: the key, in a header, with the same refusals; then the path, then the method. No
// scope is needed. With all of it off, they are ordinary paths.
func TestPathsOfSelfService(t *testing.T) {
	for name, on := range map[string]gateway.SelfService{"usage": {Usage: true}, "rotate": {Rotate: true}, "both": {Usage: true, Rotate: true}, "off": {}} {
		h := newHarness(t)
		g := h.gateway(withSelfService(on), public(route("/*", "GET", "POST")))
		_, secret := h.key(func(k *apikey.Key) { k.Scope = apikey.Scopes{{Word: apikey.Read, Resource: "orders"}} })
		_, expired := h.key(func(k *apikey.Key) { k.ExpiresAt = h.clock.Wall() })
		_, elsewhere := h.key(func(k *apikey.Key) { k.GatewayID = id.New(id.Gateway) })
		o := h.owner("suspended", "")
		o.State = owner.Suspended
		h.source.PutOwner(o)
		h.catchUp()
		_, suspended := h.keyOf(&o, "")
		for _, c := range []struct {
			method, target, key string
			service             Service // if the service of the path is on
			result              accesslog.Result
			allow               string
		}{
			{"GET", "/.keygate/usage", secret, Usage, accesslog.SelfServed, ""},
			{"HEAD", "/.keygate/usage", secret, Usage, accesslog.SelfServed, ""},
			{"GET", "/.keygate/%75sage", secret, Usage, accesslog.SelfServed, ""},
			{"GET", "http://any.example/.keygate/usage?a=b", secret, Usage, accesslog.SelfServed, ""},
			{"POST", "/.keygate/rotate", secret, Rotate, accesslog.SelfServed, ""},
			{"POST", "/.keygate/usage", secret, Usage, accesslog.NoMethod, "GET, HEAD"},
			{"GET", "/.keygate/rotate", secret, Rotate, accesslog.NoMethod, "POST"},
			{"GET", "/.keygate/", secret, NoService, accesslog.NoRoute, ""},
			{"GET", "/.keygate/usage/", secret, NoService, accesslog.NoRoute, ""},
			{"GET", "/.keygate/Usage", secret, NoService, accesslog.NoRoute, ""},
			{"GET", "/.keygate/usage", "", NoService, accesslog.KeyInvalid, ""},
			{"GET", "/.keygate/none", "", NoService, accesslog.KeyInvalid, ""},
			{"GET", "/.keygate/usage?api_key=" + secret, "", NoService, accesslog.KeyInvalid, ""},
			{"GET", "/.keygate/usage", expired, NoService, accesslog.KeyExpired, ""},
			{"GET", "/.keygate/usage", elsewhere, NoService, accesslog.WrongGateway, ""},
			{"GET", "/.keygate/usage", suspended, NoService, accesslog.OwnerSuspended, ""},
		} {
			h.clock.Advance(time.Second)
			req := Request{Method: c.method, Target: c.target}
			if c.key != "" {
				req.Authorization = "Bearer " + c.key
			}
			v := h.decide(req)
			want := c.result
			if c.service == Usage && !on.Usage || c.service == Rotate && !on.Rotate {
				want, c.allow = accesslog.NoRoute, ""
			}
			if !on.Reserves() {
				if c.method != "HEAD" && (v.Action != Forward || fields(v)["Cache-Control"] != "") {
					t.Errorf("%s: %s %s: got %v, want it forwarded", name, c.method, c.target, v.Fault())
				}
				continue
			}
			if v.result() != want || v.Allow != c.allow || fields(v)["Cache-Control"] != "no-store" || !v.Authenticated || v.Gateway.ID != g.ID || v.Route != [16]byte{} {
				t.Errorf("%s: %s %s: got %v with the result %d and Allow %q, want %d and %q", name, c.method, c.target, v.Fault(), v.result(), v.Allow, want, c.allow)
			}
			if (v.Action == Serve) != (want == accesslog.SelfServed) || v.Action == Serve && v.Service != c.service {
				t.Errorf("%s: %s %s: got action %d and service %d", name, c.method, c.target, v.Action, v.Service)
			}
		}
		for _, target := range []string{"/.keygate", "/.keygates/usage", "/a/.keygate/usage"} {
			if v := h.decide(Request{Target: target}); v.Action != Forward {
				t.Errorf("%s: %s: got %v, want the route", name, target, v.Fault())
			}
		}
		two := h.decide(Request{Target: "/.keygate/usage", Authorization: "Bearer " + secret, Authorizations: 2})
		if on.Reserves() && two.Code != fault.InvalidRequest {
			t.Errorf("%s: two keys: got %v, want a 400", name, two.Fault())
		}
	}
}

// Guarantee: plans.md, 9: a key has ten calls of self-service a second, at all gateways of its account together, and the keys of
// a rotation share them. What is refused says when the next call passes. None of it charges a limit of the key, or counts as
// used, and requests to routes do not count.
func TestCallsOfSelfServiceAreLimited(t *testing.T) {
	h := newHarness(t)
	h.gateway(withSelfService(gateway.SelfService{Usage: true}), route("/", "GET"))
	h.gateway(func(g *gateway.Gateway) {
		withSelfService(gateway.SelfService{Rotate: true})(g)
		g.HostGiven, g.Hostname = true, "other.example"
	})
	first, secret := h.key(func(k *apikey.Key) { k.RateLimit = ratelimit.RateOf(rate(t, "3/day")) })
	_, second := h.key(func(k *apikey.Key) { k.BucketID, k.RateLimit = first.ID, first.RateLimit })
	_, other := h.key(nil)
	usage := func(key string) *Verdict {
		return h.decide(Request{Target: "/.keygate/usage", Authorization: "Bearer " + key})
	}
	for i := range 4 {
		for _, v := range []*Verdict{
			usage(secret), usage(second), h.decide(Request{Method: "POST", Host: "other.example", Target: "/.keygate/rotate", Authorization: "Bearer " + secret}),
		}[:min(3, 10-3*i)] {
			if v.Action != Serve || v.Charge.Worst().Remaining != 3 || v.Charge.Worst().Scope != ratelimit.KeyScope {
				t.Fatalf("round %d: got %v with %+v, want it served, with 3 requests left", i, v.Fault(), v.Charge.Worst())
			}
			h.admit.Settle(&v.Charge, &ratelimit.Used{})
			if _, _, kept := v.Charge.Kept(); kept {
				t.Fatal("the call counts as used")
			}
		}
	}
	for _, key := range []string{secret, second} {
		v := usage(key)
		f := v.Fault()
		if f == nil || f.Code != fault.RateLimitExceeded || f.Limit.Scope != "self_service" || f.Limit.Limit != 10 || fields(v)["Retry-After"] != "1" || v.result() != accesslog.Limited {
			t.Fatalf("got %+v and %v, want a 429 of self-service", f, fields(v))
		}
	}
	if v := usage(other); v.Action != Serve {
		t.Errorf("another key: got %v, want it served", v.Fault())
	}
	if v := h.decide(Request{Target: "/", Authorization: "Bearer " + secret}); v.Action != Forward || v.Charge.Worst().Remaining != 2 {
		t.Errorf("a route: got %v, want it forwarded with two requests left", v.Fault())
	}
	h.clock.Advance(100 * time.Millisecond)
	if v := usage(secret); v.Action != Serve {
		t.Errorf("after a tenth of a second: got %v, want it served", v.Fault())
	}
	if v := usage(secret); v.Action != Refuse {
		t.Error("got a second call served after a tenth of a second")
	}
}
