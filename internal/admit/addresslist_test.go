package admit

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/addrlist"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
)

// credentialKind is a kind of credential, with what a route must accept for it. A gateway that takes tokens names the issuer
// login.
type credentialKind struct {
	name  string
	auth  gateway.Auth
	token bool // the credential is a token, else a key
}

var credentialKinds = []credentialKind{
	{"key", gateway.AuthKey, false},
	{"key where tokens pass", gateway.AuthAny, false},
	{"token where keys pass", gateway.AuthAny, true},
	{"token", gateway.AuthToken, true},
}

// Guarantee: edge.md, section 1: a request is refused by the first check that it fails: the gateway's addresses, then a
// preflight's response, then maintenance, the credential, the key's addresses, the route, the route's addresses, the scope,
// the limits, and then it is forwarded, or gets the route's own response, which is charged. Keys and tokens go the same way. A
// refusal charges nothing, and its record says whose lists they were; only checks of a credential are an authentication event.
func TestOrderOfAddressChecks(t *testing.T) {
	for _, kind := range credentialKinds {
		t.Run(kind.name, func(t *testing.T) { checkOrder(t, kind) })
	}
}

func checkOrder(t *testing.T, kind credentialKind) {
	const (
		office, partner, plant, lab, stranger = "203.0.113.7", "198.51.100.7", "198.51.100.130", "198.51.100.200", "192.0.2.7"
	)
	// The credentials of a request: none, one that may do all, one that may only read, one that has expired, and one that is
	// valid elsewhere.
	const good, reader, expired, foreign = "good", "reader", "expired", "foreign"
	h := newHarness(t)
	closed := withAuth(route("/orders", "POST"), kind.auth)
	closed.Handling = &gateway.Handling{DenyIPs: []string{"198.51.100.128/26"}}
	open := public(route("/open", "GET"))
	open.Handling = &gateway.Handling{AllowIPs: []string{office + "/32"}}
	hello := withAuth(route("/hello", "POST"), kind.auth)
	hello.Handling = &gateway.Handling{Respond: &gateway.Respond{Status: 200, Body: "hello"}}
	away := withAuth(route("/away", "POST"), kind.auth)
	away.Handling = &gateway.Handling{Redirect: &gateway.Redirect{To: "https://shop.example/", Status: 302}, DenyIPs: []string{"198.51.100.128/26"}}
	once := withAuth(limited(route("/once", "POST"), config(t, "1/day", "", "", "")), kind.auth)
	routes := []gateway.Route{closed, open, hello, away, once}
	g := h.gateway(func(g *gateway.Gateway) {
		g.Hostname, g.HostGiven, g.GlobalLimit = "a.example", true, config(t, "9/day", "", "", "")
		g.Requests.DenyIPs = []string{"192.0.2.0/24"}
		g.CORS = &gateway.CORS{Origins: []string{"https://app.example"}}
		g.Requests.SelfService.Usage = true
	}, routes...)
	var text map[string]string
	wrong, late := fault.KeyInvalid, fault.KeyExpired
	wrongReason, lateReason := accesslog.UnknownKey, accesslog.NoReason
	if kind.auth != gateway.AuthKey {
		g.Requests.Issuers = []string{"login"}
	}
	login, other := h.issuer("login", nil), h.issuer("other", nil)
	if kind.token {
		text = map[string]string{
			good: login.token(nil), reader: login.token(map[string]any{"scope": "read"}), foreign: other.token(nil),
			expired: login.token(map[string]any{"exp": h.clock.Wall().Add(-time.Hour).Unix()}),
		}
		wrong, late, wrongReason, lateReason = fault.TokenInvalid, fault.TokenExpired, accesslog.TokenRefused, accesslog.TokenRefused
	} else {
		addresses := addrlist.Lists{Allow: []string{"203.0.113.0/24", "198.51.100.0/25", "198.51.100.128/26"}}
		text = map[string]string{}
		_, text[good] = h.key(func(k *apikey.Key) { k.Addresses = addresses })
		_, text[reader] = h.key(func(k *apikey.Key) { k.Scope, _ = apikey.ParseScopes("read") })
		_, text[expired] = h.key(func(k *apikey.Key) { k.Addresses, k.ExpiresAt = addresses, h.clock.Wall() })
		_, text[foreign] = h.key(func(k *apikey.Key) { k.AccountID = id.New(id.Account) })
	}
	maintained := g
	maintained.Requests.Maintenance = &gateway.Maintenance{Message: "back soon", Allow: []string{office + "/32"}}

	for _, c := range []struct {
		name, client, method, target, credential string
		maintenance                              bool
		action                                   Action
		code                                     fault.AuthCode
		reason                                   accesslog.Reason
		authenticated                            bool
	}{
		{"the gateway denies the address, without a credential", stranger, "POST", "/none", "", false, Refuse, fault.AddressNotAllowed, accesslog.GatewayAddresses, false},
		{"the gateway denies the address, with a credential", stranger, "POST", "/orders", good, true, Refuse, fault.AddressNotAllowed, accesslog.GatewayAddresses, false},
		{"the gateway denies the address, with one of another", stranger, "POST", "/orders", foreign, false, Refuse, fault.AddressNotAllowed, accesslog.GatewayAddresses, false},
		{"IPv4-mapped", "::ffff:" + stranger, "POST", "/orders", good, false, Refuse, fault.AddressNotAllowed, accesslog.GatewayAddresses, false},
		{"a preflight from a denied address", stranger, "OPTIONS", "/orders", "", false, Refuse, fault.AddressNotAllowed, accesslog.GatewayAddresses, false},
		{"a preflight under maintenance", partner, "OPTIONS", "/orders", "", true, Preflight, "", 0, false},
		{"maintenance, without a credential", partner, "POST", "/none", "", true, Refuse, fault.UnderMaintenance, 0, false},
		{"maintenance, with a credential", partner, "POST", "/orders", good, true, Refuse, fault.UnderMaintenance, 0, false},
		{"maintenance, with one of another", partner, "POST", "/orders", foreign, true, Refuse, fault.UnderMaintenance, 0, false},
		{"maintenance, on a path of self-service", partner, "GET", "/.keygate/usage", good, true, Refuse, fault.UnderMaintenance, 0, false},
		{"maintenance, from an exempt address, without a credential", office, "POST", "/orders", "", true, Refuse, fault.KeyInvalid, accesslog.NoKey, true},
		{"no credential", partner, "POST", "/none", "", false, Refuse, fault.KeyInvalid, accesslog.NoKey, true},
		{"another's, on no route", partner, "POST", "/none", foreign, false, Refuse, wrong, wrongReason, true},
		{"another's, where the route denies the address", plant, "POST", "/orders", foreign, false, Refuse, wrong, wrongReason, true},
		{"expired, on no route", partner, "POST", "/none", expired, false, Refuse, late, lateReason, true},
		{"expired, where the route denies the address", plant, "POST", "/away", expired, false, Refuse, late, lateReason, true},
		{"expired, where the route responds", partner, "POST", "/hello", expired, false, Refuse, late, lateReason, true},
		{"the key denies the address, on no route", lab, "POST", "/none", good, false, Refuse, fault.AddressNotAllowed, accesslog.KeyAddresses, true},
		{"the key denies the address, on a path of self-service", lab, "GET", "/.keygate/usage", good, false, Refuse, fault.AddressNotAllowed, accesslog.KeyAddresses, true},
		{"the key denies IPv6", "2001:db8::1", "POST", "/orders", good, false, Refuse, fault.AddressNotAllowed, accesslog.KeyAddresses, true},
		{"an unknown address", "", "POST", "/orders", good, false, Refuse, fault.AddressNotAllowed, accesslog.GatewayAddresses, false},
		{"no route", plant, "POST", "/none", good, false, Refuse, "", 0, true},
		{"the route denies the address", plant, "POST", "/orders", good, false, Refuse, fault.AddressNotAllowed, accesslog.RouteAddresses, true},
		{"the route denies the address, before the scope", plant, "POST", "/orders", reader, false, Refuse, fault.AddressNotAllowed, accesslog.RouteAddresses, true},
		{"the route denies the address, before it redirects", plant, "POST", "/away", good, false, Refuse, fault.AddressNotAllowed, accesslog.RouteAddresses, true},
		{"scope", partner, "POST", "/orders", reader, false, Refuse, fault.ScopeInsufficient, 0, true},
		{"scope, before the route responds", partner, "POST", "/hello", reader, false, Refuse, fault.ScopeInsufficient, 0, true},
		{"a public route denies the address", partner, "GET", "/open", "", false, Refuse, fault.AddressNotAllowed, accesslog.RouteAddresses, false},
		{"a public route allows the address", office, "GET", "/open", "", false, Forward, "", 0, false},
		{"all checks passed", partner, "POST", "/orders", good, false, Forward, "", 0, true},
		{"maintenance, from an exempt address", office, "POST", "/orders", good, true, Forward, "", 0, true},
		{"the route responds", partner, "POST", "/hello", good, false, Respond, "", 0, true},
		{"the route redirects", partner, "POST", "/away", good, false, Respond, "", 0, true},
		{"within the limit", partner, "POST", "/once", good, false, Forward, "", 0, true},
		{"scope, before the limit", partner, "POST", "/once", reader, false, Refuse, fault.ScopeInsufficient, 0, true},
		{"limit", partner, "POST", "/once", good, false, Refuse, "", 0, true},
	} {
		if kind.token && c.reason == accesslog.KeyAddresses {
			continue // tokens have no lists of their own
		}
		t.Run(c.name, func(t *testing.T) {
			now := g
			if c.maintenance {
				now = maintained
			}
			h.source.PutGateway(now, routes...)
			h.catchUp()
			req := Request{Method: c.method, Host: "a.example", Target: c.target}
			if c.client != "" {
				req.Client = netip.MustParseAddr(c.client)
			}
			if c.method == "OPTIONS" {
				req.Origin, req.PreflightMethod = "https://app.example", "POST"
			}
			if c.credential != "" {
				req.Authorization = "Bearer " + text[c.credential]
			}
			v := h.decide(req)
			var r accesslog.Record
			v.Record(&r)
			if v.Action != c.action || v.Auth != c.code || v.KeyReason != c.reason || r.Authenticated != c.authenticated {
				t.Fatalf("got action %d, code %q, reason %q, authenticated %t; want %d, %q, %q, %t", v.Action, v.Auth, v.KeyReason, r.Authenticated, c.action, c.code, c.reason, c.authenticated)
			}
			if c.action == Refuse && fields(v)["X-RateLimit-Remaining"] == "" {
				t.Error("got no rate limit headers, want them on every response of a gateway")
			}
			f := v.Fault()
			switch c.code {
			case fault.AddressNotAllowed:
				if f.Code != fault.Forbidden || r.Result != accesslog.AddressDenied || f.Message == "" || strings.Contains(f.Message, "key") {
					t.Errorf("got %v, result %d; want forbidden, without a word about whose lists they are", f, r.Result)
				}
			case fault.UnderMaintenance:
				if f.Code != fault.Unavailable || f.Message != "back soon" || r.Result != accesslog.Maintenance || fields(v)["Retry-After"] != "" {
					t.Errorf("got %v, result %d; want unavailable with the message of the gateway", f, r.Result)
				}
			}
		})
	}
	left := fields(h.decide(Request{Method: "POST", Host: "a.example", Target: "/none", Client: netip.MustParseAddr(partner)}))["X-RateLimit-Remaining"]
	if left != "3" {
		t.Errorf("got %s requests left, want 3 of 9 after six that were forwarded or got a response of their route: a refusal charges nothing", left)
	}
}

