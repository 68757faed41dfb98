package gateway

import (
	"slices"
	"strings"
)

// TreeBuilder builds a tree of many templates. Adding them one by one with With would copy much
// more.
type TreeBuilder[V any] struct{ tree *Tree[V] }

// NewTreeBuilder returns a TreeBuilder of an empty tree.
func NewTreeBuilder[V any]() *TreeBuilder[V] { return &TreeBuilder[V]{NewTree[V]()} }

// Put sets the value of the template's paths, which must not be nil.
func (b *TreeBuilder[V]) Put(template Template, v *V) {
	e := editor[V]{seed: b.tree.seed, inPlace: true}
	if e.put1(b.tree, template, v) {
		b.tree.size++
	}
}

// Get returns the value of the template's paths, or nil.
func (b *TreeBuilder[V]) Get(template Template) *V { return b.tree.Get(template) }

// Texts returns Tree.Texts of the tree as it is.
func (b *TreeBuilder[V]) Texts(template Template) int { return b.tree.Texts(template) }

// Tree returns the tree. The TreeBuilder must not be used afterwards.
func (b *TreeBuilder[V]) Tree() *Tree[V] {
	t := b.tree
	b.tree = nil
	return t
}

// With returns the tree in which the template's paths have the value v, which must not be
// nil. Its cost does not depend on the size of the tree.
func (t *Tree[V]) With(template Template, v *V) *Tree[V] {
	e := editor[V]{seed: t.seed}
	root := *t.root
	next := &Tree[V]{root: &root, seed: t.seed, size: t.size}
	if e.put1(next, template, v) {
		next.size++
	}
	return next
}

// Without returns the tree in which the template's paths have no value.
func (t *Tree[V]) Without(template Template) *Tree[V] {
	if t.Get(template) == nil {
		return t
	}
	e := editor[V]{seed: t.seed}
	body, wild := template.chain()
	root := *t.root
	e.take(&root, body, wild)
	return &Tree[V]{root: &root, seed: t.seed, size: t.size - 1}
}

// Get returns the value of the template's paths, or nil if the tree has none.
func (t *Tree[V]) Get(template Template) *V {
	body, wild := template.chain()
	n := t.walk(body, nil)
	switch {
	case n == nil:
		return nil
	case !wild:
		return n.end
	case n.below != nil:
		return n.below.wild
	default:
		return nil
	}
}

// Texts returns, for the position on the template's way where it is greatest, the number of
// different segments with text around a parameter that follow the same segments.
func (t *Tree[V]) Texts(template Template) (greatest int) {
	body, _ := template.chain()
	t.walk(body, func(b *branches[V]) { greatest = max(greatest, len(b.texts)) })
	return greatest
}

// Continues reports whether a template of the tree begins with the segments of template, of which a wildcard at the end
// does not count.
func (t *Tree[V]) Continues(template Template) bool {
	chain, _ := template.chain()
	e := editor[V]{seed: t.seed}
	for n := t.root; chain != ""; {
		if n.below == nil {
			return false
		}
		if n = e.child(n.below, chain); n == nil {
			return false
		}
		own, other := common(n.chain, chain)
		if chain = chain[other:]; own < len(n.chain) {
			return chain == ""
		}
	}
	return t.size > 0
}

// walk returns the node with the segments of the chain, or nil. It calls each, unless each is nil,
// for the branches on the way.
func (t *Tree[V]) walk(chain string, each func(*branches[V])) *node[V] {
	e := editor[V]{seed: t.seed}
	n := t.root
	for chain != "" {
		if n.below == nil {
			return nil
		}
		if each != nil {
			each(n.below)
		}
		if n = e.child(n.below, chain); n == nil {
			return nil
		}
		own, other := common(n.chain, chain)
		if own < len(n.chain) {
			return nil
		}
		chain = chain[other:]
	}
	return n
}

// chain returns the template's segments as a node has them, and whether a wildcard follows them.
// The text is shared with the template.
func (t *Template) chain() (body string, wild bool) {
	if t.normal == "" {
		return t.normal, false
	}
	return strings.CutSuffix(t.normal, "/*")
}

// common returns the sizes of the longest beginnings of the chains a and b whose segments match the
// same texts.
func common(a, b string) (inA, inB int) {
	for inA < len(a) && inB < len(b) {
		first, _ := cutChain(a[inA:])
		other, _ := cutChain(b[inB:])
		if first != other && (!strings.Contains(first, "{") || !strings.Contains(other, "{") || withoutNames(first) != withoutNames(other)) {
			break
		}
		inA += 1 + len(first)
		inB += 1 + len(other)
	}
	return inA, inB
}

// put1 sets the value of a template in t, whose root is not shared. It reports whether the template
// had no value before.
func (e *editor[V]) put1(t *Tree[V], template Template, v *V) (added bool) {
	body, wild := template.chain()
	return e.set(t.root, body, wild, v)
}

