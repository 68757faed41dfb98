package gateway

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// partTemplates returns n templates such as /v1/things-123/{id}/parts/{part}.
func partTemplates(t testing.TB, n int) []Template {
	t.Helper()
	templates := make([]Template, n)
	for i := range templates {
		templates[i] = parsed(t, fmt.Sprintf("/v1/things-%d/{id}/parts/{part}", i))[0]
	}
	return templates
}

// combinations returns 2^levels templates: at each level the segment a or a parameter, and then
// a literal that no other has.
func combinations(t testing.TB, levels int) []Template {
	t.Helper()
	templates := make([]Template, 1<<levels)
	for i := range templates {
		var b strings.Builder
		for level := range levels {
			if i>>level&1 == 0 {
				b.WriteString("/a")
			} else {
				fmt.Fprintf(&b, "/{p%d}", level)
			}
		}
		templates[i] = parsed(t, fmt.Sprintf("%s/end-%d", b.String(), i))[0]
	}
	return templates
}

func treeFor(templates []Template) *Tree[int] {
	b := NewTreeBuilder[int]()
	for i := range templates {
		b.Put(templates[i], new(int))
	}
	return b.Tree()
}

// BenchmarkTreeOfMany measures the search among 100,000 templates that are all children of one
// node, and adding and removing a template.
func BenchmarkTreeOfMany(b *testing.B) {
	const many = 100_000
	templates := partTemplates(b, many)
	tree := treeFor(templates)
	paths := make([]string, 4096)
	for i := range paths {
		paths[i] = fmt.Sprintf("/v1/things-%d/17/parts/4", rand.IntN(many))
	}
	b.Run("find", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if tree.Find(paths[i%len(paths)]) == nil {
				b.Fatal("not found")
			}
		}
	})
	b.Run("change", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			tree = tree.Without(templates[i%many]).With(templates[i%many], new(int))
		}
	})
	runtime.KeepAlive(templates)
}

// BenchmarkTreeBuild builds trees of 100,000 templates.
func BenchmarkTreeBuild(b *testing.B) {
	templates := partTemplates(b, 100_000)
	b.ReportAllocs()
	for b.Loop() {
		treeFor(templates)
	}
}

// slowTables returns tables that are slow by design, and for each a path for which much of the
// table is searched in vain.
func slowTables(t testing.TB) map[string]struct {
	tree *Tree[int]
	path string
} {
	t.Helper()
	var inside, ends []string
	for i := range MaxTexts {
		inside = append(inside, fmt.Sprintf("/{a}xx%dx{b}/{c}", i))
		ends = append(ends, fmt.Sprintf("/%s{a}/%d", strings.Repeat("a", i), i))
	}
	return map[string]struct {
		tree *Tree[int]
		path string
	}{
		"combinations": {treeFor(combinations(t, 14)), strings.Repeat("/a", 14) + "/none"},
		"inside":       {treeFor(parsed(t, inside...)), "/" + strings.Repeat("x", 16_000) + "/c/d"},
		"prefixes":     {treeFor(parsed(t, ends...)), "/" + strings.Repeat("a", 8_000) + "/none"},
	}
}

// BenchmarkTreeWorst measures searches in tables that are slow by design, with the bound for a
// request without a key and without a bound. Compare the processor time: user time for each.
func BenchmarkTreeWorst(b *testing.B) {
	for name, c := range slowTables(b) {
		for _, steps := range []int{4_000, math.MaxInt} {
			b.Run(fmt.Sprintf("%s/%t", name, steps < math.MaxInt), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if v, _ := c.tree.Search(c.path, steps); v != nil {
						b.Fatal("found")
					}
				}
			})
		}
	}
}

// Guarantee: contract 4.2: no table and no path make a search take more steps than it may, except
// for the steps of the last comparison.
func TestSearchIsBounded(t *testing.T) {
	for name, c := range slowTables(t) {
		for _, steps := range []int{0, 10, 100, 300} {
			s := search{path: c.path, seed: c.tree.seed, steps: steps}
			if find(&s, c.tree.root, 0) != nil || s.steps >= 0 || s.steps < -1_200 {
				t.Errorf("%s: %d steps left of %d, want it given up", name, s.steps, steps)
			}
			if v, ok := c.tree.Search(c.path, steps); v != nil || ok {
				t.Errorf("%s: got %v, %t, want an unfinished search", name, v, ok)
			}
		}
		if n := testing.AllocsPerRun(3, func() { c.tree.Search(c.path, 1000) }); n != 0 {
			t.Errorf("%s: got %v allocations, want 0", name, n)
		}
	}
}

// Guarantee: a search with too few steps never finds another template than a search with enough
// steps: it finds the same, or says that it does not know.
func TestShortSearchIsNotWrong(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tree, _ := treeOf(drawTable(t))
		path := drawPath(t)
		want := tree.Find(path)
		known := false
		for steps := range 60 {
			v, ok := tree.Search(path, steps)
			if ok && v != want || !ok && (v != nil || known) {
				t.Fatalf("%s in %d steps: got %v, %t, want %v or nothing", path, steps, v, ok, want)
			}
			known = known || ok
		}
	})
}
