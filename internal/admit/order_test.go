package admit

import (
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
)

// Guarantee: contract 4.2: a request with several faults is refused by the first check that
// it fails. Each row passes all the checks of the rows before it.
func TestOrderOfChecks(t *testing.T) {
	h := newHarness(t)
	one := config(t, "1/day", "", "", "")
	g := h.gateway(func(g *gateway.Gateway) { g.Hostname, g.HostGiven = "a.example", true },
		limited(route("/orders", "POST"), one),
		route("/orders/{id}", "GET"),
		public(route("/open", "GET")),
		public(route("/mixed", "GET")), route("/mixed", "POST"))
	h.gateway(func(g *gateway.Gateway) { g.Hostname, g.HostGiven = "b.example", true })
	_, expired := h.key(func(k *apikey.Key) { k.ExpiresAt = h.clock.Wall() })
	_, foreign := h.key(func(k *apikey.Key) { k.AccountID, k.ExpiresAt = id.New(id.Account), h.clock.Wall() })
	_, elsewhere := h.key(func(k *apikey.Key) { k.GatewayID = id.New(id.Gateway) })
	_, expiredElsewhere := h.key(func(k *apikey.Key) { k.GatewayID, k.ExpiresAt = id.New(id.Gateway), h.clock.Wall() })
	_, accountKey := h.key(func(k *apikey.Key) { k.Level = apikey.AccountLevel })
	_, revoked := h.key(func(k *apikey.Key) { k.RevokedAt = h.clock.Wall() })
	reader, writer, several := h.scoped("read"), h.scoped("write:orders"), h.scoped("read:mixed write:orders")
	_, restricted := h.key(func(k *apikey.Key) { k.GatewayID = g.ID })
	typo := writer[:len(writer)-1] + string(writer[len(writer)-1]^1)

	for _, c := range []struct {
		name, method, host, target, key string
		code                            fault.Code
		auth                            fault.AuthCode
	}{
		{"connect", "CONNECT", "", "x:1", "", fault.MethodNotAllowed, ""},
		{"trace", "TRACE", "nobody.example", "//", "", fault.MethodNotAllowed, ""},
		{"too long", "GET", "nobody.example", "/" + strings.Repeat("/", MaxTarget), "", fault.TargetTooLong, ""},
		{"malformed", "POST", "nobody.example", "/orders/../x", "", fault.InvalidRequest, ""},
		{"asterisk", "OPTIONS", "nobody.example", "*", "", fault.InvalidRequest, ""},
		{"no gateway", "POST", "nobody.example", "/none", "", fault.GatewayNotFound, ""},
		{"no key, no route", "POST", "a.example", "/none", "", fault.Unauthorized, fault.KeyInvalid},
		{"no key, no method", "DELETE", "a.example", "/orders", "", fault.Unauthorized, fault.KeyInvalid},
		{"malformed key", "POST", "a.example", "/none", "kg_x", fault.Unauthorized, fault.KeyInvalid},
		{"typo", "POST", "a.example", "/none", typo, fault.Unauthorized, fault.KeyInvalid},
		{"another account's, expired", "POST", "a.example", "/none", foreign, fault.Unauthorized, fault.KeyInvalid},
		{"account-level", "POST", "a.example", "/none", accountKey, fault.Unauthorized, fault.KeyInvalid},
		{"revoked", "POST", "a.example", "/none", revoked, fault.Unauthorized, fault.KeyInvalid},
		{"expired, another gateway's", "POST", "a.example", "/none", expiredElsewhere, fault.Unauthorized, fault.KeyExpired},
		{"expired", "POST", "a.example", "/none", expired, fault.Unauthorized, fault.KeyExpired},
		{"another gateway's", "POST", "a.example", "/none", elsewhere, fault.Forbidden, fault.ScopeInsufficient},
		{"no route", "POST", "a.example", "/none", reader, fault.RouteNotFound, ""},
		{"trailing slash", "POST", "a.example", "/orders/", reader, fault.RouteNotFound, ""},
		{"no method", "PUT", "a.example", "/orders", reader, fault.MethodNotAllowed, ""},
		{"lower-case method", "post", "a.example", "/orders", reader, fault.MethodNotAllowed, ""},
		{"scope", "POST", "a.example", "/orders", reader, fault.Forbidden, fault.ScopeInsufficient},
		{"path scope", "POST", "a.example", "/mixed", writer, fault.Forbidden, fault.ScopeInsufficient},
		{"all checks passed", "POST", "a.example", "/orders", writer, "", ""},
		{"limit", "POST", "a.example", "/orders", writer, fault.RateLimitExceeded, ""},
		{"word of another scope", "POST", "a.example", "/mixed", several, fault.Forbidden, fault.ScopeInsufficient},
		{"limit after scope", "POST", "a.example", "/orders", reader, fault.Forbidden, fault.ScopeInsufficient},
		{"restricted to this gateway", "GET", "a.example", "/orders/1", restricted, "", ""},
		{"HEAD uses the route of GET", "HEAD", "a.example", "/orders/1", reader, "", ""},
		{"public", "GET", "a.example", "/open", "", "", ""},
		{"public with a bad key", "GET", "a.example", "/open", "nonsense", "", ""},
		{"public with an expired key", "GET", "a.example", "/open", expired, "", ""},
		{"public with another gateway's key", "GET", "a.example", "/open", elsewhere, "", ""},
		{"public, no method", "POST", "a.example", "/open", "", fault.MethodNotAllowed, ""},
		{"one public route of a node", "GET", "a.example", "/mixed", "", "", ""},
		{"the other route of the node", "POST", "a.example", "/mixed", "", fault.Unauthorized, fault.KeyInvalid},
		{"no method of the node", "PUT", "a.example", "/mixed", "", fault.Unauthorized, fault.KeyInvalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			req := Request{Method: c.method, Host: c.host, Target: c.target}
			if c.key != "" {
				req.Authorization = "Bearer " + c.key
			}
			v := h.decide(req)
			checkVerdict(t, c.name, v, c.code, c.auth)
			wantRoute := c.code == "" || c.code == fault.RateLimitExceeded || c.code == fault.Forbidden && c.key != elsewhere
			switch {
			case wantRoute && v.Route == ([16]byte{}):
				t.Error("got no route, want one")
			case !wantRoute && v.Route != ([16]byte{}):
				t.Errorf("got route %s, want none", id.Format(id.Route, v.Route))
			}
		})
	}
}

