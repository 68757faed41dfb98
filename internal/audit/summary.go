package audit

import (
	"encoding/binary"
	"math/bits"
	"time"

	"github.com/keygate/keygate/internal/id"
)

// A filter in bits answers whether a block may hold records of a key, prefix,
// gateway or actor without a look at the block: no is certain, yes is wrong less
// than once in two hundred times. It is made of segments; all bits of a term stand
// in one, so that a question reads one segment.
const (
	segmentBits  = 512
	segmentWords = segmentBits / 64
	bitsOfTerm   = 6
	bitsForEach  = 12   // of the filter, for each term, at least
	maxSegments  = 1024 // a term's lowest ten bits choose one
)

// term is the hash of what a filter asks for.
type term uint64

// The fields that terms are of.
const (
	ofPrefix  = 'p'
	ofKey     = 'k'
	ofGateway = 'g'
	ofActor   = 'a'
	// Pairs: a busy key may never call a busy gateway.
	ofKeyAtGateway    = 'K'
	ofPrefixAtGateway = 'P'
)

// Records that are rare among others have terms of their own beside those of all,
// so that the refusals of a busy key are found as fast as a rare key.
const (
	common       = 0
	rareInvalid  = 1
	rareExpired  = 2
	rareScope    = 3
	rareManaging = 4
)

func termOf(field, rare byte, text string) term {
	const prime = 1099511628211 // FNV-1a
	h := uint64(14695981039346656037)
	h = (h ^ uint64(field)) * prime
	h = (h ^ uint64(rare)) * prime
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * prime
	}
	// FNV leaves the high bits of short texts alike.
	h ^= h >> 32
	h *= 0x9e3779b97f4a7c15
	h ^= h >> 29
	h *= 0xbf58476d1ce4e5b9
	return term(h ^ h>>32)
}

// segment returns which of n segments, a power of two, the term stands in.
func (t term) segment(n int) int { return int(t) & (n - 1) }

// each calls f for the places of the term in its segment.
func (t term) each(f func(bit uint)) {
	for i := range bitsOfTerm {
		f(uint(t>>(10+9*i)) & (segmentBits - 1))
	}
}

// terms returns what a block must hold for the filter to find something in it.
func (f *Filter) terms() (all []term) {
	rare := byte(common)
	switch {
	case f.Outcome == KeyInvalid:
		rare = rareInvalid
	case f.Outcome == KeyExpired:
		rare = rareExpired
	case f.Outcome == ScopeInsufficient:
		rare = rareScope
	case f.Kind == Management:
		rare = rareManaging
	}
	for _, want := range [...]struct {
		field   byte
		written string
	}{{ofPrefix, f.prefix()}, {ofKey, f.key()}, {ofGateway, f.gateway()}, {ofActor, string(appendText(nil, f.Actor))}} {
		if want.written == writtenNothing {
			continue
		}
		all = append(all, termOf(want.field, rare, want.written))
		if f.GatewayID == "" {
			continue
		}
		switch want.field {
		case ofKey:
			all = append(all, termOf(ofKeyAtGateway, rare, want.written+f.gateway()))
		case ofPrefix:
			all = append(all, termOf(ofPrefixAtGateway, rare, want.written+f.gateway()))
		}
	}
	return all
}

// prefix, key and gateway return what the filter asks for as dictionaries write
// it.
func (f *Filter) prefix() string  { return string(appendText(nil, f.KeyPrefix)) }
func (f *Filter) key() string     { return string(appendID(nil, id.Key, f.KeyID)) }
func (f *Filter) gateway() string { return string(appendID(nil, id.Gateway, f.GatewayID)) }

// rares returns the marks of a record's terms beside those of all.
func (c class) rares() (marks []byte) {
	switch c.outcome() {
	case KeyInvalid:
		marks = append(marks, rareInvalid)
	case KeyExpired:
		marks = append(marks, rareExpired)
	case ScopeInsufficient:
		marks = append(marks, rareScope)
	}
	if c.kind() == Management {
		marks = append(marks, rareManaging)
	}
	return marks
}

// Summary is what is known of a block without a look at it.
type Summary struct {
	Number      int64
	First, Last int64 // microseconds since 1970
	classes     uint8 // a bit for each class that occurs
	bits        []uint64
}

// summaryVersion begins a summary on disk.
const summaryVersion = 1