// Guarantee: a request passes if the lists of gateway, key and route each allow its address, whatever they are.
func TestAllLevelsMustPass(t *testing.T) {
	h := newHarness(t)
	networks := rapid.SliceOfN(rapid.SampledFrom([]string{"10.0.0.0/8", "10.1.0.0/16", "10.1.1.0/24", "10.1.1.1/32", "0.0.0.0/0", "2001:db8::/32", "::/0"}), 0, 3)
	lists := rapid.Custom(func(t *rapid.T) addrlist.Lists {
		return addrlist.Lists{Allow: networks.Draw(t, "allow"), Deny: networks.Draw(t, "deny")}
	})
	r := route("/a", "GET")
	g := h.gateway(nil, r)
	k, secret := h.key(nil)
	rapid.Check(t, func(t *rapid.T) {
		ofGateway := lists.Draw(t, "gateway")
		k.Addresses = lists.Draw(t, "key")
		ofRoute := lists.Draw(t, "route")
		r.Handling = (&gateway.Handling{AllowIPs: ofRoute.Allow, DenyIPs: ofRoute.Deny}).Stored()
		g.Requests.AllowIPs, g.Requests.DenyIPs = ofGateway.Allow, ofGateway.Deny
		h.source.PutKey(k)
		h.source.PutGateway(g, r)
		h.catchUp()
		client := netip.MustParseAddr(rapid.SampledFrom([]string{"10.1.1.1", "10.1.1.2", "10.1.2.1", "10.2.0.1", "192.0.2.1", "2001:db8::1", "2001:db9::1"}).Draw(t, "client"))
		want := fault.AuthCode("")
		for _, l := range []addrlist.Lists{ofGateway, k.Addresses, ofRoute} {
			list, err := addrlist.Compile(l)
			if err != nil {
				t.Fatal(err)
			}
			if !list.Allows(client) {
				want = fault.AddressNotAllowed
			}
		}
		if v := h.decide(Request{Target: "/a", Client: client, Authorization: "Bearer " + secret}); v.Auth != want {
			t.Fatalf("got the code %q (%v), want %q", v.Auth, v.KeyReason, want)
		}
	})
}

