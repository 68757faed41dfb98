package gateway

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// met returns the patterns of the templates of a tree that Meets reports, and for each whether it is
// the more specific template.
func met(tree *Tree[string], p Template) map[string]bool {
	found, steps := map[string]bool{}, math.MaxInt
	tree.Meets(p, &steps, func(v *string, closer bool) bool {
		found[*v] = closer
		return false
	})
	return found
}

// Guarantee: let A be the template that is found for the instance of a template B. A matches every
// path that B matches, and is found for each of them, unless a more specific template that Meets
// reports is found. Meets reports every template that matches a path of B, and which of the two is
// found for it.
func TestTemplatesThatMeet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		templates := drawTable(t)
		own := templates[0]
		b := NewTreeBuilder[string]()
		byPattern := map[string]Template{}
		for _, p := range templates[rapid.IntRange(0, 1).Draw(t, "without"):] {
			byPattern[p.Pattern()] = p
			b.Put(p, new(p.Pattern()))
		}
		tree := b.Tree()
		found := met(tree, own)
		instead := tree.Find(own.Instance())
		for _, path := range append(rapid.SliceOfN(rapid.Custom(drawPath), 12, 12).Draw(t, "paths"), example(own.String())) {
			if !own.Matches(path) {
				continue
			}
			if instead != nil {
				cover := byPattern[*instead]
				if !cover.Matches(path) {
					t.Fatalf("%s is found for the instance of %s, but does not match %q", cover, own, path)
				}
				if got := tree.Find(path); got != instead && !found[*got] && !met(tree, cover)[*got] {
					t.Fatalf("%q of %s: got %s, want %s or a more specific one that meets it", path, own, *got, cover)
				}
			}
			for pattern, p := range byPattern {
				if !p.Matches(path) {
					continue
				}
				closer, reported := found[pattern]
				if !reported {
					t.Fatalf("%s and %s both match %q, which Meets does not report", own, p, path)
				}
				both := NewTreeBuilder[string]()
				both.Put(own, new(own.Pattern()))
				both.Put(p, new(pattern))
				if want := pattern != own.Pattern() && *both.Tree().Find(path) == pattern; closer != want {
					t.Fatalf("%s beside %s: got more specific %t, want %t", p, own, closer, want)
				}
			}
		}
	})
}

// Guarantee: the work of Meets is bounded. When the steps are used up, it reports a match.
func TestMeetingIsBounded(t *testing.T) {
	b := NewTreeBuilder[int]()
	for i := range 1000 {
		b.Put(parsed(t, fmt.Sprintf("/a%d/{x}/b", i))[0], new(i))
	}
	tree, p := b.Tree(), parsed(t, "/{x}/{y}/c")[0]
	none := func(*int, bool) bool { return false }
	steps := math.MaxInt
	if tree.Meets(p, &steps, none) {
		t.Error("got a common path, want none")
	}
	if used := math.MaxInt - steps; used < 1000 || used > 10_000 {
		t.Errorf("got %d steps, want a few for each of 1000 templates", used)
	}
	steps = 100
	if !tree.Meets(p, &steps, none) || steps != 0 {
		t.Errorf("got %d steps left and no common path, want it to be unknown", steps)
	}
}
