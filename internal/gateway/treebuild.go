package gateway

import (
	"maps"
	"slices"
	"strings"
)

// sapling is a node while its tree is built.
type sapling struct {
	literals map[string]*sapling
	texts    []saplingText // the most specific first
	param    *sapling
	wild     int
	end      int
}

type saplingText struct {
	segment segment
	to      *sapling
}

func newSapling() *sapling { return &sapling{wild: -1, end: -1} }

// NewTree returns the tree of templates. place gives each template's place: a
// number from 0, equal for templates that match the same paths.
func NewTree(templates []Template) (t *Tree, place []int) {
	t = &Tree{}
	root := newSapling()
	place = make([]int, len(templates))
	for i := range templates {
		place[i] = t.insert(root, &templates[i])
	}
	var text strings.Builder
	t.plant(root, &text)
	t.text = text.String()
	return t, place
}

// insert adds a template and returns its place.
func (t *Tree) insert(n *sapling, template *Template) int {
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
func (n *sapling) child(s *segment) *sapling {
	switch s.kind {
	case literalSegment:
		c := n.literals[s.texts[0]]
		if c == nil {
			c = newSapling()
			if n.literals == nil {
				n.literals = map[string]*sapling{}
			}
			n.literals[s.texts[0]] = c
		}
		return c
	case paramSegment:
		if n.param == nil {
			n.param = newSapling()
		}
		return n.param
	default:
		i, found := slices.BinarySearchFunc(n.texts, s, func(e saplingText, s *segment) int { return e.segment.compare(s) })
		if !found {
			n.texts = slices.Insert(n.texts, i, saplingText{segment: *s, to: newSapling()})
		}
		return n.texts[i].to
	}
}

// plant appends the node s and all below it to the tree, and returns its index.
func (t *Tree) plant(s *sapling, text *strings.Builder) int32 {
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
		e.to = t.plant(s.literals[literal], text)
		mask := uint32(1)<<n.slotBits - 1
		i := literalHash(literal) & mask
		for t.edges[n.edges+i].to != 0 {
			i = (i + 1) & mask
		}
		t.edges[n.edges+i] = e
	}
	for i := range s.texts {
		t.texts[int(n.texts)+i] = textEdge{texts: s.texts[i].segment.texts, to: t.plant(s.texts[i].to, text)}
	}
	if s.param != nil {
		n.param = t.plant(s.param, text)
	}
	t.nodes[at] = n
	return int32(at)
}