// set sets the value of the template whose remaining segments are chain, below n, which is
// not shared.
func (e *editor[V]) set(n *node[V], chain string, wild bool, v *V) (added bool) {
	if chain == "" {
		to := &n.end
		if wild {
			to = &e.ownBranches(n).wild
		}
		added = *to == nil
		*to = v
		return added
	}
	b := e.ownBranches(n)
	child := e.child(b, chain)
	if child == nil {
		leaf := &node[V]{chain: chain}
		e.set(leaf, "", wild, v)
		e.attach(b, leaf)
		return true
	}
	own, other := common(child.chain, chain)
	next := child
	if own < len(child.chain) {
		next = &node[V]{chain: child.chain[:own], below: &branches[V]{}}
		e.attach(next.below, &node[V]{chain: child.chain[own:], end: child.end, below: child.below})
	} else if !e.inPlace {
		c := *child
		next = &c
	}
	added = e.set(next, chain[other:], wild, v)
	if next != child {
		e.replace(b, child, next)
	}
	return added
}

// ownBranches returns the branches of n, which is not shared, to be changed.
func (e *editor[V]) ownBranches(n *node[V]) *branches[V] {
	switch {
	case n.below == nil:
		n.below = &branches[V]{}
	case !e.inPlace:
		b := *n.below
		n.below = &b
	}
	return n.below
}

// child returns the child of b whose chain starts with the same segment as chain, or nil.
func (e *editor[V]) child(b *branches[V], chain string) *node[V] {
	first, _ := cutChain(chain)
	switch {
	case strings.IndexByte(first, '{') < 0:
		return e.literal(b, first, hashOf(e.seed, first))
	case isParam(first):
		return b.param
	default:
		if i, found := findEdge(b.texts, first); found {
			return b.texts[i].to
		}
		return nil
	}
}

// findEdge returns where the edge with the same segment is in texts or belongs.
func findEdge[V any](texts []textEdge[V], segment string) (int, bool) {
	return slices.BinarySearchFunc(texts, segment, func(e textEdge[V], segment string) int {
		first, _ := cutChain(e.to.chain)
		return compareTexts(first, segment)
	})
}

// attach adds a child to b, which is not shared and has no child with the same first segment.
func (e *editor[V]) attach(b *branches[V], child *node[V]) {
	first, _ := cutChain(child.chain)
	switch {
	case strings.IndexByte(first, '{') < 0:
		e.put(&b.literals, 0, hashOf(e.seed, first), nil, child)
		b.count++
	case isParam(first):
		b.param = child
	default:
		if !e.inPlace {
			b.texts = slices.Clip(b.texts)
		}
		i, _ := findEdge(b.texts, first)
		b.texts = slices.Insert(b.texts, i, newTextEdge(child))
	}
}

// replace puts next in the place of old, a child of b, which is not shared.
func (e *editor[V]) replace(b *branches[V], old, next *node[V]) {
	first, _ := cutChain(old.chain)
	switch {
	case strings.IndexByte(first, '{') < 0:
		e.put(&b.literals, 0, hashOf(e.seed, first), old, next)
	case isParam(first):
		b.param = next
	default:
		if !e.inPlace {
			b.texts = slices.Clone(b.texts)
		}
		i, _ := findEdge(b.texts, first)
		b.texts[i].to = next
	}
}

// detach removes a child of b, which is not shared.
func (e *editor[V]) detach(b *branches[V], child *node[V]) {
	first, _ := cutChain(child.chain)
	switch {
	case strings.IndexByte(first, '{') < 0:
		e.remove(&b.literals, 0, hashOf(e.seed, first), child)
		b.count--
	case isParam(first):
		b.param = nil
	default:
		i, _ := findEdge(b.texts, first)
		b.texts = slices.Concat(b.texts[:i], b.texts[i+1:])
	}
}

// take removes the value of the template whose remaining segments are chain, below n, which
// is not shared. The value is there.
func (e *editor[V]) take(n *node[V], chain string, wild bool) {
	switch {
	case chain != "":
		b := e.ownBranches(n)
		child := e.child(b, chain)
		_, other := common(child.chain, chain)
		next := *child
		e.take(&next, chain[other:], wild)
		if next.end == nil && next.below == nil {
			e.detach(b, child)
		} else {
			e.replace(b, child, next.merged())
		}
	case wild:
		e.ownBranches(n).wild = nil
	default:
		n.end = nil
	}
	if b := n.below; b != nil && b.wild == nil && b.param == nil && len(b.texts) == 0 && b.count == 0 {
		n.below = nil
	}
}

// merged returns n, or if it has one child and no value, n and its child as one node.
func (n *node[V]) merged() *node[V] {
	b := n.below
	if n.end != nil || b == nil || b.wild != nil {
		return n
	}
	var only *node[V]
	switch {
	case b.param != nil && b.count == 0 && len(b.texts) == 0:
		only = b.param
	case b.param == nil && b.count == 0 && len(b.texts) == 1:
		only = b.texts[0].to
	case b.param == nil && b.count == 1 && len(b.texts) == 0:
		b.literals.each(func(child *node[V]) { only = child })
	default:
		return n
	}
	return &node[V]{chain: n.chain + only.chain, end: only.end, below: only.below}
}
