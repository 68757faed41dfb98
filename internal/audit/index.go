// The index of sealed blocks is a bit-sliced Bloom filter.
//
// Each block has a Summary: its time bounds, the classes of its records, and a Bloom
// filter of the keys, prefixes, gateways and actors that occur in it. The filter is
// partitioned: all bits of an element are in one partition of 512 bits, which its hash
// chooses, so that a query reads one partition. If the filter says no, the block has no such
// record; fewer than one in two hundred of its yes are wrong.
//
// The summaries of 64 blocks are combined to a BlockGroup, whose filters are bit-sliced
// (transposed): for each bit of the filters there is one 64-bit word, with the bit of
// each block. One partition of a group, 4 KiB, therefore answers for 64 blocks with
// 262,144 records.

package audit

import (
	"encoding/binary"
	"errors"
	"math/bits"
)

// The parameters of the filters.
const (
	partitionBits  = 512
	partitionWords = partitionBits / 64
	bitsOfElement  = 6
	bitsForEach    = 12   // least number of bits of a filter for each element
	maxPartitions  = 1024 // the lowest ten bits of the hash choose one
)

// element is the hash of an element of a Bloom filter.
type element uint64

// What elements are of.
const (
	ofPrefix  = 'p'
	ofKey     = 'k'
	ofGateway = 'g'
	ofActor   = 'a'
	// Pairs, because a busy key may never call a busy gateway.
	ofKeyAtGateway    = 'K'
	ofPrefixAtGateway = 'P'
)

// Rare kinds of records have further elements, so that the refused requests of a busy key are found
// as fast as requests of a rarely used key.
const (
	common       = 0
	rareInvalid  = 1
	rareExpired  = 2
	rareScope    = 3
	rareManaging = 4
	rareAddress  = 5
)

func elementOf(field, rare byte, text string) element {
	const prime = 1099511628211 // FNV-1a
	h := uint64(14695981039346656037)
	h = (h ^ uint64(field)) * prime
	h = (h ^ uint64(rare)) * prime
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * prime
	}
	// The high bits of FNV hashes of short texts are similar, so they are mixed.
	h ^= h >> 32
	h *= 0x9e3779b97f4a7c15
	h ^= h >> 29
	h *= 0xbf58476d1ce4e5b9
	return element(h ^ h>>32)
}

// partition returns which of n partitions has the element. n is a power of two.
func (e element) partition(n int) int { return int(e) & (n - 1) }

// each calls f with the index of each of the element's bits in its partition.
func (e element) each(f func(bit uint)) {
	for i := range bitsOfElement {
		f(uint(e>>(10+9*i)) & (partitionBits - 1))
	}
}

// rares returns the marks of the further elements of a record of class c.
func (c class) rares() (marks []byte) {
	switch c.outcome() {
	case KeyInvalid:
		marks = append(marks, rareInvalid)
	case KeyExpired:
		marks = append(marks, rareExpired)
	case ScopeInsufficient:
		marks = append(marks, rareScope)
	case AddressNotAllowed:
		marks = append(marks, rareAddress)
	}
	if c.kind() == Management {
		marks = append(marks, rareManaging)
	}
	return marks
}

// Summary is the index entry of one block.
type Summary struct {
	Number      int64
	First, Last int64 // microseconds since 1970
	classes     uint8 // a bit for each class that occurs
	bits        []uint64
}

// summaryVersion is the first byte of a stored summary.
const summaryVersion = 1

