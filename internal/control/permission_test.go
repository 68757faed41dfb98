package control_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// Guarantee: no key can create, rotate, change or revoke a key with more permissions than its
// own, except revoke itself (contract, section 3). The test tries every combination of the
// caller's scope, the operation, and the level and scope of the other key. Whether a scope
// with a path may call the operation at all is checked before, and not tested here.
func TestNoKeyGrantsMoreThanItHas(t *testing.T) {
	scopes := []string{"read", "write", "admin", "read:keys", "write:keys", "admin:keys", "admin:gateways", "read write:keys", "read:keys admin", "write:a admin:b", "write:keys admin:webhooks"}
	targets := []string{"read", "write", "admin", "read:orders", "write:orders", "admin:orders/items", "read:a write:b"}
	h := newHarness(t)
	a, owner := h.account("acme")
	for _, scope := range scopes {
		caller := h.caller("acme", scope)
		for _, level := range []string{"gateway", "account"} {
			for _, target := range targets {
				t.Run(scope+" on "+level+" "+target, func(t *testing.T) {
					h.tb = t
					issues := rankOf(target, "") <= rankOf(scope, "keys")
					changes := true
					if level == "account" {
						full := slices.Contains(strings.Fields(scope), "admin")
						issues, changes = full, full
					}
					in := control.KeyInput{Name: "k", Scope: target, Level: level}
					_, err := h.CreateKey(ctx(), caller, in)
					h.wantAllowed("create", err, issues)

					k := must[*control.NewKey](h)(h.CreateKey(ctx(), owner, in))
					_, err = h.RotateKey(ctx(), caller, k.ID, 1, "", nil)
					h.wantAllowed("rotate", err, issues)
					_, err = h.UpdateKey(ctx(), caller, k.ID, control.KeyPatch{Name: value("n")}, nil)
					h.wantAllowed("patch", err, changes)
					_, err = h.RevokeKey(ctx(), caller, k.ID, nil)
					h.wantAllowed("revoke", err, changes)

					itself := must[*control.NewKey](h)(h.CreateKey(ctx(), owner, in))
					_, err = h.RevokeKey(ctx(), callerOf(a, itself), itself.ID, nil)
					h.wantAllowed("revoke itself", err, true)
				})
			}
		}
		h.tb = t
	}
}

// Guarantee: a caller without the permission gets a 403 even if its input is invalid (422),
// and the call writes no record.
func TestPermissionIsCheckedBeforeInput(t *testing.T) {
	h := newHarness(t)
	a, owner := h.account("acme")
	caller := h.caller("acme", "write")
	k := must[*control.NewKey](h)(h.CreateKey(ctx(), owner, control.KeyInput{Name: "k", Scope: "admin", Level: "account"}))
	h.wantNoRecords(a.ID, func() {
		for name, f := range map[string]func() error{
			"create": func() error { return second(h.CreateKey(ctx(), caller, control.KeyInput{Level: "account"})) },
			"create gw": func() error {
				return second(h.CreateKey(ctx(), caller, control.KeyInput{Scope: "admin", ExpiresAt: "x"}))
			},
			"rotate": func() error { return second(h.RotateKey(ctx(), caller, k.ID, 999, "", nil)) },
			"patch": func() error {
				return second(h.UpdateKey(ctx(), caller, k.ID, control.KeyPatch{Name: value("")}, never))
			},
			"revoke": func() error { return second(h.RevokeKey(ctx(), caller, k.ID, never)) },
		} {
			h.wantAllowed(name, f(), false)
		}
	})
}

