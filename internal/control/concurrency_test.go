package control_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/ratelimit"
)

// inFlight returns the bounds of requests in flight of the gateway's routes, by path.
func (h *harness) inFlight(c *control.Actor, gatewayID string) string {
	h.tb.Helper()
	var list []string
	for _, r := range h.routes(c, gatewayID) {
		if !r.Concurrency.IsZero() {
			list = append(list, fmt.Sprintf("%s:%d%s", r.Path, r.Concurrency.Max, r.Concurrency.Per))
		}
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

// Guarantee: a bound of requests in flight that was set through the API stays when a spec is pushed, unless the spec has one; one
// of a former spec goes. A configuration file replaces all, a rollback restores those of the revision, and an export has them.
func TestConcurrencyOfTheSpecReplacesThatOfTheAPI(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	g := h.gateway(caller)
	want := func(what, bounds string) {
		t.Helper()
		if got := h.inFlight(caller, g.ID); got != bounds {
			t.Errorf("%s: got %q, want %q", what, got, bounds)
		}
	}
	spec := func(bounds ...int) []byte {
		text := "openapi: 3.1.0\npaths:\n"
		for i, n := range bounds {
			text += fmt.Sprintf("  /%d:\n    get: {}\n", i)
			if n > 0 {
				text += fmt.Sprintf("    x-keygate-concurrency: {max: %d, per: key}\n", n)
			}
		}
		return []byte(text)
	}
	set := func(path string, p control.Optional[ratelimit.Concurrency]) {
		t.Helper()
		for _, r := range h.routes(caller, g.ID) {
			if r.Path == path {
				must[*gateway.Route](h)(h.UpdateRoute(ctx(), caller, g.ID, r.ID, control.RoutePatch{Concurrency: p}, nil))
			}
		}
	}
	h.push(caller, g.ID, spec(1, 2, 0)) // 1
	want("a spec", "/0:1key /1:2key")
	set("/1", value(ratelimit.Concurrency{Max: 20}))
	set("/2", value(ratelimit.Concurrency{Max: 30}))
	h.push(caller, g.ID, spec(0, 0, 0)) // 2
	want("a spec without bounds", "/1:20 /2:30")
	r := h.push(caller, g.ID, spec(0, 5, 0)) // 3
	want("a spec with one", "/1:5key /2:30")
	if len(r.Changed) != 1 || len(r.Changed[0].Changes) != 1 || r.Changed[0].Changes[0].Field != "concurrency" {
		t.Errorf("got the changes %+v, want one of the concurrency", r.Changed)
	}
	set("/2", null[ratelimit.Concurrency]())
	want("null", "/1:5key")
	h.configure(caller, g.ID, "routes:\n- {path: /0, methods: [GET], concurrency: {max: 9}}\n- {path: /1, methods: [GET]}\n") // 4
	want("a configuration file", "/0:9")
	must[*control.PushResult](h)(h.Rollback(ctx(), caller, g.ID, 2, false, nil))
	want("a rollback", "/1:20 /2:30")
	exported := must[[]byte](h)(h.Configuration(ctx(), caller, g.ID))
	if r := must[*control.PushResult](h)(h.PushConfiguration(ctx(), caller, g.ID, exported, true, nil)); len(r.Added)+len(r.Removed)+len(r.Changed) > 0 || !strings.Contains(string(exported), "concurrency: {max: 30}") {
		t.Errorf("the exported configuration\n%s\nchanges %+v", exported, r)
	}
	for _, bad := range []ratelimit.Concurrency{{}, {Max: -1}, {Max: ratelimit.MaxConcurrency + 1}} {
		_, err := h.UpdateRoute(ctx(), caller, g.ID, h.routes(caller, g.ID)[0].ID, control.RoutePatch{Concurrency: value(bad)}, nil)
		h.wantCode(err, fault.ValidationFailed, "concurrency.max")
	}
	for text, field := range map[string]string{
		"5": "", "{}": ".max", "{max: null}": ".max", "{max: 0}": ".max", "{max: 1000001}": ".max", "{max: '5'}": ".max", "{max: 5, per: address}": ".per",
		"{max: 5, per: ''}": ".per", "{max: 5, most: 6}": ".most", "{Max: 5}": ".Max",
	} {
		_, err := h.PushConfiguration(ctx(), caller, g.ID, []byte("routes:\n- {path: /0, methods: [GET], concurrency: "+text+"}\n"), true, nil)
		h.wantCode(err, fault.ValidationFailed, "routes[0].concurrency"+field)
	}
}
