package gateway

import (
	"fmt"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/fault"
)

// Guarantee: only valid paths parse, and templates that differ only in the names of parameters
// have the same pattern.
func TestParseTemplate(t *testing.T) {
	for _, c := range [][2]string{
		{"/", "/"},
		{"/*", "/*"},
		{"/a/*", "/a/*"},
		{"/{x}/*", "/{}/*"},
		{"/users/{id}", "/users/{}"},
		{"/users/{user_id}/", "/users/{}/"},
		{"/files/{id}.json", "/files/{}.json"},
		{"/compare/{base}...{head}", "/compare/{}...{}"},
		{"/{a}{b}", "/{}{}"},
		{"/a:batch", "/a:batch"},
		{"/%61/caf%c3%a9/é", "/a/caf%C3%A9/%C3%A9"},
		{"/a b", "/a%20b"},
		{"/.{x}", "/.{}"},
		{"/..{x}", "/..{}"},
		{"/{a?b}", "/{}"},
	} {
		p, err := ParseTemplate(c[0])
		if err != nil || p.Pattern() != c[1] || p.String() != c[0] {
			t.Errorf("ParseTemplate(%q): got pattern %q, %v, want %q", c[0], p.Pattern(), err, c[1])
		}
	}
	for _, bad := range []string{
		"", "a", "*", "users/{id}", "/{", "/}", "/{}", "/a{b", "/a}b", "/{a/b}", "/{a{b}}", "/{a}/{a}", "/{a}-{a}",
		"/*/a", "/a*", "/*a", "/{x}*", "/**", "//", "/a//b", "/a/../b", "/.", "/a/%2e%2e", "/a%2Fb", `/a\b`, "/a?b=1", "/a#b",
		"/a%", "/a%4", "/a%2{x}", "/%%610", "/%%36{x}", "/%{x}610", "/a\x00", "/a%00", "/" + strings.Repeat("a", MaxTemplate),
	} {
		if p, err := ParseTemplate(bad); fault.CodeOf(err) != fault.ValidationFailed {
			t.Errorf("ParseTemplate(%q): got pattern %q, %v, want a validation error", bad, p.Pattern(), err)
		}
	}
}

// Guarantee: contract 4.2, a template matches the paths that it describes and no others.
func TestTemplateMatches(t *testing.T) {
	for _, c := range []struct {
		template string
		yes, no  []string
	}{
		{"/", []string{"/"}, []string{"", "/a"}},
		{"/*", []string{"/", "/a", "/a/", "/a/b"}, []string{""}},
		{"/a", []string{"/a"}, []string{"/", "/a/", "/A", "/a/b"}},
		{"/a/", []string{"/a/"}, []string{"/a", "/a/b"}},
		{"/a/*", []string{"/a/", "/a/b", "/a/b/c/"}, []string{"/a", "/ab", "/"}},
		{"/u/{id}", []string{"/u/1", "/u/a.b", "/u/%20"}, []string{"/u", "/u/", "/u/1/", "/u/1/2"}},
		{"/u/{id}/", []string{"/u/1/"}, []string{"/u/1", "/u//"}},
		{"/f/{id}.json", []string{"/f/1.json", "/f/.json.json"}, []string{"/f/.json", "/f/1.jso", "/f/1.jsonx"}},
		{"/c/{a}...{b}", []string{"/c/x...y", "/c/....x", "/c/......."}, []string{"/c/...y", "/c/x...", "/c/...", "/c/x..y"}},
		{"/v{x}", []string{"/v1"}, []string{"/v", "/w1"}},
		{"/{a}-{b}-{c}", []string{"/1-2-3", "/----x", "/1-2-3-4"}, []string{"/1-2", "/1--3", "/-2-3"}},
		{"/{a}{b}", []string{"/xy"}, []string{"/x"}},
	} {
		p, err := ParseTemplate(c.template)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range c.yes {
			if !p.Matches(path) {
				t.Errorf("%s: got no match of %q, want one", c.template, path)
			}
		}
		for _, path := range c.no {
			if p.Matches(path) {
				t.Errorf("%s: got a match of %q, want none", c.template, path)
			}
		}
	}
}

