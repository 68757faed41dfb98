package gateway

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// rows returns a GET of each path.
func rows(paths ...string) []RouteSpec {
	table := make([]RouteSpec, len(paths))
	for i, p := range paths {
		table[i] = RouteSpec{Path: p, Methods: []string{"GET"}}
	}
	return table
}

// texts returns n templates with text around a parameter below a path.
func texts(below string, n int) []string {
	paths := make([]string, n)
	for i := range paths {
		paths[i] = fmt.Sprintf("%s/%d-{id}", below, i)
	}
	return paths
}

// Guarantee: contract 4.2: a path has at most 64 segments, and a gateway has at most 1,000
// different segments with text around a parameter that follow the same segments. The problem names
// the row, its path and the remedy. At other positions there may be more.
func TestTableBounds(t *testing.T) {
	elsewhere := append(texts("/a", MaxTexts), texts("/b", MaxTexts)...)
	below := append(texts("/a", MaxTexts), texts("/a/7-{id}", 10)...)
	for i := range below[MaxTexts:] {
		below[MaxTexts+i] = strings.Replace(below[MaxTexts+i], "7-{id}", "7-{other}", 1)
	}
	for _, tc := range []struct {
		name  string
		paths []string
		row   int // with a problem, or -1
		want  string
	}{
		{"64 segments", []string{strings.Repeat("/a", MaxSegments)}, -1, ""},
		{"64 segments, the last a wildcard", []string{strings.Repeat("/a", MaxSegments-1) + "/*"}, -1, ""},
		{"65 segments", []string{"/b", strings.Repeat("/a", MaxSegments+1)}, 1, "64 segments"},
		{"65 segments, the last empty", []string{strings.Repeat("/a", MaxSegments) + "/"}, 0, "/*"},
		{"1,000 texts at one place", texts("/a", MaxTexts), -1, ""},
		{"1,000 texts at each of two places", elsewhere, -1, ""},
		{"texts below a text", below, -1, ""},
		{"1,001 texts at one place", texts("/a", MaxTexts+1), MaxTexts, "1000 templates with text"},
		{"1,001 texts in the first segment", texts("", MaxTexts+1), MaxTexts, "parameter, as in"},
		{"1,001 texts with more below", append(texts("/a", MaxTexts), "/a/more-{id}/b/c"), MaxTexts, "1000 templates"},
	} {
		problems := CheckTable(rows(tc.paths...))
		switch {
		case tc.row < 0 && len(problems) > 0:
			t.Errorf("%s: got %v, want no problem", tc.name, problems)
		case tc.row >= 0 && (len(problems) != 1 || problems[0].Row != tc.row || problems[0].Field != "path" || !strings.Contains(problems[0].Message, tc.want)):
			t.Errorf("%s: got %v, want one of path in row %d that says %q", tc.name, problems, tc.row, tc.want)
		}
	}
}

// Guarantee: contract 4.2: a gateway has at most 100,000 routes.
func TestTableSize(t *testing.T) {
	table := make([]RouteSpec, MaxRoutes+1)
	for i := range table {
		table[i] = RouteSpec{Path: fmt.Sprintf("/r%d", i), Methods: []string{"GET"}}
	}
	if problems := CheckTable(table[:MaxRoutes]); len(problems) > 0 {
		t.Errorf("got %v for %d routes, want no problem", problems, MaxRoutes)
	}
	if problems := CheckTable(table); len(problems) != 1 || problems[0].Row != MaxRoutes || problems[0].Message != manyRoutes {
		t.Errorf("got %v for %d routes, want one", problems, len(table))
	}
	if problems := CheckRoute(table[:MaxRoutes], table[MaxRoutes], ""); len(problems) != 1 || problems[0].Field != "path" {
		t.Errorf("got %v for one more route, want one of path", problems)
	}
	if problems := CheckRoute(table[1:], RouteSpec{Path: "/moved", Methods: []string{"GET"}}, "/r0"); len(problems) > 0 {
		t.Errorf("got %v for a route that moves, want no problem", problems)
	}
}

