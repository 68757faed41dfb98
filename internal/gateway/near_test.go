package gateway_test

import (
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/gateway"
)

// Guarantee: of the routes of a gateway, those that come nearest to a request are named first, each with what keeps it
// from matching; a route that has nothing in common with the request is not named.
func TestNearestRoutes(t *testing.T) {
	for _, c := range []struct {
		method, path string
		routes       []string // "METHODS path"
		want         []string // "path: a part of why"
	}{
		{"DELETE", "/orders/17", []string{"GET,POST /orders/{id}"}, []string{"/orders/{id}: lists GET, POST, and not DELETE"}},
		{"GET", "/orders/", []string{"GET /orders"}, []string{"/orders: the path of the request ends with a slash"}},
		{"GET", "/orders", []string{"GET /orders/"}, []string{"/orders/: its path ends with a slash"}},
		{"GET", "/Orders/17", []string{"GET /orders/{id}"}, []string{"/orders/{id}: upper and lower case differ"}},
		{"GET", "/pets", []string{"GET /v1/pets"}, []string{"/v1/pets: its path begins with /v1"}},
		{"GET", "/api/v1/pets", []string{"GET /pets"}, []string{"/pets: the path of the request begins with /api/v1"}},
		{"GET", "/a/b/c", []string{"GET /a/b"}, []string{"/a/b: goes on after it"}},
		{"GET", "/a", []string{"GET /a/*"}, []string{"/a/*: below /a, and not that path itself"}},
		{"GET", "/a", []string{"GET /a/{id}/b"}, []string{"/a/{id}/b: ends before it"}},
		{"GET", "/files/x.txt", []string{"GET /files/{id}.json"}, []string{`/files/{id}.json: it has "{id}.json" where the request has "x.txt"`}},
		{"GET", "/x", []string{"GET /orders", "GET /a/b/c"}, nil},
		{"GET", "/", []string{"GET /orders"}, nil},
		{
			"PUT", "/orders/17/", []string{"GET /orders", "PUT /orders/{id}", "GET /customers/{id}/", "PUT /v1/orders/{id}/"},
			[]string{"/orders/{id}: ends with a slash", "/v1/orders/{id}/: begins with /v1", "/orders: goes on after it"},
		},
	} {
		n := gateway.NewNearness(c.method, c.path)
		for _, r := range c.routes {
			methods, path, _ := strings.Cut(r, " ")
			n.Look(path, strings.ReplaceAll(methods, ",", " "))
			n.Look(path, strings.ReplaceAll(methods, ",", " "))
		}
		near := n.Nearest(3)
		if len(near) != len(c.want) {
			t.Errorf("%s %s: got %+v, want %q", c.method, c.path, near, c.want)
			continue
		}
		for i, want := range c.want {
			path, why, _ := strings.Cut(want, ": ")
			if near[i].Path != path || !strings.Contains(near[i].Why, why) {
				t.Errorf("%s %s: got %+v, want %q", c.method, c.path, near[i], want)
			}
		}
	}
}

// Guarantee: no path and no template, however odd, breaks the search for near routes.
func FuzzNearness(f *testing.F) {
	f.Add("GET", "/a/b", "/{x}/b/*")
	f.Add("PUT", "", "/")
	f.Add("GET", "//", "/{a}{b}")
	f.Fuzz(func(_ *testing.T, method, path, template string) {
		n := gateway.NewNearness(method, path)
		n.Look(template, "GET")
		n.Nearest(3)
	})
}