// checkVerdict fails the test unless v is a refusal with the given code, or Forward if code
// is "", with the fault and the header fields that belong to it.
func checkVerdict(t *testing.T, name string, v *Verdict, code fault.Code, auth fault.AuthCode) {
	t.Helper()
	wantAction := Refuse
	if code == "" {
		wantAction = Forward
	}
	if v.Action != wantAction || v.Code != code || v.Auth != auth {
		t.Errorf("%s: got action %d, code %q %q, want action %d, code %q %q", name, v.Action, v.Code, v.Auth, wantAction, code, auth)
	}
	switch f := v.Fault(); {
	case code == "" && f != nil:
		t.Errorf("%s: got fault %v, want none", name, f)
	case code != "" && (f == nil || f.Code != code || f.Auth != auth || f.Message == ""):
		t.Errorf("%s: got fault %v, want code %q %q with a message", name, f, code, auth)
	}
	got := fields(v)
	for _, f := range []struct {
		name string
		want bool
	}{
		{"X-RateLimit-Limit", v.Gateway != nil},
		{"Allow", code == fault.MethodNotAllowed},
		{"WWW-Authenticate", code == fault.Unauthorized},
		{"Retry-After", code == fault.RateLimitExceeded},
	} {
		if present := got[f.name] != ""; present != f.want {
			t.Errorf("%s: header field %s: got %q, want it present %v", name, f.name, got[f.name], f.want)
		}
	}
	if code == fault.Unauthorized && got["WWW-Authenticate"] != "Bearer" {
		t.Errorf("%s: got WWW-Authenticate %q, want Bearer", name, got["WWW-Authenticate"])
	}
}