// Guarantee: a table from an earlier version that exceeds a bound already can be changed as long as
// it does not exceed the bound further.
func TestTableThatExceedsBounds(t *testing.T) {
	long := strings.Repeat("/a", MaxSegments+1)
	table := rows(append(texts("/t", MaxTexts+5), long)...)
	for _, tc := range []struct {
		name, path, before string
		ok                 bool
	}{
		{"another route", "/new", "", true},
		{"a route at the end of a text", "/t/7-{id}/below", "", true},
		{"one more text", "/t/new-{id}", "", false},
		{"the methods of a long path", long + "/b", long + "/b", true},
		{"another long path", long + "/b", long + "/c", false},
		{"a new long path", long + "/b", "", false},
	} {
		if problems := CheckRoute(slices.Clone(table), rows(tc.path)[0], tc.before); (len(problems) == 0) != tc.ok {
			t.Errorf("%s: got %v, want accepted %t", tc.name, problems, tc.ok)
		}
	}
	if problems := CheckRoute(table, rows("/t/7-{other}")[0], ""); len(problems) != 1 || problems[0].Field != "methods" {
		t.Errorf("a route that is there already: got %v, want one of methods", problems)
	}
}

// costs returns n routes, each with a cost of its own that has so many fields of 200 bytes.
func costs(t *testing.T, n, fields int) []RouteSpec {
	t.Helper()
	var more strings.Builder
	for i := range fields {
		fmt.Fprintf(&more, `, "%d%s": 1`, i, strings.Repeat("x", 199))
	}
	table := make([]RouteSpec, n)
	for i := range table {
		table[i] = rows(fmt.Sprintf("/c/%d", i))[0]
		text := fmt.Sprintf(`[{"meter":"tokens","max":%d,"from":{"json":{"a":1%s}}}]`, 100_000+i, &more)
		if err := table[i].Cost.UnmarshalJSON([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	return table
}

// costBytes returns the length of the costs of routes.
func costBytes(table []RouteSpec) (n int) {
	for i := range table {
		n += len(table[i].Cost.AppendJSON(nil))
	}
	return n
}

// Guarantee: a gateway has at most 1,000 different costs, and 1 MiB of their texts. Any number of routes may have the same
// cost, whether they share its memory or not. The problem names the cost of the route and the remedy.
func TestCostsOfAGatewayAreBounded(t *testing.T) {
	many, large := costs(t, MaxCosts+1, 0), costs(t, MaxCosts, 5)
	fit := MaxCostBytes / costBytes(large[:1]) // all are equally long
	alike := costs(t, 5, 0)
	for i := range 3 * MaxCosts {
		r := alike[i%5]
		r.Path = fmt.Sprintf("/alike/%d", i)
		if i%2 == 0 {
			r.Cost = r.Cost.Clone()
		}
		alike = append(alike, r)
	}
	for name, tc := range map[string]struct {
		table []RouteSpec
		want  string
	}{
		"1,000 costs":             {many[:MaxCosts], ""},
		"1,001 costs":             {many, "1000 different costs"},
		"5 costs of 3,000 routes": {alike, ""},
		"costs of 1 MiB":          {large[:fit], ""},
		"costs of more":           {large[:fit+1], "1 MiB"},
	} {
		var problems []RowProblem
		for _, p := range CheckTable(tc.table) {
			if p.Field != "cost" || !strings.Contains(p.Message, tc.want) || !strings.Contains(p.Message, ": give routes the same cost") {
				t.Errorf("%s: got the problem %v, want one of cost that says %q", name, p, tc.want)
			}
			problems = append(problems, p)
		}
		if (len(problems) > 0) != (tc.want != "") {
			t.Errorf("%s: got %v, want a problem %q", name, problems, tc.want)
		}
	}
	if got := CheckRoute(many[:MaxCosts], many[MaxCosts], ""); len(got) != 1 || got[0].Field != "cost" {
		t.Errorf("one more cost: got %v, want a problem of cost", got)
	}
	same := many[MaxCosts]
	same.Cost = many[3].Cost.Clone()
	if got := CheckRoute(many[:MaxCosts], same, ""); len(got) > 0 {
		t.Errorf("one more route with a known cost: got %v", got)
	}
	if got := CheckRoute(many[1:MaxCosts], many[MaxCosts], many[MaxCosts].Path); len(got) > 0 {
		t.Errorf("another cost of the same route: got %v", got)
	}
}

// Guarantee: a path has at most 64 methods, in all its routes together.
func TestMethodsOfAPathAreBounded(t *testing.T) {
	table := make([]RouteSpec, MaxMethods+1)
	for i := range table {
		table[i] = RouteSpec{Path: fmt.Sprintf("/a/{p%d}", i), Methods: []string{fmt.Sprintf("M%d", i)}}
	}
	if problems := CheckTable(table[:MaxMethods]); len(problems) > 0 {
		t.Errorf("got %v for %d methods, want no problem", problems, MaxMethods)
	}
	if problems := CheckTable(table); len(problems) != 1 || problems[0].Row != MaxMethods || problems[0].Field != "methods" {
		t.Errorf("got %v for one more, want one of methods", problems)
	}
}
