package control_test

import (
	"slices"
	"testing"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/gateway"
)

// Guarantee: a dry run lists the routes whose prefix, redirect or response would change, a push takes all of it from the file, and a
// rollback restores it.
func TestEffectAndRollbackOfHandlings(t *testing.T) {
	h := newHarness(t)
	c := h.caller("a", "admin")
	g := h.gateway(c)
	file := func(fields string) []byte {
		return []byte("routes:\n- {path: /a/b, methods: [GET]" + fields + "}\n")
	}
	push := func(fields string, dry bool) *control.PushResult {
		return must[*control.PushResult](h)(h.PushConfiguration(ctx(), c, g.ID, file(fields), dry, nil))
	}
	first := push(", strip_prefix: /a, redirect: {to: /c, status: 308}", false)
	p := h.withPlane(c.Account.ID, g.ID, nil)
	p.end(h.routes(c, g.ID)[0].ID, "", accesslog.Redirected, 308)
	for fields, want := range map[string][]string{
		", strip_prefix: /a, redirect: {to: /c, status: 308}":   {},
		", strip_prefix: /a/b, redirect: {to: /c, status: 308}": {"/a/b strip_prefix 1/0/0 0"},
		", strip_prefix: /a, redirect: {to: /c, status: 307}":   {"/a/b redirect 1/0/0 0"},
		", strip_prefix: /a, respond: {status: 204}":            {"/a/b redirect respond 1/0/0 0"},

		", strip_prefix: /a, redirect: {to: /c, status: 308}, request_headers: {remove: [X-A]}": {"/a/b request_headers 1/0/0 0"},
		", strip_prefix: /a, redirect: {to: /c, status: 308}, validate: enforce":                {"/a/b validate 1/0/0 0"},
		", strip_prefix: /a, redirect: {to: /c, status: 308}, validate: off":                    {},
	} {
		if got := effects(must[*control.Effect](h)(h.Effect(ctx(), c, push(fields, true)))); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", fields, got, want)
		}
	}
	before := h.routes(c, g.ID)[0].Handling
	changed := push(", respond: {status: 410}, allow_ips: [192.0.2.0/24], deny_ips: [192.0.2.1/32], request_headers: {remove: [X-A]}, response_headers: {set: {X-B: c}}, validate: report", false)
	var fields []string
	for _, change := range changed.Changed[0].Changes {
		fields = append(fields, change.Field)
	}
	if want := gateway.HandlingFields(); !slices.Equal(fields, want) {
		t.Errorf("got changes of %q, want %q", fields, want)
	}
	must[*control.PushResult](h)(h.Rollback(ctx(), c, g.ID, first.Revision, false, nil))
	if got := h.routes(c, g.ID)[0].Handling; !got.Equal(before) {
		t.Errorf("after the rollback: got %+v, want %+v", got, before)
	}
}
