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
