package snapshot_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/snapshot"
)

// Guarantee: a route in force keeps its own path in memory, and not the page of routes in the store that it was read
// with: of a route that was made or changed alone, the page was read for it alone.
func TestRouteKeepsNoPage(t *testing.T) {
	const pages, page = 64, 1 << 20
	var gateways []*snapshot.Gateway
	for range pages {
		text := strings.Repeat("x", page) + "/orders/{id}"
		g, err := snapshot.CompileRoutes([]gateway.Route{{ID: id.New(id.Route), Path: text[page:], Methods: []string{"GET"}, Auth: gateway.AuthKey}})
		if err != nil {
			t.Fatal(err)
		}
		gateways = append(gateways, g)
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if m.HeapAlloc > pages*page/2 {
		t.Errorf("%d routes keep %d MiB in memory", pages, m.HeapAlloc>>20)
	}
	for _, g := range gateways {
		if g.FindNode("/orders/7") == nil {
			t.Error("the route is not found")
		}
	}
}
