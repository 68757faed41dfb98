package snapshot_test

import (
	"fmt"
	"testing"

	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/ratelimit"
)

// Guarantee: the routes that a request misses by a slash, by its case or by its method are found in any table; others
// are looked for in a bounded part of it. Another account learns nothing.
func TestNearestIsBounded(t *testing.T) {
	h := newHarness(t)
	g := h.gateway()
	routes := make([]gateway.Route, 6_000)
	for i := range routes {
		routes[i] = route(fmt.Sprintf("/r%d", i), ratelimit.Config{}, "GET")
	}
	h.source.PutGateway(g, routes...)
	h.catchUp()
	last := len(routes) - 1
	for path, method := range map[string]string{
		fmt.Sprintf("/r%d/", last): "GET", fmt.Sprintf("/R%d", last): "GET", fmt.Sprintf("/r%d", last): "PUT",
	} {
		near, hostname, known := h.follower.Nearest(g.AccountID, g.ID, method, path, 2_000)
		if !known || hostname == "" || len(near) == 0 || near[0].Path != routes[last].Path {
			t.Errorf("%s %s: got %+v of %q, want %s first", method, path, near, hostname, routes[last].Path)
		}
	}
	if near, _, known := h.follower.Nearest("acct_other", g.ID, "GET", "/r1/", 2_000); known || near != nil {
		t.Errorf("another account got %+v, want nothing", near)
	}
}