// Guarantee: keys are read from where contract 4.2, 3 says, and a forwarded target never
// contains one.
func TestCredentials(t *testing.T) {
	h := newHarness(t)
	h.gateway(nil, route("/a", "GET"), public(route("/open", "GET")))
	k, good := h.key(nil)
	var escaped strings.Builder
	for i := range len(good) {
		escaped.WriteString("%" + "0123456789abcdef"[good[i]>>4:][:1] + "0123456789ABCDEF"[good[i]&15:][:1])
	}
	_, other := h.key(nil)
	for _, c := range []struct {
		name, target, authorization string
		authorizations              int
		code                        fault.Code
		forwarded                   string
	}{
		{"bearer", "/a", "Bearer " + good, 1, "", "/a"},
		{"any case", "/a", "bEARER  " + good + " ", 1, "", "/a"},
		{"parameter", "/a?api_key=" + good, "", 0, "", "/a"},
		{"encoded parameter", "/a?x=%41&api%5fkey=" + escaped.String() + "&y", "", 0, "", "/a?x=%41&y"},
		{"basic and parameter", "/a?api_key=" + good, "Basic eDp5", 1, "", "/a"},
		{"another scheme that begins alike", "/a?api_key=" + good, "Bearers " + good, 1, "", "/a"},
		{"bad bearer, good parameter", "/a?api_key=" + good, "Bearer nonsense", 1, fault.Unauthorized, ""},
		{"empty bearer, good parameter", "/a?api_key=" + good, "Bearer", 1, fault.Unauthorized, ""},
		{"good bearer, bad parameter", "/a?api_key=nonsense", "Bearer " + good, 1, "", "/a"},
		{"good bearer, another's parameter", "/a?q=1&api_key=" + other, "Bearer " + good, 1, "", "/a?q=1"},
		{"two fields", "/a", "Bearer " + good, 2, fault.InvalidRequest, ""},
		{"two parameters", "/a?api_key=" + good + "&%61pi_key=" + good, "", 0, fault.InvalidRequest, ""},
		{"two parameters beside a bearer", "/a?api_key&api_key", "Bearer " + good, 1, fault.InvalidRequest, ""},
		{"two fields on a public route", "/open", "Bearer " + good, 2, fault.InvalidRequest, ""},
		{"two parameters on a public route", "/open?api_key=1&api_key=2", "", 0, fault.InvalidRequest, ""},
		{"parameter on a public route", "/open?a&api_key=" + good, "", 0, "", "/open?a"},
		{"parameter without a value", "/a?api_key", "", 0, fault.Unauthorized, ""},
		{"empty parameter", "/a?api_key=", "", 0, fault.Unauthorized, ""},
		{"bad escape", "/a?api_key=%zz" + good, "", 0, fault.Unauthorized, ""},
		{"another name", "/a?api_keys=" + good, "", 0, fault.Unauthorized, ""},
		{"another case", "/a?API_KEY=" + good, "", 0, fault.Unauthorized, ""},
		{"only a scheme", "/a", "Basic", 1, fault.Unauthorized, ""},
		{"the key alone", "/a", good, 1, fault.Unauthorized, ""},
	} {
		v := h.decide(Request{Target: c.target, Authorization: c.authorization, Authorizations: c.authorizations})
		if v.Code != c.code {
			t.Errorf("%s: code %q, want %q", c.name, v.Code, c.code)
			continue
		}
		if c.code != "" {
			continue
		}
		if got := string(v.AppendTarget(nil)); got != c.forwarded {
			t.Errorf("%s: forwards %q, want %q", c.name, got, c.forwarded)
		}
		if strings.HasPrefix(c.target, "/open") {
			if v.Caller != nil || v.KeyPrefix != "" {
				t.Errorf("%s: a key was read on a public route", c.name)
			}
		} else if v.Caller.ID() != k.ID || v.KeyPrefix != k.Prefix {
			t.Errorf("%s: got key %s, prefix %s, want %s, %s", c.name, v.Caller.ID(), v.KeyPrefix, k.ID, k.Prefix)
		}
	}
}

