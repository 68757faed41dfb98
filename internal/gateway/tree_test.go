package gateway

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func parsed(t testing.TB, paths ...string) []Template {
	t.Helper()
	templates := make([]Template, len(paths))
	for i, p := range paths {
		var err error
		if templates[i], err = ParseTemplate(p); err != nil {
			t.Fatalf("%s: %v", p, err)
		}
	}
	return templates
}

// numbered is a tree whose values are the numbers of patterns, in the order in which they are added.
type numbered struct{ *Tree[int] }

// treeOf returns the tree of templates, and the number of each template's pattern.
func treeOf(templates []Template) (numbered, []int) {
	b := NewTreeBuilder[int]()
	patterns := make([]int, len(templates))
	added := 0
	for i, p := range templates {
		v := b.Get(p)
		if v == nil {
			v = new(int)
			*v = added
			added++
			b.Put(p, v)
		}
		patterns[i] = *v
	}
	return numbered{b.Tree()}, patterns
}

// find returns the number of the pattern that Find finds, or -1.
func (t numbered) find(path string) int {
	if v := t.Find(path); v != nil {
		return *v
	}
	return -1
}

// Guarantee: contract 4.2, the most specific template is found, as in the contract's examples.
func TestTreeOrder(t *testing.T) {
	paths := []string{
		"/*", "/a/*", "/a/{x}", "/a/b", "/a/v{x}", "/a/{x}.json", "/a/vv{x}", "/a/{x}/c", "/a/b/d",
		"/a/{x}/*", "/{p}/b/c", "/compare/{base}...{head}", "/compare/{one}", "/end/", "/a/{x}/{y}/z",
	}
	tree, nodes := treeOf(parsed(t, paths...))
	for _, c := range [][2]string{
		{"/", "/*"},
		{"/q", "/*"},
		{"/a", "/*"},
		{"/a/", "/a/*"},
		{"/a/b", "/a/b"},
		{"/a/c", "/a/{x}"},
		{"/a/v1", "/a/v{x}"},
		{"/a/vv1", "/a/vv{x}"},
		{"/a/vv1.json", "/a/{x}.json"}, // five bytes of text before two
		{"/a/b/c", "/a/{x}/c"},         // /a/b leads nowhere
		{"/a/b/d", "/a/b/d"},
		{"/a/b/e", "/a/{x}/*"},
		{"/a/b/", "/a/{x}/*"},
		{"/x/b/c", "/{p}/b/c"},
		{"/x/b/d", "/*"},
		{"/compare/x...y", "/compare/{base}...{head}"},
		{"/compare/x..y", "/compare/{one}"},
		{"/end/", "/end/"},
		{"/end", "/*"},
		{"/a/v1/2/z", "/a/{x}/{y}/z"}, // /a/v{x} leads nowhere
		{"/a/v1/2/y", "/a/{x}/*"},
	} {
		got := "none"
		if p := tree.find(c[0]); p >= 0 {
			got = paths[slices.Index(nodes, p)]
		}
		if got != c[1] {
			t.Errorf("%s: got %s, want %s", c[0], got, c[1])
		}
	}
	if tree.Find("") != nil || tree.Find("a/b") != nil {
		t.Error("got a node for a path without a leading slash; want none")
	}
}

// naive is a simple implementation of contract 4.2: of the templates whose regular expression
// matches, it finds the template with the smallest list of segment ranks.
type naive struct {
	template string
	match    *regexp.Regexp
	rank     []string
}

func newNaive(template string) naive {
	n := naive{template: template}
	expr := "^"
	param := regexp.MustCompile(`\{[^}]*\}`)
	for _, s := range strings.Split(template[1:], "/") {
		if s == "*" {
			expr += "/.*"
			n.rank = append(n.rank, "3")
			continue
		}
		var pieces []string
		for _, lit := range param.Split(s, -1) {
			pieces = append(pieces, regexp.QuoteMeta(lit))
		}
		expr += "/" + strings.Join(pieces, "[^/]+")
		params := len(pieces) - 1
		text := param.ReplaceAllString(s, "")
		switch {
		case params == 0:
			n.rank = append(n.rank, "0"+s)
		case params == 1 && text == "":
			n.rank = append(n.rank, "2")
		default:
			n.rank = append(n.rank, fmt.Sprintf("1%05d%05d%s", 10000-len(text), params, param.ReplaceAllString(s, "{}")))
		}
	}
	n.match = regexp.MustCompile("(?s)" + expr + "$")
	return n
}

