package admit

import (
	"net/netip"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// Guarantee: a route that does not say what it requires is treated as one that says what the gateway says, which is key if that
// says nothing either, whatever credential a request has and whether there is a route for its method; a change of the gateway
// is in force when it was read. Routes that say it do not care.
func TestRoutesThatSayNothing(t *testing.T) {
	h := newHarness(t)
	s := h.issuer("login", nil)
	_, key := h.key(nil)
	says := map[gateway.Auth]string{gateway.AuthKey: "/key", gateway.AuthToken: "/token", gateway.AuthAny: "/any", gateway.AuthNone: "/none"}
	routes := []gateway.Route{withAuth(route("/nothing", "GET"), "")}
	for auth, path := range says {
		routes = append(routes, withAuth(route(path, "GET"), auth))
	}
	g := h.gateway(func(g *gateway.Gateway) { g.Requests.Issuers = []string{"login"} }, routes...)
	for _, auth := range append([]gateway.Auth{""}, gateway.Auths()...) {
		g.Requests.DefaultAuth = auth
		h.source.PutGateway(g, routes...)
		h.catchUp()
		alike := says[g.AuthOf("")]
		for name, credential := range map[string]string{"nothing": "", "a key": "Bearer " + key, "a token": "Bearer " + s.token(nil), "junk": "Bearer x"} {
			for _, method := range []string{"GET", "POST"} {
				decide := func(path string) *Verdict {
					h.clock.Advance(time.Second) // so that the failures do not add up
					return h.decide(Request{Method: method, Target: path, Authorization: credential, Client: netip.MustParseAddr("192.0.2.1")})
				}
				got, want := decide("/nothing"), decide(alike)
				if got.Action != want.Action || got.Code != want.Code || got.Auth != want.Auth {
					t.Errorf("default_auth %q, %s with %s: got action %v, code %q and %q, want those of %s: %v, %q and %q",
						auth, method, name, got.Action, got.Code, got.Auth, alike, want.Action, want.Code, want.Auth)
				}
			}
		}
		if v := h.decide(Request{Method: "GET", Target: "/key", Client: netip.MustParseAddr("192.0.2.1")}); v.Code != fault.Unauthorized {
			t.Errorf("default_auth %q: got %q without a credential on a route that says key, want %q", auth, v.Code, fault.Unauthorized)
		}
	}
}
