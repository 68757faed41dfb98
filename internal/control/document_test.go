package control_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/keygate/keygate/internal/fault"
)

// Guarantee: a document with several mistakes changes nothing, and each mistake is reported with
// its position. When a gateway is created, all of them are mistakes of the field spec.
func TestMistakesOfADocumentAreReportedAtOnce(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	g := h.gateway(caller)
	h.push(caller, g.ID, spec("/a"))
	want := func(err error, fields ...string) {
		t.Helper()
		var got []string
		for _, p := range fault.ProblemsOf(err) {
			got = append(got, fmt.Sprintf("%s at %d:%d", p.Field, p.Line, p.Column))
		}
		if !slices.Equal(got, fields) {
			t.Errorf("got problems of %q; want %q", got, fields)
		}
	}
	bad := []byte("openapi: 3.1.0\npaths:\n  b: {}\n  /c:\n    get: 5\n")
	_, err := h.PushSpec(ctx(), caller, g.ID, bad, false, nil)
	want(err, "paths.b at 3:3", "paths./c.get at 5:10")
	_, err = h.PushConfiguration(ctx(), caller, g.ID, []byte("routes:\n- 5\n- 6\n"), false, nil)
	want(err, "routes[0] at 2:3", "routes[1] at 3:3")
	if got := h.routes(caller, g.ID); len(got) != 1 || got[0].Path != "/a" {
		t.Errorf("got routes %+v; want only /a", got)
	}
	_, err = h.CreateGateway(ctx(), caller, newGateway("https://orders.internal"), string(bad))
	want(err, "spec at 3:3", "spec at 5:10")
}
