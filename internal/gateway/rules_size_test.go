package gateway_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/cost"
	"github.com/keygate/keygate/internal/gateway"
)

// Guarantee: every value whose number or length a tenant may choose is bounded in bytes, too.
func TestSettingsAreBoundedInBytes(t *testing.T) {
	origin := func(n int) string { return "https://" + strings.Repeat("a", n-len("https://")) }
	long, longer := strings.Repeat("X", 255), strings.Repeat("X", 256)
	var names []string
	for i := range 100 {
		names = append(names, fmt.Sprintf("X-%03d-%s", i, strings.Repeat("y", 55)))
	}
	for name, c := range map[string]struct {
		cors  gateway.CORS
		field string
	}{
		"entries of 255 bytes": {gateway.CORS{Origins: []string{origin(255)}, Methods: []string{long}, Headers: []string{long}}, ""},
		"an origin":            {gateway.CORS{Origins: []string{"*", origin(256)}}, "origins[1]"},
		"a method":             {gateway.CORS{Origins: []string{"*"}, Methods: []string{longer}}, "methods[0]"},
		"a header":             {gateway.CORS{Origins: []string{"*"}, Headers: []string{longer}}, "headers[0]"},
		"a long preflight":     {gateway.CORS{Origins: []string{"*"}, Headers: names[:99]}, "headers"},
		"a shorter preflight":  {gateway.CORS{Origins: []string{"*"}, Headers: names[:96]}, ""},
	} {
		wantField(t, name, c.cors.Validate(), c.field)
	}
	wantField(t, "a large upstream_ca", gateway.CheckUpstreamCA(strings.Repeat("\n", 64<<10+1)), "upstream_ca")
}

// Guarantee: the bytes that routes count for an account grow with their texts, with their nodes in the tree, and with the
// texts of costs and of what they do with requests. Headers and networks count for their compiled forms too, however short they are.
func TestRouteBytes(t *testing.T) {
	routes := []gateway.Route{{Path: "/a/{id}", Methods: []string{"GET", "PUT"}}, {Path: "/*", Methods: []string{"GET"}}}
	if got, want := gateway.RouteBytes(routes), int64(7+2*16+8+2+16+4); got != want {
		t.Errorf("got %d, want %d", got, want)
	}
	without := gateway.RouteBytes(routes)
	for i := range routes {
		routes[i].Cost = rulesOf(t, "[{meter: tokens, from: {request: 1}}]")
	}
	if got, want := gateway.RouteBytes(routes)-without, int64(2*len(`[{"meter":"tokens","reserve":1,"max":1,"from":{"request":1}}]`)); got != want {
		t.Errorf("two routes with a cost: got %d more, want %d", got, want)
	}
	without = gateway.RouteBytes(routes)
	for i, h := range []*gateway.Handling{
		{Respond: &gateway.Respond{Status: 200, Body: strings.Repeat("b", 1000), Headers: map[string]string{"a": "b"}}},
		{AllowIPs: []string{"::1/128"}, RequestHeaders: &gateway.HeaderRules{Set: map[string]string{"a": "b"}, Remove: []string{"c"}}},
	} {
		routes[i].Handling = h
	}
	text := `{"respond":{"status":200,"body":"","headers":{"a":"b"}}}` + `{"allow_ips":["::1/128"],"request_headers":{"set":{"a":"b"},"remove":["c"]}}`
	if got, want := gateway.RouteBytes(routes)-without, int64(1000+len(text)+3*128+32); got != want {
		t.Errorf("two routes that do something: got %d more, want %d", got, want)
	}
}

// rulesOf returns rules that are written in YAML.
func rulesOf(t interface {
	Helper()
	Fatal(args ...any)
}, text string,
) (rules cost.Rules) {
	t.Helper()
	if err := rules.UnmarshalJSON([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return rules
}
