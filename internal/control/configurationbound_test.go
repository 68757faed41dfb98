package control_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/addrlist"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// Guarantee: what an account configures is bounded in bytes, whichever way it grows: a call beyond the bound is a
// conflict that says what takes how much, and changes nothing. A call that does not grow it succeeds, even in an
// account that has more already. Other accounts have bounds of their own.
func TestConfigurationOfAnAccountIsBounded(t *testing.T) {
	h := newHarness(t)
	caller, other := h.caller("acme", "admin"), h.caller("other", "admin")
	g := h.gateway(caller)
	route := h.route(caller, g.ID, "/a", "GET")
	owner, long := strings.Repeat("o", 200), strings.Repeat("l", 250)
	key := must[*control.NewKey](h)(h.CreateKey(ctx(), caller, control.KeyInput{Name: "k", Scope: "read:" + long, Owner: owner}))
	hook := must[*control.NewWebhook](h)(h.CreateWebhook(ctx(), caller, control.WebhookInput{URL: "https://example.com/", Events: []string{"key.created"}}))

	small := must[*control.ChangedPlan](h)(h.CreatePlan(ctx(), caller, control.PlanInput{Name: "small"}))

	h.bounds = control.AccountBounds{ConfigurationBytes: 800}
	h.serve(h.db)
	cors := gateway.Patch{CORS: control.Optional[gateway.CORS]{Present: true, Value: gateway.CORS{Origins: []string{"https://" + long[:240], "https://" + long[:241], "https://" + long[:242]}}}}
	var paths []string
	for i := range 9 {
		paths = append(paths, fmt.Sprintf("/%d/%s", i, long[:100]))
	}
	var networks []string
	for i := range 40 {
		networks = append(networks, fmt.Sprintf("192.0.2.%d/32", i))
	}
	grow := map[string]func() error{
		"gateway": func() error {
			return second(h.CreateGateway(ctx(), caller, gateway.Patch{Name: text(long), UpstreamURL: text("https://example.com/" + long)}, ""))
		},
		"settings": func() error { return second(h.UpdateGateway(ctx(), caller, g.ID, cors, nil)) },
		"route": func() error {
			return second(h.CreateRoute(ctx(), caller, g.ID, gateway.RouteSpec{Path: "/" + long + long, Methods: []string{"GET"}}))
		},
		"path": func() error {
			return second(h.UpdateRoute(ctx(), caller, g.ID, route.ID, control.RoutePatch{Path: text("/" + long + long)}, nil))
		},
		"response of a route": func() error {
			respond := gateway.Respond{Status: 200, ContentType: "text/plain", Body: long + long}
			return second(h.UpdateRoute(ctx(), caller, g.ID, route.ID, control.RoutePatch{Handling: control.HandlingPatch{Respond: value(respond)}}, nil))
		},
		"headers of a route": func() error {
			rules := &gateway.HeaderRules{Set: map[string]string{"X-A": "a", "X-B": "b", "X-C": "c", "X-D": "d"}}
			return second(h.CreateRoute(ctx(), caller, g.ID, gateway.RouteSpec{Path: "/h", Methods: []string{"GET"}, Handling: &gateway.Handling{ResponseHeaders: rules}}))
		},
		"addresses of a key": func() error {
			return second(h.UpdateKey(ctx(), caller, key.ID, control.KeyPatch{AllowIPs: value(networks)}, nil))
		},
		"key with addresses": func() error {
			return second(h.CreateKey(ctx(), caller, control.KeyInput{Name: "k", Scope: "read", Addresses: addrlist.Lists{Deny: networks}}))
		},
		"push":    func() error { return second(h.PushSpec(ctx(), caller, g.ID, spec(paths...), false, nil)) },
		"dry run": func() error { return second(h.PushSpec(ctx(), caller, g.ID, spec(paths...), true, nil)) },
		"key": func() error {
			return second(h.CreateKey(ctx(), caller, control.KeyInput{Name: "k", Scope: "read:" + long, Owner: long}))
		},
		"owner": func() error {
			return second(h.CreateOwner(ctx(), caller, control.OwnerInput{ExternalID: long}))
		},
		"owner of a key": func() error {
			return second(h.UpdateKey(ctx(), caller, key.ID, control.KeyPatch{Owner: text(long)}, nil))
		},
		"plan": func() error {
			return second(h.CreatePlan(ctx(), caller, planOn("free", g.ID, "/"+long[:200], "/"+long[:201])))
		},
		"limits": func() error {
			return second(h.UpdatePlan(ctx(), caller, small.ID, control.PlanPatch{Limits: value(planOn("", g.ID, "/"+long[:200], "/"+long[:201]).Limits)}, nil))
		},
		"rotation": func() error { return second(h.RotateKey(ctx(), caller, key.ID, 1, "", nil)) },
		"webhook": func() error {
			return second(h.CreateWebhook(ctx(), caller, control.WebhookInput{URL: "https://example.com/" + long + long, Events: []string{"key.created"}}))
		},
		"url": func() error {
			return second(h.UpdateWebhook(ctx(), caller, hook.ID, control.WebhookPatch{URL: text("https://example.com/" + long + long)}, nil))
		},
	}
	for name, f := range grow {
		h.wantNoRecords(caller.Account.ID, func() {
			var f2 *fault.Error
			err := f()
			if errors.As(err, &f2); fault.CodeOf(err) != fault.Conflict || !strings.Contains(f2.Message, "scopes and address lists of keys that are not revoked (") {
				t.Errorf("%s: got %v, want a conflict that says what keys take", name, err)
			}
		})
	}
	h.gateway(other)
	h.must(second(h.CreateKey(ctx(), other, control.KeyInput{Name: "k", Scope: "read:" + long, Owner: long})))

	h.bounds.ConfigurationBytes = 1
	h.serve(h.db)
	h.must(second(h.UpdateGateway(ctx(), caller, g.ID, gateway.Patch{Name: text("o")}, nil)))
	h.must(second(h.UpdateRoute(ctx(), caller, g.ID, route.ID, control.RoutePatch{Path: text("/b")}, nil)))
	h.must(second(h.UpdateKey(ctx(), caller, key.ID, control.KeyPatch{Name: text(long), Owner: control.Optional[string]{Present: true, Null: true}}, nil)))
	h.must(second(h.UpdateKey(ctx(), caller, key.ID, control.KeyPatch{Owner: text(owner)}, nil)))
	h.must(second(h.CreateKey(ctx(), caller, control.KeyInput{Name: "without resource and owner", Scope: "read"})))
	h.must(second(h.RevokeKey(ctx(), caller, key.ID, nil)))
}
