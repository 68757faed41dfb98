package gateway

import (
	"hash/maphash"
	"math"
	"strings"
)

// Tree is a radix tree over path segments that maps templates to values and finds the value
// of the most specific template that matches a path (contract, 4.2). It is immutable: With
// and Without return another tree, which shares all but the nodes on the way to the
// template. The zero value is not valid: use NewTree or a TreeBuilder.
//
// Templates that match the same paths have one value. A node stands for the first segments of some
// templates. Segments at which no two templates differ form the chain of one node. So a tree has
// fewer than two nodes for each template, however many segments they have, and the text of chains
// is shared with the templates.
//
// A search tries the children of a node from the most to the least specific, and backtracks
// if one leads to no template. It visits each node at most once. Only in tables made for this
// purpose do many nodes match a path; Search bounds their number.
type Tree[V any] struct {
	root *node[V] // its chain is ""
	seed maphash.Seed
	size int
}

// node is one node of the tree. A node has at least two branches, unless it has a value or is the
// root.
type node[V any] struct {
	// chain are the segments from the parent's to this node's last, each after a slash, as
	// in Template.normal: "/users/{id}". Names of parameters have no meaning.
	chain string
	end   *V // the value of the template that ends here
	below *branches[V]
}

// branches lead from a node to its children. At least one of wild, param, texts and literals is
// set.
type branches[V any] struct {
	wild  *V       // the value of the template that continues with a wildcard
	param *node[V] // the child whose chain starts with a parameter
	texts []textEdge[V]
	// literals are the children whose chains start with a literal.
	literals table[V]
	count    int32 // of literals
}

// NewTree returns an empty tree.
func NewTree[V any]() *Tree[V] { return &Tree[V]{root: &node[V]{}, seed: maphash.MakeSeed()} }

// Len returns the number of values.
func (t *Tree[V]) Len() int { return t.size }

// Find returns the value of the most specific template that matches the path, which must be
// in the normal form of NormalizePath, or nil if none does. It does not allocate.
func (t *Tree[V]) Find(path string) *V {
	v, _ := t.Search(path, math.MaxInt)
	return v
}

// Search is Find with a bound on its work: it does at most about steps steps, each of which takes
// some 30 ns at worst. If they do not suffice for a result, ok is false.
func (t *Tree[V]) Search(path string, steps int) (v *V, ok bool) {
	if path == "" || path[0] != '/' {
		return nil, true
	}
	s := search{path: path, seed: t.seed, steps: steps}
	v = find(&s, t.root, 0)
	return v, v != nil || s.steps >= 0
}

// search is the state of one search. A position in the path is the index of the slash before the
// next segment, or the length of the path after the last.
type search struct {
	path  string
	seed  maphash.Seed
	steps int // left; the search ends when it is negative
}

// segmentEnd returns the position after the segment that follows the slash at pos.
func (s *search) segmentEnd(pos int) int {
	if i := strings.IndexByte(s.path[pos+1:], '/'); i >= 0 {
		s.steps -= i / 1024
		return pos + 1 + i
	}
	s.steps -= (len(s.path) - pos) / 1024
	return len(s.path)
}

// find searches below n, whose segments match the path up to pos.
func find[V any](s *search, n *node[V], pos int) *V {
	b := n.below
	switch {
	case s.steps < 0: // a more specific template may match
		return nil
	case pos == len(s.path):
		return n.end
	case b == nil:
		return nil
	}
	s.steps--
	end := s.segmentEnd(pos)
	segment := s.path[pos+1 : end]
	if b.count > 0 && len(segment) <= MaxTemplate {
		s.steps -= len(segment) / 128
		hash := hashOf(s.seed, segment)
		bucket := b.literals.bucket(hash)
		for i := range bucket {
			if bucket[i].hash != hash {
				continue
			}
			to := bucket[i].to
			if at := s.match(to.chain, pos); at >= 0 {
				if v := find(s, to, at); v != nil {
					return v
				}
			}
		}
	}
	if len(b.texts) > 0 && segment != "" {
		if v := findText(s, b.texts, segment, end); v != nil {
			return v
		}
	}
	if b.param != nil && segment != "" {
		if at := s.match(b.param.chain, pos); at >= 0 {
			if v := find(s, b.param, at); v != nil {
				return v
			}
		}
	}
	if s.steps < 0 {
		return nil
	}
	return b.wild
}

// findText continues find at the children whose chains start with text and parameters.
func findText[V any](s *search, texts []textEdge[V], segment string, end int) *V {
	s.steps -= len(texts) / 16
	ends := endsOf(segment)
	for i := range texts {
		e := &texts[i]
		if (e.ends^ends)&e.mask != 0 {
			continue
		}
		if s.steps < 0 {
			return nil
		}
		first, rest := cutChain(e.to.chain)
		if !s.matchText(first, segment) {
			continue
		}
		at := end
		if rest != "" {
			if at = s.match(rest, end); at < 0 {
				continue
			}
		}
		if v := find(s, e.to, at); v != nil {
			return v
		}
	}
	return nil
}