// Guarantee: contract 4.2 and 5, every invalid field of a route is reported with the row.
func TestCheckTable(t *testing.T) {
	get := []string{"GET"}
	for _, c := range []struct {
		name, fields string
		routes       []RouteSpec
	}{
		{"good", "", []RouteSpec{{Path: "/a", Methods: get}, {Path: "/a", Methods: []string{"POST", "HEAD"}}, {Path: "/{x}", Methods: get}, {Path: "/{y}", Methods: []string{"PROPFIND", "M-SEARCH", "QUERY"}}}},
		{"bad path", "1 path", []RouteSpec{{Path: "/a", Methods: get}, {Path: "b", Methods: get}}},
		{"no method", "0 methods", []RouteSpec{{Path: "/a"}}},
		{"lower case", "0 methods", []RouteSpec{{Path: "/a", Methods: []string{"get"}}}},
		{"no token", "0 methods", []RouteSpec{{Path: "/a", Methods: []string{"GE T"}}}},
		{"too long", "0 methods", []RouteSpec{{Path: "/a", Methods: []string{strings.Repeat("A", MaxMethod+1)}}}},
		{"trace", "0 methods", []RouteSpec{{Path: "/a", Methods: []string{"TRACE"}}}},
		{"connect", "0 methods", []RouteSpec{{Path: "/a", Methods: []string{"CONNECT"}}}},
		{"listed twice", "0 methods", []RouteSpec{{Path: "/a", Methods: []string{"GET", "GET"}}}},
		{"same route twice", "1 methods", []RouteSpec{{Path: "/a", Methods: get}, {Path: "/a", Methods: get}}},
		{"the same pattern", "1 methods", []RouteSpec{{Path: "/u/{id}", Methods: get}, {Path: "/u/{name}", Methods: []string{"DELETE", "GET"}}}},
		{"several bad routes", "0 path, 0 methods, 2 methods", []RouteSpec{{Path: "a"}, {Path: "/a", Methods: get}, {Path: "/a", Methods: get}}},
		{"the same pattern, encoded", "1 methods", []RouteSpec{{Path: "/us", Methods: get}, {Path: "/%75s", Methods: get}}},
	} {
		var got []string
		for _, p := range CheckTable(c.routes) {
			got = append(got, fmt.Sprint(p.Row, " ", p.Field))
		}
		if strings.Join(got, ", ") != c.fields {
			t.Errorf("%s: got problems of %q, want %q", c.name, got, c.fields)
		}
	}
}

// FuzzParseTemplate looks for a text that makes ParseTemplate panic or return another error than
// a validation error, and for a template whose pattern, with names for its parameters, parses to
// another pattern.
func FuzzParseTemplate(f *testing.F) {
	for _, s := range []string{"/", "/users/{id}", "/f/{id}.json", "/c/{a}...{b}/*", "/{a}{b}", "/%61é", "/*", "/%%610"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParseTemplate(s)
		if err != nil {
			if fault.CodeOf(err) != fault.ValidationFailed {
				t.Fatalf("%q: got %v, want a validation error", s, err)
			}
			return
		}
		if !p.Matches(strings.ReplaceAll(strings.ReplaceAll(p.Pattern(), "{}", "x"), "*", "x/y")) {
			t.Fatalf("%q does not match its own example of %q", s, p.Pattern())
		}
		var named strings.Builder
		for i, piece := range strings.Split(p.Pattern(), "{}") {
			if i > 0 {
				named.WriteString("{p" + strings.Repeat("i", i) + "}")
			}
			named.WriteString(piece)
		}
		if again, err := ParseTemplate(named.String()); named.Len() <= MaxTemplate && (err != nil || again.Pattern() != p.Pattern()) {
			t.Fatalf("got pattern %[3]q, %[4]v for the pattern %[2]q of %[1]q, want the same", s, p.Pattern(), again.Pattern(), err)
		}
	})
}
