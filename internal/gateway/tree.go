package gateway

import (
	"slices"
	"strings"
)

// Tree finds the most specific of a set of templates that matches a path
// (contract, 4.2). It is immutable.
//
// Each node stands for the first segments of some templates. A search tries a
// node's children in falling order of how specific they are and returns to the
// next when one leads to no template. Since the nodes form a tree, a search
// enters each at most once: its cost is bounded by the nodes of the depth of the
// path's segments, whatever the path, and not by the number of ways in which
// templates could combine.
type Tree struct {
	root   node
	places int
}

// node is one place in the tree. Places are -1 where there is none.
type node struct {
	// Literal children: up to fewLiterals in few, otherwise in many.
	few   []literalEdge
	many  map[string]*node
	texts []textEdge // the most specific first
	param *node
	wild  int // the place of the template that goes on with a wildcard
	end   int // the place of the template that ends here
}

type literalEdge struct {
	text string
	to   *node
}

type textEdge struct {
	segment segment
	to      *node
}

// fewLiterals is up to how many children a comparison with each is faster than
// a map.
const fewLiterals = 6

// NewTree returns the tree of templates. place gives each template's place: a
// number from 0, equal for templates that match the same paths.
func NewTree(templates []Template) (t *Tree, place []int) {
	t = &Tree{root: node{wild: -1, end: -1}}
	place = make([]int, len(templates))
	for i := range templates {
		place[i] = t.insert(&templates[i])
	}
	t.root.pack()
	return t, place
}

// Places returns how many places the tree has.
func (t *Tree) Places() int { return t.places }

// insert adds a template and returns its place.
func (t *Tree) insert(template *Template) int {
	n := &t.root
	for i := range template.segments {
		s := &template.segments[i]
		if s.kind == wildcardSegment {
			return t.claim(&n.wild)
		}
		n = n.child(s)
	}
	return t.claim(&n.end)
}

func (t *Tree) claim(place *int) int {
	if *place < 0 {
		*place = t.places
		t.places++
	}
	return *place
}

// child returns the child of n for the segment s, made if there is none.
func (n *node) child(s *segment) *node {
	fresh := func() *node { return &node{wild: -1, end: -1} }
	switch s.kind {
	case literalSegment:
		if n.many == nil {
			n.many = map[string]*node{}
		}
		c := n.many[s.texts[0]]
		if c == nil {
			c = fresh()
			n.many[strings.Clone(s.texts[0])] = c
		}
		return c
	case paramSegment:
		if n.param == nil {
			n.param = fresh()
		}
		return n.param
	default:
		i, found := slices.BinarySearchFunc(n.texts, s, func(e textEdge, s *segment) int { return e.segment.compare(s) })
		if !found {
			n.texts = slices.Insert(n.texts, i, textEdge{segment: *s, to: fresh()})
		}
		return n.texts[i].to
	}
}

// pack brings the literal children into the form that find reads.
func (n *node) pack() {
	for text, c := range n.many {
		c.pack()
		n.few = append(n.few, literalEdge{text, c})
	}
	if len(n.few) > fewLiterals {
		n.few = nil
	} else {
		n.many = nil
	}
	for _, e := range n.texts {
		e.to.pack()
	}
	if n.param != nil {
		n.param.pack()
	}
}

// Find returns the place of the most specific template that matches the path,
// which is in the normal form of NormalizePath; -1 if none does. It does not
// allocate.
func (t *Tree) Find(path string) int {
	if path == "" || path[0] != '/' {
		return -1
	}
	return t.root.find(path[1:])
}

// find searches below n; rest is what follows the slash after n's segments.
func (n *node) find(rest string) int {
	text, below, more := rest, "", false
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		text, below, more = rest[:i], rest[i+1:], true
	}
	if c := n.literal(text); c != nil {
		if place := c.reach(below, more); place >= 0 {
			return place
		}
	}
	if text != "" {
		for i := range n.texts {
			e := &n.texts[i]
			if !matchTexts(e.segment.texts, text) {
				continue
			}
			if place := e.to.reach(below, more); place >= 0 {
				return place
			}
		}
		if n.param != nil {
			if place := n.param.reach(below, more); place >= 0 {
				return place
			}
		}
	}
	return n.wild
}

// reach goes on at the child n: with the rest of the path, if there is more.
func (n *node) reach(below string, more bool) int {
	if more {
		return n.find(below)
	}
	return n.end
}

func (n *node) literal(text string) *node {
	if n.many != nil {
		return n.many[text]
	}
	for i := range n.few {
		if n.few[i].text == text {
			return n.few[i].to
		}
	}
	return nil
}