// pattern returns the pattern of a naive template.
func (n *naive) pattern() string { return strings.Join(n.rank, "/") }

func naiveFind(table []naive, path string) string {
	var best *naive
	for i := range table {
		n := &table[i]
		if n.match.MatchString(path) && (best == nil || slices.Compare(n.rank, best.rank) < 0) {
			best = n
		}
	}
	if best == nil {
		return "none"
	}
	return best.pattern()
}

// compareWithNaive fails if the tree and the naive implementation differ for a path.
func compareWithNaive(t interface {
	Fatalf(format string, args ...any)
}, templates []Template, paths []string) {
	tree, nodes := treeOf(templates)
	table := make([]naive, len(templates))
	patterns := map[int]string{}
	for i := range templates {
		table[i] = newNaive(templates[i].String())
		if other, seen := patterns[nodes[i]]; seen && other != table[i].pattern() {
			t.Fatalf("got the same node for %s and %s; want two", templates[i].String(), other)
		}
		patterns[nodes[i]] = table[i].pattern()
	}
	if len(patterns) != tree.Len() {
		t.Fatalf("got %d patterns, want %d", tree.Len(), len(patterns))
	}
	for _, path := range paths {
		got := "none"
		if p := tree.find(path); p >= 0 {
			got = patterns[p]
		}
		if want := naiveFind(table, path); got != want {
			t.Fatalf("%q: got %s, want %s, in %v", path, got, want, templates)
		}
		for i := range templates {
			if got, want := templates[i].Matches(path), table[i].match.MatchString(path); got != want {
				t.Fatalf("%s and %q: got match %t, want %t", templates[i].String(), path, got, want)
			}
		}
	}
}

// drawTable draws templates of a small alphabet, so that they often match the same paths.
func drawTable(t *rapid.T) []Template {
	segment := rapid.SampledFrom([]string{"a", "b", "ab", "a.", "", "{p}", "{p}", "{p}.a", "a{p}", "b{p}", "{p}a", "{p}{q}", "{p}.{q}", "a{p}.{q}b", "{p}aa{q}", "{p}a{q}.{r}"})
	n := rapid.IntRange(1, 12).Draw(t, "templates")
	templates := make([]Template, 0, n)
	for range n {
		var b strings.Builder
		depth := rapid.IntRange(1, 4).Draw(t, "depth")
		for d := range depth {
			s := segment.Draw(t, "segment")
			if s == "" && d < depth-1 {
				s = "{p}"
			}
			for i, name := range []string{"{p}", "{q}", "{r}"} {
				s = strings.ReplaceAll(s, name, fmt.Sprintf("{n%d_%d}", d, i))
			}
			b.WriteString("/" + s)
		}
		if rapid.Bool().Draw(t, "below") && !strings.HasSuffix(b.String(), "/") {
			b.WriteString("/*")
		}
		p, err := ParseTemplate(b.String())
		if err != nil {
			t.Fatalf("%s: %v", b.String(), err)
		}
		templates = append(templates, p)
	}
	return templates
}

// Guarantee: the tree finds the same template as the naive implementation, for any templates in
// any order.
func TestTreeAgainstNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		templates := drawTable(t)
		path := rapid.Custom(func(t *rapid.T) string {
			return "/" + strings.Join(rapid.SliceOfN(rapid.StringOfN(rapid.SampledFrom([]rune("ab.")), 1, 6, -1), 1, 5).Draw(t, "segments"), "/") +
				rapid.SampledFrom([]string{"", "", "", "/"}).Draw(t, "end")
		})
		compareWithNaive(t, templates, rapid.SliceOfN(path, 8, 8).Draw(t, "paths"))
	})
}

