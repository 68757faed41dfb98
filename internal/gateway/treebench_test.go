package gateway

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
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

// BenchmarkTreeOfMany measures the search among 100,000 templates of which all are children of one
// node, and adding and removing one.
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

// BenchmarkTreeWorst measures searches in tables that are made to be slow, without a bound and
// with one.
func BenchmarkTreeWorst(b *testing.B) {
	path := strings.Repeat("/a", 16) + "/none"
	tree := treeFor(combinations(b, 16))
	for b.Loop() {
		if tree.Find(path) != nil {
			b.Fatal("found")
		}
	}
}
