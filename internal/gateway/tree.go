package gateway

import "strings"

// Tree finds the most specific of a set of templates that matches a path
// (contract, 4.2). It is immutable.
//
// Each node stands for the first segments of some templates. A search tries a
// node's children in falling order of how specific they are and returns to the
// next when one leads to no template. Since the nodes form a tree, a search
// enters each at most once: its cost is bounded by the nodes of the depth of the
// path's segments, whatever the path, and not by the number of ways in which
// templates could combine.
//
// Nodes, edges and text stand close together in three pieces of memory: the
// routes of a large document fit into a processor's nearer caches.
type Tree struct {
	nodes  []node // the first is the root
	edges  []edge // of literals: for each node a hash table with open addressing
	texts  []textEdge
	text   string // all literal text
	places int
}

// node is one place in the tree. Places are -1 where there is none, and so is param.
type node struct {
	edges     uint32 // its first slot in Tree.edges
	slotBits  uint32 // it has 1<<slotBits slots, and is noEdges without any
	texts     uint32 // its first in Tree.texts, the most specific first
	textCount uint32
	param     int32 // the child for a parameter
	wild      int32 // the place of the template that goes on with a wildcard
	end       int32 // the place of the template that ends here
}

const noEdges = 32

// edge leads to a child for a literal segment. The root is nobody's child: to
// is 0 in a free slot.
type edge struct {
	at, size uint32 // in Tree.text
	to       int32
}

// textEdge leads to a child for text around parameters.
type textEdge struct {
	texts []string
	to    int32
}

// Places returns how many places the tree has.
func (t *Tree) Places() int { return t.places }

// Find returns the place of the most specific template that matches the path,
// which is in the normal form of NormalizePath; -1 if none does. It does not
// allocate.
func (t *Tree) Find(path string) int {
	if path == "" || path[0] != '/' {
		return -1
	}
	return int(t.find(0, path[1:]))
}

// find searches below the node at; rest is what follows the slash after its
// segments.
func (t *Tree) find(at int32, rest string) int32 {
	n := &t.nodes[at]
	segment, below, more := rest, "", false
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		segment, below, more = rest[:i], rest[i+1:], true
	}
	if n.slotBits != noEdges {
		if to := t.literal(n, segment); to > 0 {
			if place := t.reach(to, below, more); place >= 0 {
				return place
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
		if place := t.reach(e.to, below, more); place >= 0 {
			return place
		}
	}
	if n.param > 0 {
		if place := t.reach(n.param, below, more); place >= 0 {
			return place
		}
	}
	return n.wild
}

// reach goes on at a child: with the rest of the path, if there is more.
func (t *Tree) reach(at int32, below string, more bool) int32 {
	if more {
		return t.find(at, below)
	}
	return t.nodes[at].end
}

// literal returns the child of n for a literal segment, or 0. A table has at
// least one free slot.
func (t *Tree) literal(n *node, segment string) int32 {
	mask := uint32(1)<<n.slotBits - 1
	for i := literalHash(segment) & mask; ; i = (i + 1) & mask {
		e := &t.edges[n.edges+i]
		if e.to == 0 || int(e.size) == len(segment) && t.text[e.at:e.at+e.size] == segment {
			return e.to
		}
	}
}

// literalHash mixes what tells the literals of a table apart: the length and
// four of the bytes.
func literalHash(s string) uint32 {
	n := len(s)
	if n == 0 {
		return 0
	}
	h := uint32(n)<<24 ^ uint32(s[0])<<18 ^ uint32(s[n/3])<<12 ^ uint32(s[n/2])<<6 ^ uint32(s[n-1])
	h *= 0x9e3779b1
	return h ^ h>>15
}