// Guarantee: a request that was admitted before its gateway was put under maintenance, and has not been sent, gets the
// 503 and is charged nothing; one that was sent goes on.
func TestMaintenanceAfterAdmission(t *testing.T) {
	h := newReviewHarness(t, false)
	v, exempt := h.admitted("/items/1"), h.get(Request{Target: "/items/1", Client: netip.MustParseAddr("198.51.100.1")})
	h.gw.Requests.Maintenance = &gateway.Maintenance{Allow: []string{"198.51.100.0/24"}}
	h.source.PutGateway(h.gw, h.routes...)
	h.catchUp()
	if result, cut := h.review(v); result != accesslog.Maintenance || cut != accesslog.Forwarded {
		t.Errorf("got %d, cut %d; want the request refused before it is sent, and not cut", result, cut)
	}
	if result, _ := h.review(exempt); result != accesslog.Forwarded {
		t.Errorf("got %d for an exempt address, want it admitted", result)
	}
	r := h.admit.Review()
	v.Withdraw(accesslog.Maintenance, &r, nil)
	if f := v.Fault(); f.Code != fault.Unavailable || f.Auth != fault.UnderMaintenance || f.Message != gateway.DefaultMaintenance {
		t.Errorf("got %v, want the 503 of maintenance with the default message", f)
	}
	if _, _, kept := v.Charge.Kept(); kept {
		t.Error("got a charge, want none")
	}
}
