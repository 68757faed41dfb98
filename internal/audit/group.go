package audit

import (
	"encoding/binary"
	"errors"
	"math/bits"
)

// GroupSize is how many blocks a group has. Blocks 1 to 64 are the first group,
// number 0.
const GroupSize = 64

// GroupOf returns the number of the group of a block.
func GroupOf(number int64) int64 { return (number - 1) / GroupSize }

// Group holds the summaries of 64 blocks, turned: for each bit of their filters
// one word with the 64 blocks' bits. So one segment of it, 4 KiB, tells which of
// 262,144 records' blocks may hold a term.
type Group struct {
	Number      int64
	segments    int
	first, last [GroupSize]int64
	classes     [GroupSize]uint8
}

// groupVersion begins a group on disk.
const groupVersion = 1

// Fold makes a group of the summaries of its blocks, in order: its head and its
// segments as they are stored.
func Fold(summaries []*Summary) (head []byte, segments [][]byte, err error) {
	if len(summaries) != GroupSize {
		return nil, nil, errors.New("a group has 64 blocks")
	}
	n := 1
	for i, s := range summaries {
		if s.Number != summaries[0].Number+int64(i) || (s.Number-1)%GroupSize != int64(i) {
			return nil, nil, errors.New("the blocks of a group do not follow each other")
		}
		n = max(n, s.segments())
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
	for segment := range n {
		var turned [segmentBits]uint64
		for i, s := range summaries {
			// A filter of fewer segments repeats: a term's segment among more
			// ends with the bits of that among fewer.
			words := s.bits[(segment&(s.segments()-1))*segmentWords:][:segmentWords]
			for w, word := range words {
				for ; word != 0; word &= word - 1 {
					turned[w*64+bits.TrailingZeros64(word)] |= 1 << i
				}
			}
		}
		b := make([]byte, 0, 8*segmentBits)
		for _, w := range &turned {
			b = binary.LittleEndian.AppendUint64(b, w)
		}
		segments = append(segments, b)
	}
	return head, segments, nil
}

// ReadGroup reads the head of a group.
func ReadGroup(b []byte) (*Group, error) {
	r := reader{b: b}
	if r.byte() != groupVersion {
		return nil, errDamaged
	}
	g := &Group{Number: r.varint(), segments: r.size(maxSegments)}
	if g.segments == 0 || bits.OnesCount(uint(g.segments)) != 1 {
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

// may returns the blocks that by their bounds may hold something that the filter
// lets pass, a bit for each.
func (g *Group) may(q *query) (set uint64) {
	for i := range GroupSize {
		if g.classes[i]&q.classes != 0 && q.overlaps(g.first[i], g.last[i]) {
			set |= 1 << i
		}
	}
	return set
}

// holding returns the blocks that may hold a term, by the segment that it
// stands in.
func (t term) holding(segment []byte) (set uint64, err error) {
	if len(segment) != 8*segmentBits {
		return 0, errDamaged
	}
	set = 1<<GroupSize - 1
	t.each(func(bit uint) { set &= binary.LittleEndian.Uint64(segment[8*bit:]) })
	return set, nil
}
