package gateway

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// drawPath draws a path of the alphabet of drawTable.
func drawPath(t *rapid.T) string {
	segment := rapid.StringOfN(rapid.SampledFrom([]rune("ab.")), 1, 6, -1)
	return "/" + strings.Join(rapid.SliceOfN(segment, 1, 5).Draw(t, "segments"), "/") + rapid.SampledFrom([]string{"", "", "", "/"}).Draw(t, "end")
}

// treeModel is a tree, to which templates are added and from which they are removed, and the set of these templates.
type treeModel struct {
	tree *Tree[string]
	have map[string]Template // by pattern
}

// step adds or removes a template, and checks the tree, and that the tree before has not changed.
func (m *treeModel) step(t *rapid.T, p Template, paths []string) {
	before := findAll(m.tree, paths)
	old := m.tree
	if _, there := m.have[p.Pattern()]; there && rapid.Bool().Draw(t, "remove") {
		delete(m.have, p.Pattern())
		m.tree = m.tree.Without(p)
	} else {
		m.have[p.Pattern()] = p
		m.tree = m.tree.With(p, new(p.Pattern()))
	}
	if after := findAll(old, paths); !slices.Equal(before, after) {
		t.Fatalf("the tree before changed from %q to %q", before, after)
	}
}

// findAll returns what the tree finds for each path.
func findAll(tree *Tree[string], paths []string) []string {
	found := make([]string, len(paths))
	for i, path := range paths {
		found[i] = "none"
		if v := tree.Find(path); v != nil {
			found[i] = *v
		}
	}
	return found
}

// naivePattern returns the pattern that the naive implementation finds in a set of templates.
func naivePattern(have map[string]Template, path string) string {
	var table []naive
	patterns := map[string]string{}
	for pattern, p := range have {
		n := newNaive(p.String())
		table = append(table, n)
		patterns[n.pattern()] = pattern
	}
	if found := naiveFind(table, path); found != "none" {
		return patterns[found]
	}
	return "none"
}

// Guarantee: a tree to which templates were added and from which they were removed, in any order,
// finds the same as a tree that is built at once, and as a naive implementation. A change leaves
// the previous tree as it was.
func TestTreeChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &treeModel{tree: NewTree[string](), have: map[string]Template{}}
		paths := rapid.SliceOfN(rapid.Custom(drawPath), 6, 6).Draw(t, "paths")
		for range rapid.IntRange(1, 4).Draw(t, "rounds") {
			for _, p := range drawTable(t) {
				m.step(t, p, paths)
			}
		}
		b := NewTreeBuilder[string]()
		for _, pattern := range slices.Sorted(maps.Keys(m.have)) {
			b.Put(m.have[pattern], &pattern)
		}
		built := b.Tree()
		if built.Len() != len(m.have) || m.tree.Len() != len(m.have) {
			t.Fatalf("got lengths %d and %d, want %d", built.Len(), m.tree.Len(), len(m.have))
		}
		if got, want := shape(m.tree.root), shape(built.root); got != want {
			t.Fatalf("got a tree\n%s\nby changes, and\n%s\nbuilt at once", got, want)
		}
		byChanges, atOnce := findAll(m.tree, paths), findAll(built, paths)
		for i, path := range paths {
			if want := naivePattern(m.have, path); byChanges[i] != want || atOnce[i] != want {
				t.Fatalf("%s: got %s by changes and %s at once, want %s", path, byChanges[i], atOnce[i], want)
			}
		}
		for pattern, p := range m.have {
			if v := m.tree.Get(p); v == nil || *v != pattern {
				t.Fatalf("Get(%s) is not the value that was put", p)
			}
		}
	})
}

// shape returns a text that is equal for trees of equal nodes, whatever the names of parameters are
// and in whatever order literals were added.
func shape(n *node[string]) string {
	text := withoutNames(n.chain)
	if n.end != nil {
		text += "="
	}
	b := n.below
	if b == nil {
		return text
	}
	var children []string
	b.literals.each(func(child *node[string]) { children = append(children, shape(child)) })
	slices.Sort(children)
	if len(children) != int(b.count) {
		text += fmt.Sprintf("(%d literals)", b.count)
	}
	for i := range b.texts {
		children = append(children, shape(b.texts[i].to))
	}
	if b.param != nil {
		children = append(children, shape(b.param))
	}
	if b.wild != nil {
		children = append(children, "/*")
	}
	return text + "[" + strings.Join(children, " ") + "]"
}

// Guarantee: With and Without work at a node with thousands of literals. Each is found until it is
// removed, and the previous trees stay as they were.
func TestTreeOfManyLiterals(t *testing.T) {
	const many = 3000
	tree := NewTree[int]()
	templates := make([]Template, many)
	for i := range templates {
		templates[i] = parsed(t, fmt.Sprintf("/v1/things-%d/{id}/parts/{part}", i))[0]
		tree = tree.With(templates[i], new(int))
	}
	full := tree
	path := func(i int) string { return fmt.Sprintf("/v1/things-%d/a/parts/b", i) }
	for i := range many {
		if i%7 > 0 {
			tree = tree.Without(templates[i])
		}
	}
	for i := range many {
		if full.Find(path(i)) == nil {
			t.Fatalf("%s is not found", path(i))
		}
		if got, want := tree.Find(path(i)) != nil, i%7 == 0; got != want {
			t.Fatalf("after removals, %s: got %t, want %t", path(i), got, want)
		}
	}
	for i := range many {
		tree = tree.Without(templates[i])
	}
	if tree.Len() != 0 || tree.root.below != nil {
		t.Errorf("an emptied tree has %d values, branches %v", tree.Len(), tree.root.below)
	}
}
