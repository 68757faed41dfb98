package control_test

import (
	"fmt"
	"testing"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/gateway"
)

// Guarantee: what a route requires that does not say it is what its gateway says, in each call that returns it, and follows the
// gateway's default_auth; its version stays. A route that says it keeps it, until it is told to say nothing.
func TestDefaultAuthOfRoutes(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	g := h.gateway(caller)
	silent := must[*gateway.Route](h)(h.CreateRoute(ctx(), caller, g.ID, gateway.RouteSpec{Path: "/a", Methods: []string{"GET"}}))
	spoken := must[*gateway.Route](h)(h.CreateRoute(ctx(), caller, g.ID, gateway.RouteSpec{Path: "/b", Methods: []string{"GET"}, Auth: gateway.AuthKey}))
	want := func(when string, first, second gateway.Auth) {
		t.Helper()
		one := must[*gateway.Route](h)(h.Route(ctx(), caller, g.ID, silent.ID))
		found := must[[]gateway.Route](h)(h.SearchRoutes(ctx(), caller, g.ID, control.RouteFilter{Query: "/a"}, control.Page{Limit: 1}))
		list := h.routes(caller, g.ID)
		if one.Auth != first || found[0].Auth != first || list[0].Auth != first || list[1].Auth != second || one.Version != silent.Version {
			t.Errorf("%s: got %s, %s, %s and %s in version %d, want %s and %s in version %d", when, one.Auth, found[0].Auth, list[0].Auth, list[1].Auth, one.Version, first, second, silent.Version)
		}
	}
	set := func(auth control.Optional[string]) {
		t.Helper()
		must[*gateway.Gateway](h)(h.UpdateGateway(ctx(), caller, g.ID, gateway.Patch{DefaultAuth: auth}, nil))
	}
	if silent.Auth != gateway.AuthKey || spoken.Auth != gateway.AuthKey {
		t.Errorf("got %s and %s, want key", silent.Auth, spoken.Auth)
	}
	want("created", gateway.AuthKey, gateway.AuthKey)
	set(value("any"))
	want("default_auth: any", gateway.AuthAny, gateway.AuthKey)
	told := must[*gateway.Route](h)(h.UpdateRoute(ctx(), caller, g.ID, spoken.ID, control.RoutePatch{Auth: null[string]()}, nil))
	if told.Auth != gateway.AuthAny || told.Version != spoken.Version+1 {
		t.Errorf("got %s in version %d of a route that says nothing any more, want any in version %d", told.Auth, told.Version, spoken.Version+1)
	}
	set(null[string]())
	want("default_auth: null", gateway.AuthKey, gateway.AuthKey)
}

// Guarantee: a push reports what routes require from then on, and that a route says what the gateway has said so far, but no change
// if it leaves that out, as routes of earlier versions do, which have stored "key" for both.
func TestPushOfDefaultAuth(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	g := h.create(caller)
	for i, step := range []struct{ gateway, route, want string }{
		{"", ", auth: key", "+1 [] []"},
		{"", "", "+0 [] []"},
		{"gateway: {default_auth: token}\n", "", "+0 [{default_auth key token}] [{auth key token}]"},
		{"gateway: {default_auth: token}\n", ", auth: token", "+0 [] [{auth <nil> token}]"},
		{"gateway: {default_auth: token}\n", ", auth: none", "+0 [] [{auth token none}]"},
		{"gateway: {default_auth: key}\n", "", "+0 [{default_auth token key}] [{auth none key}]"},
		{"gateway: {default_auth: any}\n", "", "+0 [{default_auth key any}] []"},
		{"gateway: {default_auth: key}\n", ", auth: key", "+0 [{default_auth any key}] [{auth any key}]"},
		{"gateway: {default_auth: none}\n", ", auth: key", "+0 [{default_auth key none}] []"},
	} {
		r := must[*control.PushResult](h)(h.PushConfiguration(ctx(), caller, g.ID, []byte(step.gateway+"routes: [{path: /a, methods: [GET]"+step.route+"}]"), false, nil))
		changes := []control.SettingChange{}
		for _, c := range r.Changed {
			changes = append(changes, c.Changes...)
		}
		if got := fmt.Sprintf("+%d %v %v", len(r.Added), r.Settings, changes); got != step.want {
			t.Errorf("push %d: got %s, want %s", i+1, got, step.want)
		}
	}
}
