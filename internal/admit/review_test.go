package admit

import (
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/ratelimit"
)

// reviewHarness has a gateway with a route for keys, which has a daily cap, and a public route.
type reviewHarness struct {
	*harness
	gw     gateway.Gateway
	routes []gateway.Route
	key    apikey.Key
	secret string
}

func newReviewHarness(t testing.TB, keep bool) *reviewHarness {
	h := &reviewHarness{harness: newHarness(t)}
	h.routes = []gateway.Route{limited(route("/items/*", "GET", "POST"), config(t, "1000/min", "", "10/day", "")), public(route("/open/*", "GET"))}
	h.gw = h.harness.gateway(func(g *gateway.Gateway) {
		g.Hostname, g.HostGiven, g.Requests.KeepStreams = "items.example", true, keep
	}, h.routes...)
	h.key, h.secret = h.harness.key(func(k *apikey.Key) { k.ExpiresAt = h.clock.Wall().Add(time.Hour) })
	return h
}

// get decides a request, with the key unless the route is public.
func (h *reviewHarness) get(req Request) *Verdict {
	h.t.Helper()
	if req.Host == "" {
		req.Host = "items.example"
	}
	if !req.Client.IsValid() {
		req.Client = netip.MustParseAddr("203.0.113.7")
	}
	if !strings.HasPrefix(req.Target, "/open") {
		req.Authorization = "Bearer " + h.secret
	}
	return h.decide(req)
}

// admitted returns the verdict on a request that is admitted.
func (h *reviewHarness) admitted(target string) *Verdict {
	h.t.Helper()
	v := h.get(Request{Target: target})
	if v.Action != Forward {
		h.t.Fatalf("%s: got %q, want it admitted", target, v.Code)
	}
	return v
}

// review returns what a review says about a request with method GET.
func (h *reviewHarness) review(v *Verdict) (result, cut accesslog.Result) {
	r, a := h.admit.Review(), v.Admission("GET")
	result = r.Result(&a)
	a = v.Admission("GET")
	return result, r.Cut(&a)
}

// changes are changes of the things on which an admitted request depends, with the result for a
// request with a key and for a request to a public route.
var changes = []struct {
	name        string
	change      func(h *reviewHarness)
	key, public accesslog.Result
	ofKey       bool // cut_streams: false keeps the exchange
}{
	{"nothing", func(*reviewHarness) {}, accesslog.Forwarded, accesslog.Forwarded, false},
	{"the key is renamed", func(h *reviewHarness) { h.key.Owner = "b"; h.source.PutKey(h.key) }, accesslog.Forwarded, accesslog.Forwarded, false},
	{"the key is revoked", func(h *reviewHarness) { h.key.RevokedAt = h.clock.Wall(); h.source.PutKey(h.key) }, accesslog.KeyInvalid, accesslog.Forwarded, true},
	{"the key expires", func(h *reviewHarness) { h.clock.Advance(time.Hour) }, accesslog.KeyExpired, accesslog.Forwarded, true},
	{"the key's expiry is brought forward", func(h *reviewHarness) { h.key.ExpiresAt = h.clock.Wall(); h.source.PutKey(h.key) }, accesslog.KeyExpired, accesslog.Forwarded, true},
	{"the key is restricted to another gateway", func(h *reviewHarness) { h.key.GatewayID = "gw_other"; h.source.PutKey(h.key) }, accesslog.WrongGateway, accesslog.Forwarded, true},
	{"the key loses its scope", func(h *reviewHarness) {
		h.key.Scope, _ = apikey.ParseScopes("write:others")
		h.source.PutKey(h.key)
	}, accesslog.WrongScope, accesslog.Forwarded, true},
	{"the account is suspended", func(h *reviewHarness) { h.account.State = account.Suspended; h.source.PutAccount(h.account) }, accesslog.NoGateway, accesslog.NoGateway, false},
	{"the account is deleted", func(h *reviewHarness) { h.source.DeleteAccount(h.account.ID) }, accesslog.NoGateway, accesslog.NoGateway, false},
	{"the gateway is deleted", func(h *reviewHarness) { h.source.DeleteGateway(h.gw.ID) }, accesslog.NoGateway, accesslog.NoGateway, false},
	{"the gateway denies the address", func(h *reviewHarness) {
		h.gw.Requests.DenyIPs = []string{"203.0.113.0/24"}
		h.source.PutGateway(h.gw, h.routes...)
	}, accesslog.AddressDenied, accesslog.AddressDenied, true},
	{"the key denies the address", func(h *reviewHarness) {
		h.key.Addresses.Allow = []string{"198.51.100.0/24"}
		h.source.PutKey(h.key)
	}, accesslog.AddressDenied, accesslog.Forwarded, true},
	{"the key allows the address", func(h *reviewHarness) {
		h.key.Addresses.Allow = []string{"203.0.113.7/32"}
		h.source.PutKey(h.key)
	}, accesslog.Forwarded, accesslog.Forwarded, true},
	{"the routes are replaced", func(h *reviewHarness) { h.source.PutGateway(h.gw, route("/other", "GET")) }, accesslog.Forwarded, accesslog.Forwarded, false},
}