// FuzzTree looks for templates and a path for which the tree and the naive implementation
// differ.
func FuzzTree(f *testing.F) {
	f.Add("/a/{x}\n/a/b\n/*", "/a/b")
	f.Add("/{a}.{b}/c\n/{x}/{y}", "/a.b/d")
	f.Fuzz(func(t *testing.T, table, path string) {
		var templates []Template
		for _, line := range strings.Split(table, "\n") {
			// The reference knows templates in the normal form alone.
			if p, err := ParseTemplate(line); err == nil && NormalizePath(nil, line) == strings.NewReplacer("{", "%7B", "}", "%7D").Replace(line) {
				templates = append(templates, p)
			}
		}
		if problem, normal := InspectPath(path); problem != "" || !normal || len(templates) > 50 {
			return
		}
		compareWithNaive(t, templates, []string{path})
	})
}

// operations returns the operations of GitHub's OpenAPI document, as method and path.
func operations(t testing.TB) (ops [][2]string) {
	t.Helper()
	text, err := os.ReadFile("testdata/github_operations.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if method, path, ok := strings.Cut(strings.TrimSpace(line), " "); ok && method != "#" {
			ops = append(ops, [2]string{method, path})
		}
	}
	return ops
}

// example returns a path that matches a template without a wildcard.
func example(template string) string {
	return regexp.MustCompile(`\{[^}]*\}`).ReplaceAllString(template, "value-17")
}

// Guarantee: in a large public document, every path finds its own template.
func TestTreeOfGitHub(t *testing.T) {
	ops := operations(t)
	if len(ops) != 1223 {
		t.Fatalf("got %d operations", len(ops))
	}
	var paths []string
	for _, op := range ops {
		paths = append(paths, op[1])
	}
	tree, nodes := treeOf(parsed(t, paths...))
	for i, p := range paths {
		if got := tree.find(example(p)); got != nodes[i] {
			t.Errorf("%s: got node %d, want %d", p, got, nodes[i])
		}
	}
	path := example(paths[700])
	if n := testing.AllocsPerRun(100, func() { tree.Find(path) }); n != 0 {
		t.Errorf("got %v allocations of Find, want 0", n)
	}
}

// BenchmarkTreeFind measures the search for a path in the 1,223 operations of GitHub's document,
// each in turn.
func BenchmarkTreeFind(b *testing.B) {
	var paths, requests []string
	for _, op := range operations(b) {
		paths = append(paths, op[1])
		requests = append(requests, example(op[1]))
	}
	tree, _ := treeOf(parsed(b, paths...))
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if tree.Find(requests[i]) == nil {
			b.Fatal(requests[i])
		}
		if i++; i == len(requests) {
			i = 0
		}
	}
}

// BenchmarkInspectPath measures the check and the normal form of the same paths.
func BenchmarkInspectPath(b *testing.B) {
	var requests []string
	for _, op := range operations(b) {
		requests = append(requests, example(op[1]))
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if problem, normal := InspectPath(requests[i]); problem != "" || !normal {
			b.Fatal(requests[i])
		}
		if i++; i == len(requests) {
			i = 0
		}
	}
}

// Guarantee: Reaches reports whether a template matches a path or a path below it, as a
// comparison of each template's segments does.
func TestTreeReaches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		templates := drawTable(t)
		tree, _ := treeOf(templates)
		segment := rapid.SampledFrom([]string{"a", "b", "ab", "a.b", "xa", "x"})
		segments := rapid.SliceOfN(segment, 1, 5).Draw(t, "segments")
		want := slices.ContainsFunc(templates, func(p Template) bool {
			for i, text := range segments {
				switch {
				case i == len(p.segments) || !p.segments[i].matches(text):
					return false
				case p.segments[i].kind == wildcardSegment:
					return true
				}
			}
			return true
		})
		steps := 1000
		path := "/" + strings.Join(segments, "/")
		if got := tree.Reaches(path, &steps); got != want {
			t.Fatalf("%s: got %t, want %t, in %v", path, got, want, templates)
		}
		steps = 0
		if !tree.Reaches(path, &steps) {
			t.Fatal("got false without steps, want true")
		}
	})
}
