package snapshot_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
)

// Guarantee: Unrouted names the resources at or below which the gateway, or any gateway of
// the account, has no route, by whole segments and in the normal form of paths.
func TestUnroutedNamesResourcesWithoutRoutes(t *testing.T) {
	h := newHarness(t)
	path := func(p string) gateway.Route { return route(p, ratelimit.Config{}, "GET") }
	orders, tenants, theirs := h.gateway(), h.gateway(), h.gateway()
	theirs.AccountID = id.New(id.Account)
	projects := h.gateway()
	projects.Requests.AllowEncodedSlashes = true
	h.source.PutGateway(projects, path("/projects/{name}"))
	h.source.PutGateway(orders, path("/orders/{id}"), path("/v1/caf\u00e9"))
	h.source.PutGateway(tenants, path("/t/{tenant}/items"), path("/files/*"))
	h.source.PutGateway(theirs, path("/theirs"))
	h.catchUp()
	for _, c := range []struct {
		gateway         string
		resources, want []string
	}{
		{"", []string{"orders", "orders/17", "v1", "v1/caf%c3%a9", "%6frders", "t", "t/acme/items", "files", "files/a/b"}, nil},
		{"", []string{"order", "orders-old", "orders/17/items", "t/acme/orders", "theirs"}, []string{"order", "orders-old", "orders/17/items", "t/acme/orders", "theirs"}},
		{orders.ID, []string{"orders", "t"}, []string{"t"}},
		{tenants.ID, []string{"orders", "t"}, []string{"orders"}},
		{"", []string{"projects/a%2Fb", "orders/a%2Fb", "files/a%5cb"}, []string{"orders/a%2Fb", "files/a%5cb"}},
		{theirs.ID, []string{"orders"}, nil}, // of another account
		{id.New(id.Gateway), []string{"orders"}, nil},
	} {
		if got := h.follower.Unrouted(h.account.ID, c.gateway, c.resources); !slices.Equal(got, c.want) {
			t.Errorf("of gateway %q: got %q, want %q", c.gateway, got, c.want)
		}
	}
	if got := h.follower.Unrouted(id.New(id.Account), "", []string{"orders"}); !slices.Equal(got, []string{"orders"}) {
		t.Errorf("of an account without gateways: got %q, want orders", got)
	}
}

// Guarantee: the work of Unrouted is bounded, whatever the routes of the account are. When
// it ends early, it names nothing.
func TestUnroutedIsBounded(t *testing.T) {
	h := newHarness(t)
	g := h.gateway()
	const depth = 15 // at each segment, a search finds two ways
	routes := make([]gateway.Route, 1<<depth)
	for i := range routes {
		path := ""
		for bit := range depth {
			path += [...]string{"/a", fmt.Sprintf("/{p%d}", bit)}[i>>bit&1]
		}
		routes[i] = route(path+"/end", ratelimit.Config{}, "GET")
	}
	h.source.PutGateway(g, routes...)
	h.catchUp()
	if got := h.follower.Unrouted(h.account.ID, "", []string{"none/x/y/z/1/2/3/4/5/6/7/8/9/0/b/c/d", strings.Repeat("a/", depth) + "other"}); !slices.Equal(got, []string{"none/x/y/z/1/2/3/4/5/6/7/8/9/0/b/c/d"}) {
		t.Errorf("got %q, want only the first: the other search is cut off", got)
	}
}

// Guarantee: Unmatched names the paths of a plan's limit for which the gateway has no route.
func TestUnmatchedNamesPathsWithoutRoutes(t *testing.T) {
	h := newHarness(t)
	path := func(p string) gateway.Route { return route(p, ratelimit.Config{}, "GET") }
	ours, empty, theirs := h.gateway(), h.gateway(), h.gateway()
	theirs.AccountID = id.New(id.Account)
	h.source.PutGateway(ours, path("/orders/{id}"), path("/v1/tenants/{tenant}/items"), path("/files/*"))
	h.source.PutGateway(empty)
	h.source.PutGateway(theirs, path("/theirs"))
	h.catchUp()
	for _, c := range []struct {
		gateway     string
		paths, want []string
	}{
		{ours.ID, []string{"/orders/{id}", "/orders/*", "/v1/*", "/v1/tenants/*", "/v1/tenants/{tenant}/*", "/files/*", "/*"}, nil},
		{ours.ID, []string{"/orders", "/order/*", "/v1", "/v1/ten/*", "/orders/{id}/items", "/files"}, []string{"/orders", "/order/*", "/v1", "/v1/ten/*", "/orders/{id}/items", "/files"}},
		{empty.ID, []string{"/orders", "/*"}, []string{"/orders", "/*"}},
		{theirs.ID, []string{"/orders"}, nil}, // of another account
		{id.New(id.Gateway), []string{"/orders"}, nil},
	} {
		if got := h.follower.Unmatched(h.account.ID, c.gateway, c.paths); !slices.Equal(got, c.want) {
			t.Errorf("of gateway %q: got %q, want %q", c.gateway, got, c.want)
		}
	}
}