// Guarantee: contract 3.3, cut_streams: an admitted request may go on until its key is revoked,
// expires or does not allow it any more, or its gateway serves nobody. On a public route only the
// gateway counts.
func TestReview(t *testing.T) {
	for _, c := range changes {
		for _, keep := range []bool{false, true} {
			h := newReviewHarness(t, keep)
			withKey, public := h.admitted("/items/1"), h.get(Request{Target: "/open/1"})
			c.change(h)
			h.catchUp()
			if result, cut := h.review(withKey); result != c.key || (cut != accesslog.Forwarded) != (c.key != accesslog.Forwarded && !(keep && c.ofKey)) {
				t.Errorf("%s, keep_streams %t: got %d, cut %d; want %d", c.name, keep, result, cut, c.key)
			}
			if result, cut := h.review(public); result != c.public || (cut != accesslog.Forwarded) != (c.public != accesslog.Forwarded && !(keep && c.ofKey)) {
				t.Errorf("%s, public route: got %d, cut %d; want %d", c.name, result, cut, c.public)
			}
		}
	}
}

// Guarantee: a request that is withdrawn gets the response that it would get if it were decided
// now, and uses nothing of a daily cap.
func TestWithdraw(t *testing.T) {
	for _, c := range changes {
		if c.key == accesslog.Forwarded {
			continue
		}
		h := newReviewHarness(t, false)
		v := h.admitted("/items/1")
		c.change(h)
		h.catchUp()
		r := h.admit.Review()
		v.Withdraw(c.key, &r, nil)
		want := h.get(Request{Target: "/items/1"})
		if got, want := v.Fault(), want.Fault(); got.Code != want.Code || got.Auth != want.Auth || got.Message != want.Message {
			t.Errorf("%s: got %v, want %v as for a new request", c.name, got, want)
		}
		if got, want := fields(v)["RateLimit-Policy"], fields(want)["RateLimit-Policy"]; got != want {
			t.Errorf("%s: got limits %q, want %q", c.name, got, want)
		}
		var record accesslog.Record
		if v.Record(&record); record.Result != c.key || record.Key == [16]byte{} || !record.Authenticated {
			t.Errorf("%s: got the record %+v, want the result %d, with the key", c.name, record, c.key)
		}
	}
}

// Guarantee: giving back never admits more than a daily cap: a request that went upstream stays
// counted, and a request that did not is given back once.
func TestWithdrawnRequestsCountOnce(t *testing.T) {
	for _, c := range []struct {
		name      string
		used      *ratelimit.Used
		admitted  int // after ten requests of which five were withdrawn
		withdrawn int // times that each is withdrawn
	}{{"unsent", nil, 5, 1}, {"unsent, twice", nil, 5, 2}, {"sent", &ratelimit.Used{}, 0, 1}} {
		h := newReviewHarness(t, false)
		for n := range 10 {
			v := h.admitted("/items/1")
			if n%2 == 0 {
				for range c.withdrawn {
					r := h.admit.Review()
					v.Withdraw(accesslog.KeyInvalid, &r, c.used)
				}
			}
		}
		admitted := 0
		for h.get(Request{Target: "/items/1"}).Action == Forward {
			admitted++
		}
		if admitted != c.admitted {
			t.Errorf("%s: %d more requests were admitted, want %d", c.name, admitted, c.admitted)
		}
	}
}