// Guarantee: routes and scopes match the path with its unreserved characters decoded; the
// upstream receives it as the client sent it (contract, 4.2).
func TestMatchingForm(t *testing.T) {
	h := newHarness(t)
	h.gateway(nil, route("/orders", "GET"), route("/orders/{id}.json", "GET"), route("/orders-old/{x}", "GET"), route("/caf%c3%a9", "GET"))
	orders, cafe := h.scoped("read:orders"), h.scoped("read:caf%C3%a9")
	for _, c := range []struct {
		target, key string
		code        fault.Code
	}{
		{"/orders", orders, ""},
		{"/%6frders", orders, ""},
		{"/orders/%31%2Ejson", orders, ""},
		{"/orders/a%20b.json", orders, ""},
		{"/orders-old/1", orders, fault.Forbidden},
		{"/orders%2Dold/1", orders, fault.Forbidden},
		{"/caf%C3%A9", cafe, ""},
		{"/caf%c3%a9", cafe, ""},
		{"/caf\xc3\xa9", cafe, ""},
		{"/caf%C3%A9", orders, fault.Forbidden},
	} {
		v := h.decide(Request{Target: c.target, Authorization: "Bearer " + c.key})
		if v.Code != c.code {
			t.Errorf("%s: code %q, want %q", c.target, v.Code, c.code)
		}
		if got := string(v.AppendTarget(nil)); got != c.target {
			t.Errorf("%s is forwarded as %s, want it unchanged", c.target, got)
		}
	}
}

// Guarantee: a key is refused from the instant of its expiry, without a publication.
func TestExpiryToTheInstant(t *testing.T) {
	h := newHarness(t)
	h.gateway(nil, route("/a", "GET"))
	_, key := h.key(func(k *apikey.Key) { k.ExpiresAt = h.clock.Wall().Add(time.Minute) })
	h.clock.Advance(time.Minute - time.Microsecond)
	if v := h.decide(Request{Target: "/a", Authorization: "Bearer " + key}); v.Action != Forward {
		t.Errorf("before the expiry: got %v, want Forward", v.Fault())
	}
	h.clock.Advance(time.Microsecond)
	if v := h.decide(Request{Target: "/a", Authorization: "Bearer " + key}); v.Auth != fault.KeyExpired {
		t.Errorf("at the expiry: got %v, want code key_expired", v.Fault())
	}
}

// Guarantee: a key that authenticates is marked as used, whether or not the request is
// refused later. A key that does not authenticate is not.
func TestUseIsMarked(t *testing.T) {
	h := newHarness(t)
	h.gateway(nil, route("/a", "GET"))
	k, good := h.key(nil)
	_, expired := h.key(func(k *apikey.Key) { k.ExpiresAt = h.clock.Wall() })
	h.decide(Request{Target: "/none", Authorization: "Bearer " + good})
	h.decide(Request{Target: "/a", Authorization: "Bearer " + expired})
	used := map[string]time.Time{}
	h.follower.DrainUsed(func(keyID string, at time.Time) { used[keyID] = at })
	if len(used) != 1 || !used[k.ID].Equal(h.clock.Wall()) {
		t.Errorf("got uses %v, want one of %s now", used, k.ID)
	}
}

// corsHarness returns a harness with one gateway that allows an origin, and a key.
func corsHarness(t *testing.T) (h *harness, key string) {
	t.Helper()
	h = newHarness(t)
	h.gateway(func(g *gateway.Gateway) {
		g.CORS = &gateway.CORS{Origins: []string{appOrigin}, Methods: []string{"GET", "PUT"}, Headers: []string{"Authorization"}, MaxAge: 600}
		g.GlobalLimit = ratelimit.Config{Sustained: rate(t, "1/day")}
	}, route("/a", "GET", "OPTIONS"))
	_, key = h.key(nil)
	return h, key
}

const appOrigin = "https://app.example"

