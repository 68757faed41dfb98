package gateway

import (
	"hash/maphash"
	"slices"
	"strings"
)

// table is a persistent hash table of the children of a node whose chains start with a
// literal, by that literal: a trie over the bits of the hash, with buckets of a few edges. The hash
// is seeded, so that nobody can choose literals that collide.
type table[V any] struct {
	edges []edge[V]   // a bucket, in no order
	subs  []*table[V] // 1<<tableBits tables by the next bits of the hash, if there are many
}

// edge leads to a child. hash is the hash of the first segment of the child's chain.
type edge[V any] struct {
	hash uint32
	to   *node[V]
}

const (
	tableBits  = 4
	tableMask  = 1<<tableBits - 1
	maxBucket  = 16 // unless no bits are left
	tableDepth = 32 / tableBits
)

// hashOf returns the hash of a literal segment.
func hashOf(seed maphash.Seed, segment string) uint32 { return uint32(maphash.String(seed, segment)) }

// bucket returns the edges among which those with the hash are.
func (t *table[V]) bucket(hash uint32) []edge[V] {
	for t.subs != nil {
		t = t.subs[hash&tableMask]
		hash >>= tableBits
	}
	return t.edges
}

// editor changes trees. If inPlace is set, no other tree has the nodes, and it changes them in
// place; otherwise it copies them.
type editor[V any] struct {
	seed    maphash.Seed
	inPlace bool
}

// put adds an edge, or, if old is not nil, replaces the edge that leads to old. depth is the number
// of tables above t.
func (e *editor[V]) put(t *table[V], depth int, hash uint32, old, to *node[V]) {
	if t.subs != nil {
		e.inSub(t, depth, hash, func(sub *table[V]) { e.put(sub, depth+1, hash, old, to) })
		return
	}
	if old != nil {
		e.ownEdges(t)
		for i := range t.edges {
			if t.edges[i].to == old {
				t.edges[i].to = to
			}
		}
		return
	}
	if !e.inPlace {
		t.edges = slices.Clip(t.edges)
	}
	if t.edges = append(t.edges, edge[V]{hash, to}); len(t.edges) > maxBucket && depth < tableDepth {
		split(t, depth)
	}
}

// split turns a bucket into a table of buckets. Its edges were copied before.
func split[V any](t *table[V], depth int) {
	t.subs = make([]*table[V], 1<<tableBits)
	for i := range t.subs {
		t.subs[i] = &table[V]{}
	}
	for _, edge := range t.edges {
		sub := t.subs[edge.hash>>(depth*tableBits)&tableMask]
		sub.edges = append(sub.edges, edge)
	}
	t.edges = nil
}

// remove removes the edge that leads to old.
func (e *editor[V]) remove(t *table[V], depth int, hash uint32, old *node[V]) {
	if t.subs == nil {
		e.ownEdges(t)
		t.edges = slices.DeleteFunc(t.edges, func(e edge[V]) bool { return e.to == old })
		return
	}
	e.inSub(t, depth, hash, func(sub *table[V]) { e.remove(sub, depth+1, hash, old) })
	join(t)
}

// join turns a table of buckets into one bucket, if a bucket has room to spare for all edges.
func join[V any](t *table[V]) {
	n := 0
	for _, sub := range t.subs {
		if sub.subs != nil {
			return
		}
		n += len(sub.edges)
	}
	if n > maxBucket/2 {
		return
	}
	edges := make([]edge[V], 0, n)
	for _, sub := range t.subs {
		edges = append(edges, sub.edges...)
	}
	t.edges, t.subs = edges, nil
}

// inSub changes the table of t that has the hash.
func (e *editor[V]) inSub(t *table[V], depth int, hash uint32, change func(*table[V])) {
	i := hash >> (depth * tableBits) & tableMask
	if !e.inPlace {
		t.subs = slices.Clone(t.subs)
		sub := *t.subs[i]
		t.subs[i] = &sub
	}
	change(t.subs[i])
}

func (e *editor[V]) ownEdges(t *table[V]) {
	if !e.inPlace {
		t.edges = slices.Clone(t.edges)
	}
}

// literal returns the child of b whose chain starts with the literal segment, or nil.
func (e *editor[V]) literal(b *branches[V], segment string, hash uint32) *node[V] {
	for _, edge := range b.literals.bucket(hash) {
		if edge.hash != hash {
			continue
		}
		if first, _ := cutChain(edge.to.chain); first == segment {
			return edge.to
		}
	}
	return nil
}

// each calls f for every child.
func (t *table[V]) each(f func(*node[V])) {
	for _, sub := range t.subs {
		sub.each(f)
	}
	for _, edge := range t.edges {
		f(edge.to)
	}
}

// textEdge leads to a child whose chain starts with a segment of text and parameters. Only
// segments for which (endsOf(segment)^ends)&mask is 0 can match.
type textEdge[V any] struct {
	ends, mask uint64
	to         *node[V]
}

func newTextEdge[V any](to *node[V]) textEdge[V] {
	segment, _ := cutChain(to.chain)
	first, last := segment[:strings.IndexByte(segment, '{')], segment[strings.LastIndexByte(segment, '}')+1:]
	e := textEdge[V]{to: to}
	for i := range min(len(first), 4) {
		e.ends |= uint64(first[i]) << (8 * i)
		e.mask |= 0xff << (8 * i)
	}
	for i := range min(len(last), 4) {
		e.ends |= uint64(last[len(last)-1-i]) << (56 - 8*i)
		e.mask |= 0xff << (56 - 8*i)
	}
	return e
}

// endsOf returns the first four bytes of a segment in the lower half of a number, and the
// last four in the upper half.
func endsOf(segment string) (ends uint64) {
	n := len(segment)
	for i := range min(n, 4) {
		ends |= uint64(segment[i])<<(8*i) | uint64(segment[n-1-i])<<(56-8*i)
	}
	return ends
}

// compareTexts orders segments of text and parameters from the most to the least specific:
// more text first, then fewer parameters. Ties are broken by the text, so the order does not
// depend on the order of insertion. It returns 0 if the segments match the same texts.
func compareTexts(a, b string) int {
	a, b = withoutNames(a), withoutNames(b)
	paramsA, paramsB := strings.Count(a, "{"), strings.Count(b, "{")
	switch textA, textB := len(a)-2*paramsA, len(b)-2*paramsB; {
	case textA != textB:
		return textB - textA
	case paramsA != paramsB:
		return paramsA - paramsB
	default:
		return strings.Compare(a, b)
	}
}

// withoutNames returns a segment with {} for each parameter.
func withoutNames(segment string) string {
	var out []byte
	for {
		open := strings.IndexByte(segment, '{')
		if open < 0 {
			return string(append(out, segment...))
		}
		out = append(append(out, segment[:open]...), "{}"...)
		segment = segment[open+strings.IndexByte(segment[open:], '}')+1:]
	}
}
