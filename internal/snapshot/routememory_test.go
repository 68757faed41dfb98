package snapshot_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/snapshot"
)

// partRoutes returns n routes such as GET /v1/things-123/{id}/parts/{part}.
func partRoutes(n int) []gateway.Route {
	routes := make([]gateway.Route, n)
	for i := range routes {
		routes[i] = route(fmt.Sprintf("/v1/things-%d/{id}/parts/{part}", i), ratelimit.Config{}, "GET")
	}
	return routes
}

// bytesPerRoute returns the live heap that each route in force takes, including its path.
func bytesPerRoute(t testing.TB, make func() []gateway.Route) (each float64, g *snapshot.Gateway) {
	t.Helper()
	empty := liveHeap()
	routes := make()
	n := len(routes)
	g, err := snapshot.CompileRoutes(routes)
	if err != nil {
		t.Fatal(err)
	}
	routes = nil
	each = float64(liveHeap()-empty) / float64(n)
	runtime.KeepAlive(g)
	runtime.KeepAlive(routes)
	return each, g
}

// Guarantee: a route takes at most 300 bytes of memory on average, measured with fewer routes than in
// BenchmarkRouteMemory, and a document of many long paths no more than a small multiple of its size.
func TestRouteMemory(t *testing.T) {
	each, g := bytesPerRoute(t, func() []gateway.Route { return partRoutes(20_000) })
	if each > 300 {
		t.Errorf("got %.0f bytes for each route, want at most 300", each)
	}
	if n := g.FindNode("/v1/things-17/a/parts/b"); n == nil || n.Route("HEAD") == nil || n.Allow() != "GET, HEAD" {
		t.Errorf("got node %v of a path that is there", n)
	}
	long := func() []gateway.Route {
		routes := make([]gateway.Route, 1500)
		for i := range routes {
			var b strings.Builder
			for level := range gateway.MaxSegments {
				fmt.Fprintf(&b, "/s%d-%d-%d{p%d}", i*7%1500, level, i, level)
			}
			routes[i] = route(b.String(), ratelimit.Config{}, "GET")
		}
		return routes
	}
	if each, g := bytesPerRoute(t, long); each > 2*float64(len(g.FindNode("/s0-0-0x"+strings.Join(levels(), "")).Route("GET").Path))+500 {
		t.Errorf("got %.0f bytes for each long route", each)
	}
}

// levels returns the segments after the first of a path that the first long route matches.
func levels() []string {
	segments := make([]string, 0, gateway.MaxSegments)
	for level := 1; level < gateway.MaxSegments; level++ {
		segments = append(segments, fmt.Sprintf("/s0-%d-0x", level))
	}
	return segments
}

// BenchmarkRouteMemory compiles 100,000 routes and reports the live heap for each.
func BenchmarkRouteMemory(b *testing.B) {
	for b.Loop() {
		each, _ := bytesPerRoute(b, func() []gateway.Route { return partRoutes(100_000) })
		b.ReportMetric(each, "B/route")
		if each > 300 {
			b.Errorf("%.0f bytes for each route, want at most 300", each)
		}
	}
}

// Guarantee: a gateway of an earlier version whose routes exceed the bounds is in force as it was.
func TestTableBeyondBoundsIsInForce(t *testing.T) {
	h := newHarness(t)
	g := h.gateway()
	long := strings.Repeat("/a", gateway.MaxSegments+10)
	routes := []gateway.Route{route(long+"/{id}", ratelimit.Config{}, "GET")}
	for i := range gateway.MaxTexts + 10 {
		routes = append(routes, route(fmt.Sprintf("/t/%d-{id}", i), ratelimit.Config{}, "GET"))
	}
	var methods []string
	for i := range gateway.MaxMethods + 10 {
		methods = append(methods, fmt.Sprintf("M%d", i))
	}
	routes = append(routes, gateway.Route{ID: id.New(id.Route), Path: "/m", Methods: methods, Auth: gateway.AuthKey})
	h.source.PutGateway(g, routes...)
	h.catchUp()
	c := h.follower.Current().GatewayByID(g.ID)
	for path, method := range map[string]string{long + "/1": "GET", fmt.Sprintf("/t/%d-x", gateway.MaxTexts+9): "GET", "/m": methods[len(methods)-1]} {
		if n := c.FindNode(path); n == nil || n.Route(method) == nil {
			t.Errorf("%s %.20s is not found", method, path)
		}
	}
}
