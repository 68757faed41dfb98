package admit

import (
	"fmt"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// Guarantee: contract 4.2: in a table in which finding a route takes long by design, a request without a
// valid key is refused with 401 after little work, as if its route required a key. With a key, it takes
// its route. Other paths are not affected.
func TestSlowTableWithoutKey(t *testing.T) {
	const levels = 11
	h := newHarness(t)
	h.gateway(nil, slowRoutes(levels)...)
	_, key := h.key(nil)
	slow := strings.Repeat("/a", levels) + "/none"
	for _, tc := range []struct {
		name, path, key string
		want            fault.Code // "" if it is forwarded
	}{
		{"a slow path without a key", slow, "", fault.Unauthorized},
		{"a slow path with a wrong key", slow, "kg_wrong", fault.Unauthorized},
		{"a slow path with a key", slow, key, ""},
		{"another public path", "/b/c", "", ""},
		{"another path that requires a key", strings.Repeat("/b", levels) + "/end-2047", "", fault.Unauthorized},
	} {
		req := Request{Method: "GET", Target: tc.path, Host: "a.example"}
		if tc.key != "" {
			req.Authorization, req.Authorizations = "Bearer "+tc.key, 1
		}
		if v := h.decide(req); v.Code != tc.want || (tc.want == "") != (v.Action == Forward) {
			t.Errorf("%s: got action %d, code %q, want %q", tc.name, v.Action, v.Code, tc.want)
		}
	}
}

// slowRoutes returns a public route, and 2^levels routes that are slow to search by design: at each level the segment a or a
// parameter, and then a literal that no other has.
func slowRoutes(levels int) []gateway.Route {
	routes := []gateway.Route{public(route("/*", "GET"))}
	for i := range 1 << levels {
		var b strings.Builder
		for level := range levels {
			if i>>level&1 == 0 {
				b.WriteString("/a")
			} else {
				fmt.Fprintf(&b, "/{p%d}", level)
			}
		}
		routes = append(routes, route(fmt.Sprintf("%s/end-%d", b.String(), i), "GET"))
	}
	return routes
}

// Guarantee: a request with a valid key takes little work, also in a table that was made to take much: it is a 503. Such a
// request has some hundred bytes, and whoever made the table may send any number of them.
func TestSlowTableWithKey(t *testing.T) {
	const levels = 13
	h := newHarness(t)
	h.gateway(nil, slowRoutes(levels)...)
	_, key := h.key(nil)
	for path, want := range map[string]fault.Code{
		strings.Repeat("/a", levels) + "/none":     fault.Unavailable,
		strings.Repeat("/b", levels) + "/end-8191": "",
		"/b/c": "",
	} {
		v := h.decide(Request{Method: "GET", Target: path, Host: "a.example", Authorization: "Bearer " + key, Authorizations: 1})
		if v.Code != want || (want == "") != (v.Action == Forward) {
			t.Errorf("%s: got action %d, code %q, want %q", path, v.Action, v.Code, want)
		}
	}
}