// Guarantee: a request that is withdrawn on the next day does not change the count of that day.
func TestWithdrawAfterMidnight(t *testing.T) {
	h := newReviewHarness(t, false)
	h.key, h.secret = h.harness.key(nil)
	v := h.admitted("/items/1")
	h.clock.Advance(24 * time.Hour)
	for range 10 {
		h.admitted("/items/1")
	}
	r := h.admit.Review()
	v.Withdraw(accesslog.KeyInvalid, &r, nil)
	if got := h.get(Request{Target: "/items/1"}); got.Code != fault.RateLimitExceeded {
		t.Errorf("got %q for the eleventh request of the day, want %q", got.Code, fault.RateLimitExceeded)
	}
}

// lease is a Lease that the test gives and takes.
type lease struct{ lost atomic.Bool }

func (l *lease) Held() bool { return !l.lost.Load() }

// Guarantee: a node without its lease admits nothing: 503, without Retry-After, which only a 429 has, also on
// public routes and for hosts without a gateway. Requests that were admitted before must not go upstream, and
// are cut even with cut_streams: false.
func TestNothingWithoutLease(t *testing.T) {
	h := newReviewHarness(t, true)
	l := &lease{}
	h.admit.cfg.Lease = l
	before := h.admitted("/items/1")
	l.lost.Store(true)
	for _, req := range []Request{
		{Target: "/items/1"}, {Target: "/open/1"}, {Target: "/nothing"},
		{Target: "/items/a%2Fb"}, {Target: "/items/1", Host: "unknown.example"}, {Target: "/open/1", Method: "OPTIONS", Origin: "https://a.example", PreflightMethod: "GET"},
	} {
		v := h.get(req)
		if status, _ := fault.Response(v.Fault(), "req"); v.Action != Refuse || status != http.StatusServiceUnavailable || !v.Unconfirmed() {
			t.Errorf("%+v: got %d, want 503", req, status)
		}
		if got := fields(v)["Retry-After"]; got != "" {
			t.Errorf("%+v: got Retry-After %q, want none", req, got)
		}
		var record accesslog.Record
		if v.Record(&record); record.Result != accesslog.Failed || record.Authenticated || (record.Gateway == [16]byte{}) != (req.Host != "") {
			t.Errorf("%+v: got the record %+v, want the result Failed of the gateway, if there is one", req, record)
		}
	}
	if v := h.get(Request{Target: "/items/%00"}); v.Code != fault.InvalidRequest {
		t.Errorf("a malformed request: got %q, want %q", v.Code, fault.InvalidRequest)
	}
	if result, cut := h.review(before); result != accesslog.Failed || cut != accesslog.Failed {
		t.Errorf("admitted before: got %d, cut %d; want both %d", result, cut, accesslog.Failed)
	}
	r := h.admit.Review()
	before.Withdraw(accesslog.Failed, &r, nil)
	if got := before.Fault(); got.Code != fault.Unavailable || fields(before)["Retry-After"] != "" {
		t.Errorf("withdrawn: got %v, want %q without Retry-After", got, fault.Unavailable)
	}
	l.lost.Store(false)
	if v := h.admitted("/items/1"); fields(v)["Retry-After"] != "" {
		t.Error("a request under the lease has Retry-After, want none")
	}
}

// Guarantee: a revocation that is in force is seen by every review that begins later, whatever
// else changes at the same time.
func TestReviewSeesEveryRevocation(t *testing.T) {
	h := newReviewHarness(t, false)
	for range 200 {
		k, secret := h.harness.key(nil)
		h.secret = secret
		v := h.admitted("/items/1")
		other := make(chan bool)
		go func() {
			defer close(other)
			h.source.PutSettings(h.gw)
			_ = h.follower.CatchUp(t.Context())
		}()
		k.RevokedAt = h.clock.Wall()
		h.source.PutKey(k)
		h.catchUp()
		if result, _ := h.review(v); result != accesslog.KeyInvalid {
			t.Fatalf("got %d, want %d", result, accesslog.KeyInvalid)
		}
		<-other
		h.clock.Advance(24 * time.Hour) // for the daily cap
	}
}

// BenchmarkReview measures the second look at a request of which nothing has changed.
func BenchmarkReview(b *testing.B) {
	h := newReviewHarness(b, false)
	_, h.secret = h.harness.key(nil)
	v := h.admitted("/items/1")
	b.ReportAllocs()
	for b.Loop() {
		if !h.admit.Unchanged(v) {
			b.Fatal("the request is to be reviewed; want it unchanged")
		}
	}
}
