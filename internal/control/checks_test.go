package control_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/gateway"
)

// checked returns a document with n operations, each of which has a schema.
func checked(n int, x string) []byte {
	var b strings.Builder
	b.WriteString("openapi: 3.1.0\ninfo: {title: t, version: '1'}\npaths:\n")
	for i := range n {
		fmt.Fprintf(&b, "  /%d:\n    post: {%srequestBody: {content: {application/json: {schema: {type: string, maxLength: %d}}}}}\n", i, x, i+1)
	}
	return []byte(b.String())
}

// Guarantee: edge.md, section 6. The checks of an account's documents take a bounded number of bytes: what has no room is unchecked, from the
// last operation on, and the push says so; and what other gateways give up can be used. A configuration file has no checks.
func TestChecksOfAnAccountAreBounded(t *testing.T) {
	h := newHarness(t)
	c := h.caller("a", "admin")
	one, two := h.gateway(c), h.gateway(c)
	for _, g := range []*gateway.Gateway{one, two} {
		must[*gateway.Gateway](h)(h.UpdateGateway(ctx(), c, g.ID, gateway.Patch{Validate: gateway.Member[string]{Present: true, Value: "report"}}, nil))
	}
	checks := func(g *gateway.Gateway) gateway.Checks {
		t.Helper()
		return must[*gateway.Gateway](h)(h.Gateway(ctx(), c, g.ID)).Requests.Checks
	}
	unchecked := func(r *control.PushResult) (n int) {
		for _, w := range r.Warnings {
			if strings.Contains(w, "is unchecked: ") {
				n++
			}
		}
		return n
	}
	if r := h.push(c, one.ID, checked(3, "")); unchecked(r) != 0 {
		t.Errorf("got the warnings %q, want none", r.Warnings)
	}
	each := checks(one).Bytes / 3
	if got := checks(one); got.Operations != 3 || each < 500 || each > 5000 {
		t.Fatalf("got %+v, want 3 operations of some hundred bytes", got)
	}
	h.bounds.CheckBytes = 5*each + each/2
	h.reopen()
	if r := h.push(c, two.ID, checked(4, "")); unchecked(r) != 2 || checks(two).Operations != 2 {
		t.Errorf("got the warnings %q and %+v, want 2 operations checked", r.Warnings, checks(two))
	}
	h.configure(c, one.ID, "gateway: {}\nroutes: []\n")
	if got := checks(one); got != (gateway.Checks{}) {
		t.Errorf("got %+v of a configuration file, want none", got)
	}
	if r := h.push(c, two.ID, checked(5, "")); unchecked(r) != 0 || checks(two).Operations != 5 {
		t.Errorf("got the warnings %q and %+v, want all operations checked", r.Warnings, checks(two))
	}
	if r := h.push(c, two.ID, checked(7, "x-keygate-validate: off, ")); unchecked(r) != 0 || checks(two).Operations != 5 {
		t.Errorf("got the warnings %q and %+v, want none of operations that are off", r.Warnings, checks(two))
	}
	must[*control.PushResult](h)(h.Rollback(ctx(), c, two.ID, 2, false, nil))
	if got := checks(two); got.Operations != 5 {
		t.Errorf("got %+v after a rollback, want those of its document", got)
	}
}