// wantFields fails the test if a header field of v differs from want, where "" is absent.
func wantFields(t *testing.T, name string, v *Verdict, want map[string]string) {
	t.Helper()
	got := fields(v)
	for field, value := range want {
		if got[field] != value {
			t.Errorf("%s: got %s %q, want %q", name, field, got[field], value)
		}
	}
}

// Guarantee: a CORS preflight of an allowed origin gets the configured fields, a preflight of
// another origin does not; neither is charged to a limit (contract, 3.3 and 4.2).
func TestCORSPreflight(t *testing.T) {
	h, _ := corsHarness(t)
	req := Request{Method: "OPTIONS", Target: "/no/such/route", Origin: appOrigin, PreflightMethod: "PUT"}
	for range 3 {
		v := h.decide(req)
		if v.Action != Preflight || v.Fault() != nil {
			t.Errorf("got action %d, fault %v, want Preflight", v.Action, v.Fault())
		}
		wantFields(t, "allowed origin", v, map[string]string{
			"Access-Control-Allow-Origin": appOrigin, "Access-Control-Allow-Methods": "GET, PUT", "Access-Control-Allow-Headers": "Authorization",
			"Access-Control-Expose-Headers": "", "Access-Control-Max-Age": "600", "Vary": "Origin", "X-RateLimit-Remaining": "1",
		})
	}
	req.Origin = "https://evil.example"
	v := h.decide(req)
	if v.Action != Preflight {
		t.Errorf("another origin: got action %d, want Preflight", v.Action)
	}
	wantFields(t, "another origin", v, map[string]string{"Access-Control-Allow-Origin": "", "Access-Control-Allow-Methods": "", "Vary": "Origin"})
}

// Guarantee: the response to any other request allows the origin, if it is allowed, also
// when the request is refused (contract, 3.3 and 4.2).
func TestCORSRequest(t *testing.T) {
	h, key := corsHarness(t)
	v := h.decide(Request{Method: "OPTIONS", Target: "/a", Origin: appOrigin, Authorization: "Bearer " + key})
	if v.Action != Forward {
		t.Errorf("OPTIONS that is not a preflight: got action %d, want Forward", v.Action)
	}
	const exposed = "Retry-After, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, RateLimit-Policy, RateLimit, X-Request-Id"
	wantFields(t, "OPTIONS that is not a preflight", v, map[string]string{"Access-Control-Allow-Origin": appOrigin, "Access-Control-Expose-Headers": exposed})
	v = h.decide(Request{Target: "/a", Origin: appOrigin})
	if v.Code != fault.Unauthorized {
		t.Errorf("without a key: got %v, want code unauthorized", v.Fault())
	}
	wantFields(t, "refusal", v, map[string]string{
		"Access-Control-Allow-Origin": appOrigin, "Access-Control-Expose-Headers": exposed, "Access-Control-Allow-Methods": "",
	})
	wantFields(t, "without Origin", h.decide(Request{Target: "/a"}), map[string]string{
		"Access-Control-Allow-Origin": "", "Access-Control-Expose-Headers": "", "Vary": "Origin",
	})
}

// Guarantee: a gateway without CORS treats a preflight like any other request. If every
// origin is allowed, the response does not vary by origin.
func TestCORSOffOrForAll(t *testing.T) {
	h := newHarness(t)
	h.gateway(nil, route("/a", "OPTIONS"))
	v := h.decide(Request{Method: "OPTIONS", Target: "/a", Origin: appOrigin, PreflightMethod: "PUT"})
	if v.Code != fault.Unauthorized {
		t.Errorf("gateway without CORS: got %v, want code unauthorized", v.Fault())
	}
	wantFields(t, "gateway without CORS", v, map[string]string{"Vary": ""})
	h.gateway(func(g *gateway.Gateway) {
		g.Hostname, g.HostGiven, g.CORS = "any.example", true, &gateway.CORS{Origins: []string{"*"}}
	})
	wantFields(t, "every origin", h.decide(Request{Target: "/a", Origin: appOrigin}), map[string]string{"Access-Control-Allow-Origin": "*", "Vary": ""})
}