// Guarantee: for every operation, a record of another account is not found, with the same
// message as a record that does not exist.
func TestAnotherAccountsRecordIsNotFound(t *testing.T) {
	h := newHarness(t)
	theirs, owner := h.account("theirs")
	caller := h.caller("mine", "admin")
	k := must[*control.NewKey](h)(h.CreateKey(ctx(), owner, control.KeyInput{Name: "k", Scope: "read"}))
	g := h.gateway(owner)
	r := h.route(owner, g.ID, "/a", "GET")
	must[*control.PushResult](h)(h.PushConfiguration(ctx(), owner, g.ID, []byte("routes: [{path: /a, methods: [GET]}]"), false, nil))

	h.wantNoRecords(theirs.ID, func() {
		for name, f := range operations(h, caller) {
			err := f(k.ID, g.ID, r.ID)
			h.wantCode(err, fault.NotFound, "")
			other := f("key_00000000000000000000000000", "gw_00000000000000000000000000", "rt_00000000000000000000000000")
			if err == nil || other == nil || err.Error() != other.Error() {
				t.Errorf("%s: got error %v for a record of another account and %v for none; want the same error", name, err, other)
			}
		}
	})
	_, err := h.CreateKey(ctx(), caller, control.KeyInput{Name: "k", Scope: "read", GatewayID: g.ID})
	h.wantCode(err, fault.ValidationFailed, "gateway_id")
	_, err = h.VerifyKey(ctx(), caller, k.Secret, g.ID, "", "")
	h.wantCode(err, fault.ValidationFailed, "gateway_id")
	v := must[*control.Verification](h)(h.VerifyKey(ctx(), caller, k.Secret, "", "", ""))
	if v.Valid || v.Code != "key_invalid" || v.Key != nil {
		t.Errorf("got verification %+v of another account's key; want key_invalid without the key", v)
	}
	for _, f := range []control.KeyFilter{{}, {GatewayID: g.ID}, {Query: "k"}, {State: apikey.Active}} {
		for _, key := range must[[]apikey.Key](h)(h.Keys(ctx(), caller, f, control.Page{Limit: 100})) {
			if key.AccountID == theirs.ID {
				t.Errorf("got a key of another account with filter %+v; want none", f)
			}
		}
	}
	if list, err := h.Gateways(ctx(), caller, control.GatewayFilter{}, control.Page{Limit: 100}); err != nil || len(list) != 0 {
		t.Errorf("got gateways %v, %v; want none of another account", list, err)
	}
	if list, err := h.Routes(ctx(), owner, g.ID, control.Page{Limit: 100}); err != nil || len(list) != 1 {
		t.Errorf("got routes %v, %v for the owner; want one", list, err)
	}
}

// operations returns every operation on a record, called by c.
func operations(h *harness, c *control.Actor) map[string]func(keyID, gatewayID, routeID string) error {
	doc := []byte("routes: []")
	return map[string]func(k, g, r string) error{
		"key":     func(k, _, _ string) error { return second(h.Key(ctx(), c, k)) },
		"patch":   func(k, _, _ string) error { return second(h.UpdateKey(ctx(), c, k, control.KeyPatch{}, never)) },
		"revoke":  func(k, _, _ string) error { return second(h.RevokeKey(ctx(), c, k, never)) },
		"rotate":  func(k, _, _ string) error { return second(h.RotateKey(ctx(), c, k, 0, "", nil)) },
		"gateway": func(_, g, _ string) error { return second(h.Gateway(ctx(), c, g)) },
		"update":  func(_, g, _ string) error { return second(h.UpdateGateway(ctx(), c, g, gateway.Patch{}, never)) },
		"delete":  func(_, g, _ string) error { return second(h.DeleteGateway(ctx(), c, g, never)) },
		"routes":  func(_, g, _ string) error { return second(h.Routes(ctx(), c, g, control.Page{Limit: 1})) },
		"route":   func(_, g, r string) error { return second(h.Route(ctx(), c, g, r)) },
		"new route": func(_, g, _ string) error {
			return second(h.CreateRoute(ctx(), c, g, routeSpec("/b", "GET")))
		},
		"limit": func(_, g, r string) error {
			return second(h.UpdateRouteLimit(ctx(), c, g, r, control.LimitPatch{RateLimit: null[control.RateLimitPatch]()}, never))
		},
		"update route": func(_, g, r string) error {
			return second(h.UpdateRoute(ctx(), c, g, r, control.RoutePatch{Path: value("/c")}, never))
		},
		"end route":     func(_, g, r string) error { return second(h.DeleteRoute(ctx(), c, g, r, never)) },
		"spec":          func(_, g, _ string) error { return second(h.Spec(ctx(), c, g)) },
		"configuration": func(_, g, _ string) error { return second(h.Configuration(ctx(), c, g)) },
		"push":          func(_, g, _ string) error { return second(h.PushSpec(ctx(), c, g, []byte(emptySpec), false, never)) },
		"push config":   func(_, g, _ string) error { return second(h.PushConfiguration(ctx(), c, g, doc, false, never)) },
		"dry run":       func(_, g, _ string) error { return second(h.PushConfiguration(ctx(), c, g, doc, true, never)) },
		"revisions":     func(_, g, _ string) error { return second(h.Revisions(ctx(), c, g, 1, 0)) },
		"revision":      func(_, g, _ string) error { return second(h.Revision(ctx(), c, g, 1)) },
		"rollback":      func(_, g, _ string) error { return second(h.Rollback(ctx(), c, g, 1, false, nil)) },
		"canaries":      func(_, g, _ string) error { return second(h.Canaries(ctx(), c, g, control.Page{Limit: 1})) },
		"start canary": func(_, g, _ string) error {
			return second(h.StartCanary(ctx(), c, g, control.CanaryInput{Upstream: "next"}))
		},
	}
}

