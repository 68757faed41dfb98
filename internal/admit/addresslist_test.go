package admit

import (
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/addrlist"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// Guarantee: edge.md, section 1: a request is refused by the first check that it fails: the gateway's addresses, then a
// preflight's response, then maintenance, the key, the key's addresses, the route, the route's addresses, the scope. A
// refusal charges nothing, and its record says whose lists they were; only checks of a key are an authentication event.
func TestOrderOfAddressChecks(t *testing.T) {
	const (
		office, partner, plant, lab, stranger = "203.0.113.7", "198.51.100.7", "198.51.100.130", "198.51.100.200", "192.0.2.7"
	)
	h := newHarness(t)
	closed := route("/orders", "POST")
	closed.Handling = &gateway.Handling{DenyIPs: []string{"198.51.100.128/26"}}
	open := public(route("/open", "GET"))
	open.Handling = &gateway.Handling{AllowIPs: []string{office + "/32"}}
	g := h.gateway(func(g *gateway.Gateway) {
		g.Hostname, g.HostGiven, g.GlobalLimit = "a.example", true, config(t, "5/day", "", "", "")
		g.Requests.DenyIPs = []string{"192.0.2.0/24"}
		g.CORS = &gateway.CORS{Origins: []string{"https://app.example"}}
		g.Requests.SelfService.Usage = true
	}, closed, open)
	_, key := h.key(func(k *apikey.Key) {
		k.Addresses.Allow = []string{"203.0.113.0/24", "198.51.100.0/25", "198.51.100.128/26"}
	})
	_, reader := h.key(func(k *apikey.Key) { k.Scope, _ = apikey.ParseScopes("read") })
	maintained := g
	maintained.Requests.Maintenance = &gateway.Maintenance{Message: "back soon", Allow: []string{office + "/32"}}

	for _, c := range []struct {
		name, client, method, target, key string
		maintenance                       bool
		action                            Action
		code                              fault.AuthCode
		reason                            accesslog.Reason
		authenticated                     bool
	}{
		{"the gateway denies the address, without a key", stranger, "POST", "/none", "", false, Refuse, fault.AddressNotAllowed, accesslog.GatewayAddresses, false},
		{"the gateway denies the address, with a key", stranger, "POST", "/orders", key, true, Refuse, fault.AddressNotAllowed, accesslog.GatewayAddresses, false},
		{"IPv4-mapped", "::ffff:" + stranger, "POST", "/orders", key, false, Refuse, fault.AddressNotAllowed, accesslog.GatewayAddresses, false},
		{"a preflight from a denied address", stranger, "OPTIONS", "/orders", "", false, Refuse, fault.AddressNotAllowed, accesslog.GatewayAddresses, false},
		{"a preflight under maintenance", partner, "OPTIONS", "/orders", "", true, Preflight, "", 0, false},
		{"maintenance, without a key", partner, "POST", "/none", "", true, Refuse, fault.UnderMaintenance, 0, false},
		{"maintenance, with a key", partner, "POST", "/orders", key, true, Refuse, fault.UnderMaintenance, 0, false},
		{"maintenance, on a path of self-service", partner, "GET", "/.keygate/usage", key, true, Refuse, fault.UnderMaintenance, 0, false},
		{"maintenance, from an exempt address, without a key", office, "POST", "/orders", "", true, Refuse, fault.KeyInvalid, accesslog.NoKey, true},
		{"no key", partner, "POST", "/none", "", false, Refuse, fault.KeyInvalid, accesslog.NoKey, true},
		{"the key denies the address, on no route", lab, "POST", "/none", key, false, Refuse, fault.AddressNotAllowed, accesslog.KeyAddresses, true},
		{"the key denies the address, on a path of self-service", lab, "GET", "/.keygate/usage", key, false, Refuse, fault.AddressNotAllowed, accesslog.KeyAddresses, true},
		{"the key denies IPv6", "2001:db8::1", "POST", "/orders", key, false, Refuse, fault.AddressNotAllowed, accesslog.KeyAddresses, true},
		{"the key denies an unknown address", "", "POST", "/orders", key, false, Refuse, fault.AddressNotAllowed, accesslog.GatewayAddresses, false},
		{"no route", plant, "POST", "/none", key, false, Refuse, "", 0, true},
		{"the route denies the address", plant, "POST", "/orders", key, false, Refuse, fault.AddressNotAllowed, accesslog.RouteAddresses, true},
		{"the route denies the address, before the scope", plant, "POST", "/orders", reader, false, Refuse, fault.AddressNotAllowed, accesslog.RouteAddresses, true},
		{"scope", partner, "POST", "/orders", reader, false, Refuse, fault.ScopeInsufficient, 0, true},
		{"a public route denies the address", partner, "GET", "/open", "", false, Refuse, fault.AddressNotAllowed, accesslog.RouteAddresses, false},
		{"a public route allows the address", office, "GET", "/open", "", false, Forward, "", 0, false},
		{"all checks passed", partner, "POST", "/orders", key, false, Forward, "", 0, true},
		{"maintenance, from an exempt address", office, "POST", "/orders", key, true, Forward, "", 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := g
			if c.maintenance {
				now = maintained
			}
			h.source.PutGateway(now, closed, open)
			h.catchUp()
			req := Request{Method: c.method, Host: "a.example", Target: c.target}
			if c.client != "" {
				req.Client = netip.MustParseAddr(c.client)
			}
			if c.method == "OPTIONS" {
				req.Origin, req.PreflightMethod = "https://app.example", "POST"
			}
			if c.key != "" {
				req.Authorization = "Bearer " + c.key
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
	if left != "2" {
		t.Errorf("got %s requests left, want 2 of 5 after three that were forwarded: a refusal charges nothing", left)
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
