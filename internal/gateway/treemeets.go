package gateway

import (
	"slices"
	"strings"
)

// anyText stands for a parameter's text in Template.Instance. No template contains it, since a
// path may not have control bytes.
const anyText = "\x01"

// Instance returns a path, in normal form, that stands for all paths that t matches: a template
// that matches it matches all of them, and Tree.Find returns for it the most specific of these
// templates. It is no path of a real request, unless t has neither parameters nor a wildcard.
func (t *Template) Instance() string {
	var b strings.Builder
	for i := range t.segments {
		s := &t.segments[i]
		b.WriteByte('/')
		if s.kind == wildcardSegment {
			// Only a wildcard matches below an empty segment.
			b.WriteString("/" + anyText)
			break
		}
		b.WriteString(s.join(anyText))
	}
	return b.String()
}

// IsLiteral reports whether t matches only one path: it has neither parameters nor a wildcard.
func (t *Template) IsLiteral() bool {
	return !slices.ContainsFunc(t.segments, func(s segment) bool { return s.kind != literalSegment })
}

// Meets calls f for the value of each template of the tree that matches a path that template
// matches too, until f returns true, and reports whether it did. closer says that the tree's
// template is the more specific of the two, which a search finds for such a path.
//
// It takes at most about *steps steps, which it counts down. When none are left, it returns
// true. Two segments that both have text around parameters count as matching a common text.
func (t *Tree[V]) Meets(template Template, steps *int, f func(v *V, closer bool) bool) bool {
	m := meeting[V]{left: *steps, f: f}
	m.seed = t.seed
	met := m.at(t.root, template.segments, relation{})
	*steps = max(m.left, 0)
	return met
}

// meeting is the state of one call of Meets.
type meeting[V any] struct {
	search
	left int // steps
	f    func(v *V, closer bool) bool
}

// relation says which of two templates is more specific, as far as their segments were compared.
// The first segments that differ decide.
type relation struct{ settled, closer bool }

// with returns the relation after two more segments, of the template and of the tree.
func (r relation) with(own *segment, other string) relation {
	if r.settled {
		return r
	}
	kind := kindOf(other)
	if kind != own.kind {
		return relation{settled: true, closer: kind < own.kind}
	}
	if kind != textSegment {
		return r
	}
	order := compareTexts(other, own.join("{}"))
	return relation{settled: order != 0, closer: order < 0}
}

// below is the relation of a template that ends in a wildcard and one that goes on.
func (r relation) below() relation {
	if r.settled {
		return r
	}
	return relation{settled: true, closer: true}
}

// kindOf returns the kind of a chain's segment.
func kindOf(chained string) segmentKind {
	switch {
	case strings.IndexByte(chained, '{') < 0:
		return literalSegment
	case isParam(chained):
		return paramSegment
	default:
		return textSegment
	}
}

// at continues below n, whose segments meet those before rest.
func (m *meeting[V]) at(n *node[V], rest []segment, r relation) bool {
	b := n.below
	switch {
	case len(rest) == 0:
		return n.end != nil && m.f(n.end, r.closer)
	case b == nil:
		return false
	}
	if m.left--; m.left < 0 || b.wild != nil && m.f(b.wild, r.closer) {
		return true
	}
	if own := &rest[0]; own.kind == literalSegment {
		hash := hashOf(m.seed, own.texts[0])
		for _, e := range b.literals.bucket(hash) {
			if e.hash == hash && m.child(e.to, rest, r) {
				return true
			}
		}
	} else {
		met := false
		b.literals.each(func(child *node[V]) { met = met || m.child(child, rest, r) })
		if met {
			return true
		}
	}
	for i := range b.texts {
		if m.child(b.texts[i].to, rest, r) {
			return true
		}
	}
	return b.param != nil && m.child(b.param, rest, r)
}

// child continues with the chain of n.
func (m *meeting[V]) child(n *node[V], rest []segment, r relation) bool {
	for chain := n.chain; chain != ""; {
		if len(rest) == 0 {
			return false
		}
		if m.left--; m.left < 0 {
			return true
		}
		if rest[0].kind == wildcardSegment {
			return m.all(n, r.below())
		}
		var first string
		first, chain = cutChain(chain)
		if !m.overlap(&rest[0], first) {
			return false
		}
		r, rest = r.with(&rest[0], first), rest[1:]
	}
	return m.at(n, rest, r)
}

// all calls f for n and everything below it.
func (m *meeting[V]) all(n *node[V], r relation) bool {
	if m.left--; m.left < 0 || n.end != nil && m.f(n.end, r.closer) {
		return true
	}
	b := n.below
	if b == nil {
		return false
	}
	if b.wild != nil && m.f(b.wild, r.closer) {
		return true
	}
	met := false
	b.literals.each(func(child *node[V]) { met = met || m.all(child, r) })
	for i := range b.texts {
		met = met || m.all(b.texts[i].to, r)
	}
	return met || b.param != nil && m.all(b.param, r)
}

// overlap reports whether a segment of a template, which is not a wildcard, and a segment of a
// chain match a common text.
func (m *meeting[V]) overlap(own *segment, other string) bool {
	switch kind := kindOf(other); {
	case kind == literalSegment:
		return own.matches(other)
	case own.kind == literalSegment:
		return m.matchSegment(other, own.texts[0])
	default:
		return true
	}
}