// Guarantee: a caller whose key was revoked or expired after it was authenticated changes
// nothing.
func TestCallerWithAKeyRevokedMeanwhile(t *testing.T) {
	h := newHarness(t)
	a, owner := h.account("acme")
	revoked := h.caller("acme", "admin")
	must[*apikey.Key](h)(h.RevokeKey(ctx(), owner, revoked.KeyID, nil))
	expired := h.caller("acme", "admin")
	must[*apikey.Key](h)(h.UpdateKey(ctx(), owner, expired.KeyID, control.KeyPatch{ExpiresAt: value("2026-03-01T12:00:01Z")}, nil))
	h.clock.advance(2e9)
	h.wantNoRecords(a.ID, func() {
		for caller, code := range map[*control.Actor]fault.AuthCode{revoked: fault.KeyInvalid, expired: fault.KeyExpired} {
			_, err := h.CreateKey(ctx(), caller, control.KeyInput{Name: "k", Scope: "read"})
			h.wantCode(err, fault.Unauthorized, "")
			if got := authOf(err); got != code {
				t.Errorf("got code %q; want %q", got, code)
			}
		}
	})
}

func (h *harness) wantAllowed(what string, err error, allowed bool) {
	h.tb.Helper()
	switch {
	case allowed && err != nil:
		h.tb.Errorf("%s: got error %v; want it allowed", what, err)
	case !allowed && (fault.CodeOf(err) != fault.Forbidden || authOf(err) != fault.ScopeInsufficient):
		h.tb.Errorf("%s: got error %v; want it denied", what, err)
	}
}

// rankOf returns the rank of the highest word among the scopes without a resource or with the given
// resource; among all scopes if resource is "".
func rankOf(scopes, resource string) (rank int) {
	for scope := range strings.FieldsSeq(scopes) {
		word, of, _ := strings.Cut(scope, ":")
		if resource == "" || of == "" || of == resource {
			rank = max(rank, map[string]int{"read": 1, "write": 2, "admin": 3}[word])
		}
	}
	return rank
}

func value[T any](v T) control.Optional[T] { return control.Optional[T]{Present: true, Value: v} }

func null[T any]() control.Optional[T] { return control.Optional[T]{Present: true, Null: true} }

func never(int64) bool { return false }

func second[T any](_ T, err error) error { return err }

func version(want int64) control.Match {
	return func(got int64) bool { return got == want }
}