// Summary returns the summary of the block with the given number and the table's records.
func (t *Table) Summary(number int64) *Summary {
	first, last := t.Span()
	s := &Summary{Number: number, First: first.UnixMicro(), Last: last.UnixMicro()}
	var elements []element
	add := func(field byte, written string, set uint8) {
		if written == writtenNothing {
			return
		}
		elements = append(elements, elementOf(field, common, written))
		var done [rareAddress + 1]bool
		for c := range class(classes) {
			if set&(1<<c) == 0 {
				continue
			}
			for _, mark := range c.rares() {
				if !done[mark] {
					done[mark] = true
					elements = append(elements, elementOf(field, mark, written))
				}
			}
		}
	}
	gateways := map[string]uint8{}
	who, sets := t.callersAndClasses()
	for i, c := range who {
		s.classes |= sets[i]
		add(ofPrefix, c.prefix, sets[i])
		add(ofKey, c.key, sets[i])
		if c.gateway != writtenNothing && c.key != writtenNothing {
			add(ofKeyAtGateway, c.key+c.gateway, sets[i])
		}
		if c.gateway != writtenNothing && c.prefix != writtenNothing {
			add(ofPrefixAtGateway, c.prefix+c.gateway, sets[i])
		}
		gateways[c.gateway] |= sets[i]
	}
	for g, set := range gateways {
		add(ofGateway, g, set)
	}
	actors := map[string]uint8{}
	for i := range t.rows {
		if n := t.rows[i].extra; n != 0 {
			actors[actorID(t.extras[n-1].actor)] |= 1 << t.calls.entries[t.rows[i].entry[callColumn]][0]
		}
	}
	for a, set := range actors {
		add(ofActor, string(appendText(nil, a)), set)
	}
	s.fill(elements)
	return s
}

// callersAndClasses returns the callers in the rows, and the set of classes of each.
func (t *Table) callersAndClasses() (who []caller, sets []uint8) {
	all := make([]uint8, len(t.callers.entries))
	for i := range t.rows {
		all[t.rows[i].entry[callerColumn]] |= 1 << t.calls.entries[t.rows[i].entry[callColumn]][0]
	}
	for i, set := range all {
		if set != 0 {
			c, _ := readCaller(t.callers.entries[i])
			who, sets = append(who, c), append(sets, set)
		}
	}
	return who, sets
}

func (s *Summary) fill(elements []element) {
	n := 1
	for n < maxPartitions && n*partitionBits < len(elements)*bitsForEach {
		n *= 2
	}
	s.bits = make([]uint64, n*partitionWords)
	for _, t := range elements {
		at := s.bits[t.partition(n)*partitionWords:]
		t.each(func(bit uint) { at[bit/64] |= 1 << (bit % 64) })
	}
}

func (s *Summary) partitions() int { return len(s.bits) / partitionWords }

// mayMatch reports whether the block may have a record that q matches.
func (s *Summary) mayMatch(q *query) bool {
	if s.classes&q.classes == 0 || !q.overlaps(s.First, s.Last) {
		return false
	}
	for _, t := range q.elements {
		at := s.bits[t.partition(s.partitions())*partitionWords:]
		there := true
		t.each(func(bit uint) { there = there && at[bit/64]&(1<<(bit%64)) != 0 })
		if !there {
			return false
		}
	}
	return true
}