// match returns the position in the path at which a chain that starts at pos ends, or -1 if the
// chain does not match.
func (s *search) match(chain string, pos int) int {
	for {
		s.steps--
		open := strings.IndexByte(chain, '{')
		if open < 0 {
			rest := s.path[pos:]
			if !strings.HasPrefix(rest, chain) || len(rest) > len(chain) && rest[len(chain)] != '/' {
				return -1
			}
			return pos + len(chain)
		}
		start := strings.LastIndexByte(chain[:open], '/')
		if !strings.HasPrefix(s.path[pos:], chain[:start+1]) {
			return -1
		}
		pos += start
		segment, rest := cutChain(chain[start:])
		end := s.segmentEnd(pos)
		if end == pos+1 || !isParam(segment) && !s.matchText(segment, s.path[pos+1:end]) {
			return -1
		}
		if pos = end; rest == "" {
			return pos
		}
		chain = rest
	}
}

// cutChain cuts a chain after its first segment, which it returns without its slash.
func cutChain(chain string) (first, rest string) {
	if i := strings.IndexByte(chain[1:], '/'); i >= 0 {
		return chain[1 : 1+i], chain[1+i:]
	}
	return chain[1:], ""
}

// isParam reports whether a segment of a chain is one parameter and no text.
func isParam(segment string) bool {
	return segment != "" && segment[0] == '{' && strings.IndexByte(segment, '}') == len(segment)-1
}

// matchText reports whether a segment of text and parameters matches a segment of the path.
// Parameters match at least one byte. The match is greedy: each piece of text matches at its
// first occurrence, and the last at the end; if this fails, no other choice succeeds.
func (s *search) matchText(template, text string) bool {
	s.steps--
	open, shut := strings.IndexByte(template, '{'), strings.LastIndexByte(template, '}')
	first, last := template[:open], template[shut+1:]
	if len(text) <= len(first)+len(last) || !strings.HasPrefix(text, first) || !strings.HasSuffix(text, last) {
		return false
	}
	text, template = text[len(first):len(text)-len(last)], template[open:shut+1]
	if strings.IndexByte(template, '}') == len(template)-1 {
		return true // one parameter
	}
	s.steps -= len(text) / 32
	for {
		template = template[strings.IndexByte(template, '}')+1:]
		if template == "" {
			return true
		}
		s.steps--
		open := strings.IndexByte(template, '{')
		i := strings.Index(text[1:], template[:open])
		if i < 0 {
			return false
		}
		if text = text[1+i+open:]; text == "" {
			return false
		}
	}
}

// Reaches reports whether a template matches path or a path below it. path must be in the
// normal form of NormalizePath, and not end with a slash. It takes at most about *steps
// steps, which it counts down. When none are left, it returns true. It does not allocate.
func (t *Tree[V]) Reaches(path string, steps *int) bool {
	s := search{path: path, seed: t.seed, steps: *steps}
	reached := reaches(&s, t.root, 0)
	*steps = max(s.steps, 0)
	return reached
}

// reaches searches below n as find does. Every node but the root of an empty tree is on the
// way to a template.
func reaches[V any](s *search, n *node[V], pos int) bool {
	if pos == len(s.path) || s.steps <= 0 {
		return true
	}
	b := n.below
	if s.steps--; b == nil {
		return false
	}
	if b.wild != nil {
		return true
	}
	segment := s.path[pos+1 : s.segmentEnd(pos)]
	if b.count > 0 && len(segment) <= MaxTemplate {
		hash := hashOf(s.seed, segment)
		for _, e := range b.literals.bucket(hash) {
			if e.hash == hash && reachesChild(s, e.to, pos) {
				return true
			}
		}
	}
	for i := range b.texts {
		if reachesChild(s, b.texts[i].to, pos) {
			return true
		}
	}
	return b.param != nil && reachesChild(s, b.param, pos)
}

// reachesChild continues reaches with the chain of n, which the path may end within.
func reachesChild[V any](s *search, n *node[V], pos int) bool {
	for chain := n.chain; chain != ""; {
		if pos == len(s.path) {
			return true
		}
		s.steps--
		var first string
		first, chain = cutChain(chain)
		end := s.segmentEnd(pos)
		if !s.matchSegment(first, s.path[pos+1:end]) {
			return false
		}
		pos = end
	}
	return reaches(s, n, pos)
}

// matchSegment reports whether any segment of a chain matches a segment of the path.
func (s *search) matchSegment(template, text string) bool {
	switch {
	case strings.IndexByte(template, '{') < 0:
		return template == text
	case isParam(template):
		return text != ""
	default:
		return s.matchText(template, text)
	}
}
