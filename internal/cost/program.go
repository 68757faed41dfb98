package cost

import (
	"slices"
	"strings"
	"sync"
)

// Program is the compiled form of rules: the paths of all fields in one trie, so that a response is scanned once for all
// rules. It is immutable and serves any number of readers at once.
type Program struct {
	rules   Rules
	figures []figure
	nodes   []node    // noNode, the root, and below it a node for each prefix of a path
	numbers int       // slots of fields
	texts   int       // slots of by
	body    bool      // rules.ReadsBody
	filter  *filter   // of the body; nil if none pays
	hidden  []string  // the headers that are not passed on
	reads   bool      // rules.ReadsResponse
	readers sync.Pool // of *Reader
}

// Indices of nodes.
const (
	noNode  = 0 // of what no path leads to
	theRoot = 1
)

// node is a node of the trie.
type node struct {
	parent   int32
	number   int32 // the slot of a field, or noSlot
	text     int32 // the slot of a by, or noSlot
	name     string
	children []int32
	byName   map[string]int32 // the children, if there are many
}

const (
	noSlot = -1
	many   = 8 // children that are looked up in a map
)

// figure is the compiled form of a rule with FromJSON.
type figure struct {
	fields []operand
	by     []int32        // slots of texts: whole paths, the first present one counts
	prices map[string]int // index of value
	values [][]operand
}

// operand is the compiled form of a field.
type operand struct {
	slots    []int32  // of numbers: whole paths, the first present one counts
	labels   []string // of the paths, for people
	weight   Weight
	optional bool
}

// Compile compiles valid rules. It keeps a copy of them.
func Compile(rules Rules) *Program {
	p := &Program{rules: rules.Clone(), nodes: []node{noNode: {number: noSlot, text: noSlot}, theRoot: {number: noSlot, text: noSlot}}}
	p.figures, p.reads = make([]figure, len(rules)), p.rules.ReadsResponse()
	for i := range p.rules {
		switch from := &p.rules[i].From; {
		case from.Source == FromJSON:
			p.figures[i] = p.compile(from)
		case from.Source == FromHeader && !from.Expose:
			p.hidden = append(p.hidden, from.Header)
		}
	}
	for i := range p.nodes {
		n := &p.nodes[i]
		if len(n.children) < many {
			continue
		}
		n.byName = map[string]int32{}
		for _, c := range n.children {
			n.byName[p.nodes[c].name] = c
		}
	}
	if p.body = p.rules.ReadsBody(); p.body {
		p.filter = newFilter(p)
	}
	return p
}

func (p *Program) compile(from *From) figure {
	names := map[string]int{} // how many paths of the rule end in a segment
	seen := map[string]bool{}
	for path := range from.paths() {
		if !seen[path] {
			seen[path] = true
			names[lastSegment(path)]++
		}
	}
	f := figure{fields: p.operands(from.JSON, names), prices: map[string]int{}}
	if from.By == "" {
		return f
	}
	paths, _, err := parseField(from.By)
	if err != nil {
		panic("cost: " + err.Error()) // the rules are valid
	}
	for _, path := range paths {
		n := &p.nodes[p.add(path)]
		if n.text == noSlot {
			n.text = int32(p.texts)
			p.texts++
		}
		f.by = append(f.by, n.text)
	}
	for i, price := range from.Prices {
		f.prices[price.Value] = i
		f.values = append(f.values, p.operands(price.Fields, names))
	}
	return f
}

func (p *Program) operands(fields []Field, names map[string]int) []operand {
	list := make([]operand, len(fields))
	for i, f := range fields {
		paths, optional, err := parseField(f.Name)
		if err != nil {
			panic("cost: " + err.Error()) // the rules are valid
		}
		list[i] = operand{weight: f.Weight, optional: optional}
		for _, path := range paths {
			n := &p.nodes[p.add(path)]
			if n.number == noSlot {
				n.number = int32(p.numbers)
				p.numbers++
			}
			list[i].slots = append(list[i].slots, n.number)
			list[i].labels = append(list[i].labels, labelOf(path, names))
		}
	}
	return list
}

// labelOf returns the last segment of a path, or the whole path if others of the rule end in it.
func labelOf(path []string, names map[string]int) string {
	if last := path[len(path)-1]; names[last] == 1 {
		return last
	}
	return strings.Join(path, ".")
}

func lastSegment(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }

// add returns the node of a path.
func (p *Program) add(path []string) int32 {
	at := int32(theRoot)
	for _, name := range path {
		i := slices.IndexFunc(p.nodes[at].children, func(c int32) bool { return p.nodes[c].name == name })
		if i >= 0 {
			at = p.nodes[at].children[i]
			continue
		}
		p.nodes = append(p.nodes, node{parent: at, name: name, number: noSlot, text: noSlot})
		next := int32(len(p.nodes) - 1)
		p.nodes[at].children = append(p.nodes[at].children, next)
		at = next
	}
	return at
}

// child returns the child of a node that has the name, or noNode.
func (p *Program) child(of int32, name []byte) int32 {
	n := &p.nodes[of]
	if n.byName != nil {
		return n.byName[string(name)]
	}
	for _, c := range n.children {
		if p.nodes[c].name == string(name) {
			return c
		}
	}
	return noNode
}

// Rules returns the rules. They must not be changed.
func (p *Program) Rules() Rules { return p.rules }

// ReadsBody reports whether a rule needs the body of the response, so that there must be a Reader.
func (p *Program) ReadsBody() bool { return p != nil && p.body }

// ReadsResponse reports whether a rule needs the response. p may be nil.
func (p *Program) ReadsResponse() bool { return p != nil && p.reads }

// Hidden returns the names of the headers and trailers of the response that are not passed on to the client. p may be nil.
func (p *Program) Hidden() []string {
	if p == nil {
		return nil
	}
	return p.hidden
}
