package snapshot_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/ratelimit"
)

// Guarantee: the path of a removed route stays known for 10 seconds, whether the route or its
// gateway was removed.
func TestRoutePathOutlivesTheRoute(t *testing.T) {
	h := newHarness(t)
	g := h.gateway()
	kept, removed := route("/kept", ratelimit.Config{}, "GET"), route("/removed", ratelimit.Config{}, "GET")
	h.source.PutGateway(g, kept, removed)
	h.catchUp()
	want := func(when, keptPath, removedPath string) {
		t.Helper()
		if got := h.follower.RoutePath(g.ID, kept.ID, h.clock.micros()); got != keptPath {
			t.Errorf("%s: got path %q of the kept route, want %q", when, got, keptPath)
		}
		if got := h.follower.RoutePath(g.ID, removed.ID, h.clock.micros()); got != removedPath {
			t.Errorf("%s: got path %q of the removed route, want %q", when, got, removedPath)
		}
	}
	want("at first", "/kept", "/removed")
	h.source.PutGateway(g, kept)
	h.catchUp()
	h.clock.Advance(10 * time.Second)
	want("10 seconds after the removal", "/kept", "/removed")
	h.clock.Advance(time.Second)
	want("11 seconds after the removal", "/kept", "")
	h.source.DeleteGateway(g.ID)
	h.catchUp()
	want("after the removal of the gateway", "/kept", "")
}

// Guarantee: after a route has moved, a request that began before is reported with the path that it was
// sent to, however often the route moves; after 10 seconds, with the present path.
func TestMovedRouteHasThePathOfTheTime(t *testing.T) {
	h := newHarness(t)
	g := h.gateway()
	r := route("/first", ratelimit.Config{}, "GET")
	h.source.PutGateway(g, r)
	h.catchUp()
	first := h.clock.micros()
	move := func(path string) int64 {
		h.clock.Advance(time.Millisecond)
		r.Path = path
		h.source.PutGateway(g, r)
		h.catchUp()
		return h.clock.micros()
	}
	want := func(when string, start int64, path string) {
		t.Helper()
		if got := h.follower.RoutePath(g.ID, r.ID, start); got != path {
			t.Errorf("%s: got path %q, want %q", when, got, path)
		}
	}
	second := move("/second")
	third := move("/third")
	h.clock.Advance(10*time.Second - time.Millisecond)
	want("before the first move", first, "/first")
	want("between the moves", second, "/second")
	want("after the last move", third, "/third")
	h.clock.Advance(time.Second)
	want("long before", first, "/third")
	h.source.PutGateway(g)
	h.catchUp()
	want("before the removal", third, "/third")
	want("after the removal", h.clock.micros(), "/third")
}

// Guarantee: at most 10,000 paths of removed routes are held.
func TestPathsOfRemovedRoutesAreBounded(t *testing.T) {
	h := newHarness(t)
	g := h.gateway()
	var routes []gateway.Route
	for i := range 11_000 {
		routes = append(routes, route(fmt.Sprintf("/r%d", i), ratelimit.Config{}, "GET"))
	}
	h.source.PutGateway(g, routes...)
	h.catchUp()
	h.source.PutGateway(g)
	h.catchUp()
	known := 0
	for i := range routes {
		if h.follower.RoutePath(g.ID, routes[i].ID, h.clock.micros()) != "" {
			known++
		}
	}
	if known != 10_000 {
		t.Errorf("%d paths are known, want 10000", known)
	}
}