// Marshal returns the stored format of the summary.
func (s *Summary) Marshal() []byte {
	b := make([]byte, 0, 40+8*len(s.bits))
	b = append(b, summaryVersion)
	b = binary.AppendVarint(b, s.Number)
	b = binary.AppendVarint(b, s.First)
	b = binary.AppendVarint(b, s.Last)
	b = append(b, s.classes)
	b = binary.AppendUvarint(b, uint64(s.partitions()))
	for _, w := range s.bits {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}

// ReadSummary parses the format of Marshal.
func ReadSummary(b []byte) (*Summary, error) {
	r := reader{b: b}
	if r.byte() != summaryVersion {
		return nil, errDamaged
	}
	s := &Summary{Number: r.varint(), First: r.varint(), Last: r.varint(), classes: r.byte()}
	n := r.size(maxPartitions)
	if n == 0 || bits.OnesCount(uint(n)) != 1 {
		return nil, errDamaged
	}
	words := r.take(8 * n * partitionWords)
	if err := r.end(); err != nil {
		return nil, err
	}
	s.bits = readWords(words)
	return s, nil
}

func readWords(b []byte) []uint64 {
	words := make([]uint64, len(b)/8)
	for i := range words {
		words[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return words
}

// GroupSize is the number of blocks of a group. Blocks 1 to 64 are group 0.
const GroupSize = 64

// GroupOf returns the number of the group of the block with the given number.
func GroupOf(number int64) int64 { return (number - 1) / GroupSize }

// BlockGroup has the bounds and classes of 64 blocks. The store keeps its bit-sliced
// filters, one row for each partition.
type BlockGroup struct {
	Number      int64
	partitions  int
	first, last [GroupSize]int64
	classes     [GroupSize]uint8
}

// groupVersion is the first byte of a stored group.
const groupVersion = 1

// Fold combines the summaries of a group's 64 blocks, in order. It returns the stored
// formats of the group and of each of its partitions.
func Fold(summaries []*Summary) (head []byte, partitions [][]byte, err error) {
	if len(summaries) != GroupSize {
		return nil, nil, errors.New("an index group must have 64 blocks")
	}
	n := 1
	for i, s := range summaries {
		if s.Number != summaries[0].Number+int64(i) || (s.Number-1)%GroupSize != int64(i) {
			return nil, nil, errors.New("the blocks of an index group must have consecutive numbers")
		}
		n = max(n, s.partitions())
	}
	head = binary.AppendVarint([]byte{groupVersion}, GroupOf(summaries[0].Number))
	head = binary.AppendUvarint(head, uint64(n))
	before := int64(0)
	for _, s := range summaries {
		head = binary.AppendVarint(head, s.First-before)
		head = binary.AppendVarint(head, s.Last-s.First)
		head = append(head, s.classes)
		before = s.First
	}
	for partition := range n {
		var sliced [partitionBits]uint64
		for i, s := range summaries {
			// A filter with fewer partitions is repeated: an element's partition of
			// few is the low bits of its partition of many.
			words := s.bits[(partition&(s.partitions()-1))*partitionWords:][:partitionWords]
			for w, word := range words {
				for ; word != 0; word &= word - 1 {
					sliced[w*64+bits.TrailingZeros64(word)] |= 1 << i
				}
			}
		}
		b := make([]byte, 0, 8*partitionBits)
		for _, w := range &sliced {
			b = binary.LittleEndian.AppendUint64(b, w)
		}
		partitions = append(partitions, b)
	}
	return head, partitions, nil
}

// ReadGroup parses the stored format of a group.
func ReadGroup(b []byte) (*BlockGroup, error) {
	r := reader{b: b}
	if r.byte() != groupVersion {
		return nil, errDamaged
	}
	g := &BlockGroup{Number: r.varint(), partitions: r.size(maxPartitions)}
	if g.partitions == 0 || bits.OnesCount(uint(g.partitions)) != 1 {
		return nil, errDamaged
	}
	first := int64(0)
	for i := range GroupSize {
		first += r.varint()
		g.first[i], g.last[i] = first, first+r.varint()
		g.classes[i] = r.byte()
	}
	return g, r.end()
}

// mayMatch returns the set of blocks that by their times and classes may have a record
// that q matches, a bit for each.
func (g *BlockGroup) mayMatch(q *query) (set uint64) {
	for i := range GroupSize {
		if g.classes[i]&q.classes != 0 && q.overlaps(g.first[i], g.last[i]) {
			set |= 1 << i
		}
	}
	return set
}

// blocksWith returns the set of blocks of a group that may have the element, a bit for
// each. partition is the stored format of the element's partition of the group.
func (e element) blocksWith(partition []byte) (set uint64, err error) {
	if len(partition) != 8*partitionBits {
		return 0, errDamaged
	}
	set = 1<<GroupSize - 1
	e.each(func(bit uint) { set &= binary.LittleEndian.Uint64(partition[8*bit:]) })
	return set, nil
}
