package gateway

import "strings"

// Tree is a radix tree over path segments that finds the most specific of a set of
// templates that matches a path (contract, 4.2). It is immutable.
//
// Each node represents the first segments of some templates. A search tries the children of
// a node from the most to the least specific, and backtracks if one leads to no template.
// Because the nodes form a tree, a search visits each at most once. So the cost is bounded
// by the number of nodes no deeper than the path, whatever the path is, and not by the
// number of combinations of templates.
//
// Nodes, edges and text are kept in three contiguous slices, so that the routes of a large
// document fit into the processor's caches.
type Tree struct {
	nodes    []node // the first is the root
	edges    []edge // to literals: a hash table with open addressing for each node
	texts    []textEdge
	text     string // all literal text
	patterns int
}

// node is one node of the tree. param, wild and end are -1 if there is none.
type node struct {
	edges     uint32 // its first slot in Tree.edges
	slotBits  uint32 // it has 1<<slotBits slots; noEdges if it has none
	texts     uint32 // its first in Tree.texts, the most specific first
	textCount uint32
	param     int32 // the child for a parameter
	wild      int32 // the pattern that continues with a wildcard
	end       int32 // the pattern that ends here
}

const noEdges = 32

// edge leads to the child for a literal segment. to is 0 in a free slot, since the root is
// not a child.
type edge struct {
	at, size uint32 // in Tree.text
	to       int32
}

// textEdge leads to the child for a segment of text and parameters.
type textEdge struct {
	texts []string
	to    int32
}

// Patterns returns the number of different patterns in the tree.
func (t *Tree) Patterns() int { return t.patterns }

// Find returns the number of the most specific pattern that matches the path, which must be
// in the normal form of NormalizePath, or -1 if none does. It does not allocate.
func (t *Tree) Find(path string) int {
	if path == "" || path[0] != '/' {
		return -1
	}
	return int(t.find(0, path[1:]))
}

// find searches below the node at; rest is the path after that node's segments and the
// slash that follows them.
func (t *Tree) find(at int32, rest string) int32 {
	n := &t.nodes[at]
	segment, below, more := rest, "", false
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		segment, below, more = rest[:i], rest[i+1:], true
	}
	if n.slotBits != noEdges {
		if to := t.literal(n, segment); to > 0 {
			if pattern := t.descend(to, below, more); pattern >= 0 {
				return pattern
			}
		}
	}
	if segment == "" {
		return n.wild
	}
	for i := range t.texts[n.texts : n.texts+n.textCount] {
		e := &t.texts[n.texts+uint32(i)]
		if !matchTexts(e.texts, segment) {
			continue
		}
		if pattern := t.descend(e.to, below, more); pattern >= 0 {
			return pattern
		}
	}
	if n.param > 0 {
		if pattern := t.descend(n.param, below, more); pattern >= 0 {
			return pattern
		}
	}
	return n.wild
}

// descend continues at a child with the rest of the path, if there is more of it.
func (t *Tree) descend(at int32, below string, more bool) int32 {
	if more {
		return t.find(at, below)
	}
	return t.nodes[at].end
}

// Reaches reports whether a template matches path or a path below it. path must be in the
// normal form of NormalizePath, and not end with a slash. It visits at most *steps nodes,
// which it counts down. When none are left, it returns true. It does not allocate.
func (t *Tree) Reaches(path string, steps *int) bool {
	return t.reaches(0, path[1:], true, steps)
}

// reaches searches below the node at, as find does, for the segments of rest if there is
// more. Every node but the root of an empty tree is on the way to a template.
func (t *Tree) reaches(at int32, rest string, more bool, steps *int) bool {
	n := &t.nodes[at]
	if !more || n.wild >= 0 || *steps <= 0 {
		return true
	}
	*steps--
	segment, below, more := strings.Cut(rest, "/")
	if n.slotBits != noEdges {
		if to := t.literal(n, segment); to > 0 && t.reaches(to, below, more, steps) {
			return true
		}
	}
	for i := range t.texts[n.texts : n.texts+n.textCount] {
		e := &t.texts[n.texts+uint32(i)]
		if *steps--; matchTexts(e.texts, segment) && t.reaches(e.to, below, more, steps) {
			return true
		}
	}
	return n.param > 0 && t.reaches(n.param, below, more, steps)
}

// literal returns the child of n for a literal segment, or 0. The loop ends because every
// table has a free slot.
func (t *Tree) literal(n *node, segment string) int32 {
	mask := uint32(1)<<n.slotBits - 1
	for i := literalHash(segment) & mask; ; i = (i + 1) & mask {
		e := &t.edges[n.edges+i]
		if e.to == 0 || int(e.size) == len(segment) && t.text[e.at:e.at+e.size] == segment {
			return e.to
		}
	}
}

// literalHash hashes the length and four bytes of a literal, which usually suffice to
// distinguish those of one table.
func literalHash(s string) uint32 {
	n := len(s)
	if n == 0 {
		return 0
	}
	h := uint32(n)<<24 ^ uint32(s[0])<<18 ^ uint32(s[n/3])<<12 ^ uint32(s[n/2])<<6 ^ uint32(s[n-1])
	h *= 0x9e3779b1
	return h ^ h>>15
}
