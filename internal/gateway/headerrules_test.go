package gateway

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/fault"
)

// Guarantee: edge.md, 2: rules that could change what a message means, or hold more than the bounds, are refused with the field; all
// others are kept as they are.
func TestHeaderRulesAreChecked(t *testing.T) {
	many, vars := &HeaderRules{Set: map[string]string{}}, &HeaderRules{Set: map[string]string{"X-A": strings.Repeat("${owner}", 30), "X-B": "${owner}${owner}"}}
	for i := range MaxHeaderRules {
		many.Set[fmt.Sprint("X-", i)] = "a"
	}
	over := &HeaderRules{Set: many.Set, Remove: []string{"X-A"}}
	for _, c := range []struct {
		name, field string
		rules       *HeaderRules
	}{
		{"none", "", nil},
		{"empty", "", &HeaderRules{}},
		{"literals and variables", "", &HeaderRules{Set: map[string]string{"X-A": "a $ {b} ${owner}-${request_id}${client_ip}", "X-B": "${key_id} ${subject} ${gateway_id}", "Set-Cookie": "a=keygate_session"}, Remove: []string{"Server"}}},
		{"as many as there may be", "", many},
		{"as many variables as there may be", "", vars},
		{"too many", "", over},
		{"too many variables", "set", &HeaderRules{Set: map[string]string{"X-A": strings.Repeat("${owner}", 33)}}},
		{"too long", "set", &HeaderRules{Set: map[string]string{"X-A": strings.Repeat("a", 8<<10)}}},
		{"an unknown variable", "set.X-A", &HeaderRules{Set: map[string]string{"X-A": "${env:HOME}"}}},
		{"an open variable", "set.X-A", &HeaderRules{Set: map[string]string{"X-A": "${owner"}}},
		{"a nested variable", "set.X-A", &HeaderRules{Set: map[string]string{"X-A": "${${owner}}"}}},
		{"no variable", "set.X-A", &HeaderRules{Set: map[string]string{"X-A": "${}"}}},
		{"another case", "set.X-A", &HeaderRules{Set: map[string]string{"X-A": "${Owner}"}}},
		{"an empty value", "set.X-A", &HeaderRules{Set: map[string]string{"X-A": ""}}},
		{"a line break", "set.X-A", &HeaderRules{Set: map[string]string{"X-A": "a\r\nX-B: c"}}},
		{"a space at the end", "set.X-A", &HeaderRules{Set: map[string]string{"X-A": "a "}}},
		{"other than ASCII", "set.X-A", &HeaderRules{Set: map[string]string{"X-A": "ä"}}},
		{"no name", "set", &HeaderRules{Set: map[string]string{"X A": "a"}}},
		{"no name to remove", "remove", &HeaderRules{Remove: []string{""}}},
		{"a name twice", "set.x_a", &HeaderRules{Set: map[string]string{"X-A": "a", "x_a": "b"}}},
		{"a name set and removed", "remove[0]", &HeaderRules{Set: map[string]string{"X-A": "a"}, Remove: []string{"x_A"}}},
		{"the cookie of a session", "set.Set-Cookie", &HeaderRules{Set: map[string]string{"Set-Cookie": "keygate_session=a"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			problems := fault.ProblemsOf(c.rules.Check())
			switch {
			case c.rules == over:
				if len(problems) != 1 || problems[0].Field != "" {
					t.Errorf("got %v, want one problem of the rules as a whole", problems)
				}
			case c.field == "" && problems != nil:
				t.Errorf("got %v, want no problem", problems)
			case c.field != "" && (len(problems) != 1 || problems[0].Field != c.field || problems[0].Message == ""):
				t.Errorf("got %v, want one of %s", problems, c.field)
			}
		})
	}
}

// Guarantee: a value is its parts, in their order.
func TestParseHeaderValue(t *testing.T) {
	got, err := ParseHeaderValue("a$ ${owner}${key_id}{b}")
	want := []HeaderPart{{Text: "a$ "}, {Variable: OwnerVariable}, {Variable: KeyIDVariable}, {Text: "{b}"}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}

// Guarantee: edge.md, 2: neither rules nor the headers of a respond name a header that upstreams of the gateway set, or that may hold the
// key, however it is written.
func TestProtectedHeaders(t *testing.T) {
	g := &Gateway{Upstream: Upstream{Headers: map[string][]byte{"X-Token": nil}}, Requests: Requests{KeyHeaders: []string{"X-API-Key"}}}
	g.PutUpstream(Upstream{Name: "next", Headers: map[string][]byte{"X-Next": nil}})
	protected := g.ProtectedHeaders()
	protected.Add("X-Team", "is set from claims")
	for _, name := range []string{"x_token", "X-NEXT", "x-api_key", "x-team"} {
		for _, h := range []*Handling{
			{Respond: &Respond{Status: 200, Headers: map[string]string{name: "a"}}},
			{RequestHeaders: &HeaderRules{Remove: []string{name}}}, {ResponseHeaders: &HeaderRules{Set: map[string]string{name: "a"}}},
		} {
			of := *g
			of.Requests.RequestHeaders, of.Requests.ResponseHeaders = h.RequestHeaders, h.ResponseHeaders
			if got := fault.ProblemsOf(protected.CheckHandling(h)); len(got) != 1 {
				t.Errorf("%s: got %v, want one problem", name, got)
			}
			if got := fault.ProblemsOf(protected.CheckGateway(&of)); len(got) != 1 && h.Respond == nil {
				t.Errorf("%s of a gateway: got %v, want one problem", name, got)
			}
		}
	}
	if err := protected.CheckHandling(&Handling{RequestHeaders: &HeaderRules{Remove: []string{"X-Tokens"}}}); err != nil {
		t.Errorf("got %v, want no problem", err)
	}
}
