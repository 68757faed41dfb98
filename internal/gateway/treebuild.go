package gateway

import (
	"maps"
	"slices"
	"strings"
)

// buildNode is a node of a tree that is being built.
type buildNode struct {
	literals map[string]*buildNode
	texts    []buildText // the most specific first
	param    *buildNode
	wild     int
	end      int
}

type buildText struct {
	segment segment
	to      *buildNode
}

func newBuildNode() *buildNode { return &buildNode{wild: -1, end: -1} }

// NewTree returns the tree of the templates. patterns has the number of each template's
// pattern, counted from 0; it is equal for templates that match the same paths.
func NewTree(templates []Template) (t *Tree, patterns []int) {
	t = &Tree{}
	root := newBuildNode()
	patterns = make([]int, len(templates))
	for i := range templates {
		patterns[i] = t.insert(root, &templates[i])
	}
	var text strings.Builder
	t.freeze(root, &text)
	t.text = text.String()
	return t, patterns
}

// insert adds a template and returns the number of its pattern.
func (t *Tree) insert(n *buildNode, template *Template) int {
	for i := range template.segments {
		s := &template.segments[i]
		if s.kind == wildcardSegment {
			return t.number(&n.wild)
		}
		n = n.child(s)
	}
	return t.number(&n.end)
}

// number gives a pattern its number, unless it has one.
func (t *Tree) number(pattern *int) int {
	if *pattern < 0 {
		*pattern = t.patterns
		t.patterns++
	}
	return *pattern
}

// child returns the child of n for the segment s, and creates it if necessary.
func (n *buildNode) child(s *segment) *buildNode {
	switch s.kind {
	case literalSegment:
		c := n.literals[s.texts[0]]
		if c == nil {
			c = newBuildNode()
			if n.literals == nil {
				n.literals = map[string]*buildNode{}
			}
			n.literals[s.texts[0]] = c
		}
		return c
	case paramSegment:
		if n.param == nil {
			n.param = newBuildNode()
		}
		return n.param
	default:
		i, found := slices.BinarySearchFunc(n.texts, s, func(e buildText, s *segment) int { return e.segment.compare(s) })
		if !found {
			n.texts = slices.Insert(n.texts, i, buildText{segment: *s, to: newBuildNode()})
		}
		return n.texts[i].to
	}
}

// freeze appends s and all nodes below it to the tree and returns the index of s.
func (t *Tree) freeze(s *buildNode, text *strings.Builder) int32 {
	at := len(t.nodes)
	n := node{edges: uint32(len(t.edges)), slotBits: noEdges, texts: uint32(len(t.texts)), textCount: uint32(len(s.texts)), param: -1, wild: int32(s.wild), end: int32(s.end)}
	t.nodes = append(t.nodes, n)
	if len(s.literals) > 0 {
		n.slotBits = 1
		for 1<<n.slotBits < 2*len(s.literals) {
			n.slotBits++
		}
		t.edges = append(t.edges, make([]edge, 1<<n.slotBits)...)
	}
	t.texts = append(t.texts, make([]textEdge, len(s.texts))...)
	for _, literal := range slices.Sorted(maps.Keys(s.literals)) {
		e := edge{at: uint32(text.Len()), size: uint32(len(literal))}
		text.WriteString(literal)
		e.to = t.freeze(s.literals[literal], text)
		mask := uint32(1)<<n.slotBits - 1
		i := literalHash(literal) & mask
		for t.edges[n.edges+i].to != 0 {
			i = (i + 1) & mask
		}
		t.edges[n.edges+i] = e
	}
	for i := range s.texts {
		t.texts[int(n.texts)+i] = textEdge{texts: s.texts[i].segment.texts, to: t.freeze(s.texts[i].to, text)}
	}
	if s.param != nil {
		n.param = t.freeze(s.param, text)
	}
	t.nodes[at] = n
	return int32(at)
}