// Summary tells of the records in the table.
func (t *Table) Summary(number int64) *Summary {
	first, last := t.Span()
	s := &Summary{Number: number, First: first.UnixMicro(), Last: last.UnixMicro()}
	var terms []term
	add := func(field byte, written string, set uint8) {
		if written == writtenNothing {
			return
		}
		terms = append(terms, termOf(field, common, written))
		var done [rareManaging + 1]bool
		for c := range class(classes) {
			if set&(1<<c) == 0 {
				continue
			}
			for _, mark := range c.rares() {
				if !done[mark] {
					done[mark] = true
					terms = append(terms, termOf(field, mark, written))
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
			actors[t.extras[n-1].actor] |= 1 << t.calls.entries[t.rows[i].entry[callColumn]][0]
		}
	}
	for a, set := range actors {
		add(ofActor, string(appendText(nil, a)), set)
	}
	s.fill(terms)
	return s
}

// callersAndClasses returns who occurs in the rows, and with which classes.
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

func (s *Summary) fill(terms []term) {
	n := 1
	for n < maxSegments && n*segmentBits < len(terms)*bitsForEach {
		n *= 2
	}
	s.bits = make([]uint64, n*segmentWords)
	for _, t := range terms {
		at := s.bits[t.segment(n)*segmentWords:]
		t.each(func(bit uint) { at[bit/64] |= 1 << (bit % 64) })
	}
}

func (s *Summary) segments() int { return len(s.bits) / segmentWords }

// may reports whether the block may hold something that the filter lets pass.
func (s *Summary) may(q *query) bool {
	if s.classes&q.classes == 0 || !q.overlaps(s.First, s.Last) {
		return false
	}
	for _, t := range q.terms {
		at := s.bits[t.segment(s.segments())*segmentWords:]
		there := true
		t.each(func(bit uint) { there = there && at[bit/64]&(1<<(bit%64)) != 0 })
		if !there {
			return false
		}
	}
	return true
}

// Marshal returns the summary as it is stored.
func (s *Summary) Marshal() []byte {
	b := make([]byte, 0, 40+8*len(s.bits))
	b = append(b, summaryVersion)
	b = binary.AppendVarint(b, s.Number)
	b = binary.AppendVarint(b, s.First)
	b = binary.AppendVarint(b, s.Last)
	b = append(b, s.classes)
	b = binary.AppendUvarint(b, uint64(s.segments()))
	for _, w := range s.bits {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}

// ReadSummary reads what Marshal wrote.
func ReadSummary(b []byte) (*Summary, error) {
	r := reader{b: b}
	if r.byte() != summaryVersion {
		return nil, errDamaged
	}
	s := &Summary{Number: r.varint(), First: r.varint(), Last: r.varint(), classes: r.byte()}
	n := r.size(maxSegments)
	if n == 0 || bits.OnesCount(uint(n)) != 1 {
		return nil, errDamaged
	}
	words := r.take(8 * n * segmentWords)
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

// query is a filter as blocks are asked by it.
type query struct {
	filter       Filter
	classes      uint8
	terms        []term
	since, until int64 // microseconds; until is excluded

	prefix, key, gateway string // as dictionaries write them
}

func newQuery(f Filter) *query {
	q := &query{filter: f, classes: f.classes(), terms: f.terms(), since: -1 << 63, until: 1<<63 - 1,
		prefix: f.prefix(), key: f.key(), gateway: f.gateway()}
	if !f.Since.IsZero() {
		q.since = ceilMicro(f.Since)
	}
	if !f.Until.IsZero() {
		q.until = ceilMicro(f.Until)
	}
	return q
}

// ceilMicro rounds up: records have whole microseconds.
func ceilMicro(t time.Time) int64 {
	us := t.UnixMicro()
	if t.After(time.UnixMicro(us)) {
		us++
	}
	return us
}

func (q *query) overlaps(first, last int64) bool { return last >= q.since && first < q.until }

// matches calls f with the number of each record that passes, the last first,
// until f returns false.
func (q *query) matches(v *View, f func(i int) (bool, error)) error {
	if len(v.times) == 0 || !q.overlaps(v.times[0], v.times[len(v.times)-1]) {
		return nil
	}
	callers := make([]bool, len(v.callers))
	some := false
	passes := func(want, is string) bool { return want == writtenNothing || want == is }
	for i := range v.callers {
		c := &v.callers[i]
		callers[i] = passes(q.prefix, c.prefix) && passes(q.key, c.key) && passes(q.gateway, c.gateway)
		some = some || callers[i]
	}
	if !some {
		return nil
	}
	for i := v.n - 1; i >= 0; i-- {
		at := v.times[i]
		if at < q.since {
			break
		}
		if at >= q.until || !callers[v.caller[i]] || q.classes&(1<<v.calls[v.call[i]].class) == 0 {
			continue
		}
		if q.filter.Actor != "" {
			if err := v.All(); err != nil {
				return err
			}
			if more := v.rest.extras[i]; more == nil || more.actor != q.filter.Actor {
				continue
			}
		}
		if more, err := f(i); err != nil || !more {
			return err
		}
	}
	return nil
}
