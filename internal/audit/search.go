package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"math/bits"
	"strconv"
	"time"
)

// Chunk is a part of an account's open end: records as Table.Encode gives them
// without packing.
type Chunk struct {
	ID        int64 // the store gives it: rising
	AccountID string
	Records   int
	First     time.Time
	Content   []byte
}

// Open is the end of an account's log that is not sealed yet, and what it is to
// be chained to.
type Open struct {
	Chain   Chain
	Chunks  []Chunk    // in the order in which they came
	Records []Record   // management records, each written by its change
	Recent  []*Summary // of the blocks behind the last whole group, in order
}

// Part names what Open is to be filled with beside its Chain.
type Part uint8

// The parts.
const (
	WithRecords   Part = 1 << iota // Chunks and Records
	WithSummaries                  // Recent
)

// Source is one account's log as a store keeps it, in one state.
type Source interface {
	Open(ctx context.Context, parts Part) (*Open, error)
	// Groups returns up to limit groups whose number is below before, the last
	// first.
	Groups(ctx context.Context, before int64, limit int) ([]*Group, error)
	// Segments calls f with one segment of each group from first to last that
	// has so many, in any order. f must not keep it.
	Segments(ctx context.Context, segment int, first, last int64, f func(group int64, bits []byte) error) error
	// Block returns a block with its times, number of records and content; nil if
	// retention has removed it.
	Block(ctx context.Context, number int64) (*Block, error)
}

// Groups are read by more and more at once: what is found soon costs little, and
// what is not there few reads. 64 are 16 million records.
const (
	groupsAtFirst = 2
	groupsAtOnce  = 64
)

// Search returns up to limit records that the filter lets pass, newest first,
// after the place that Record.Place of the last one tells; "" is the beginning.
//
// A block is read only if its bounds and its filter say that it may hold
// something. What they cannot tell is whether two things that occur in a block
// occur together, as a key and a success: such a filter costs about 0.2 ms for each
// block that has both and finds nothing.
func (c *Codec) Search(ctx context.Context, src Source, accountID string, f Filter, after string, limit int) ([]Record, error) {
	if limit <= 0 {
		return nil, nil
	}
	s := search{ctx: ctx, codec: c, src: src, account: accountID, query: newQuery(f), limit: limit}
	if after != "" {
		var err error
		if s.after, err = readPlace(after); err != nil {
			return nil, err
		}
	}
	if err := s.run(); err != nil {
		return nil, fmt.Errorf("search the audit log of %s: %w", accountID, err)
	}
	return s.found, nil
}

type search struct {
	ctx     context.Context
	codec   *Codec
	src     Source
	account string
	query   *query
	limit   int
	after   *place // nil at the beginning
	chain   Chain
	found   []Record
}

func (s *search) full() bool { return len(s.found) == s.limit }

func (s *search) run() error {
	if s.after == nil || s.after.open {
		if err := s.openEnd(); err != nil || s.full() {
			return err
		}
	}
	o, err := s.src.Open(s.ctx, WithSummaries)
	if err != nil {
		return err
	}
	s.chain = o.Chain
	for i := len(o.Recent) - 1; i >= 0 && !s.full(); i-- {
		if sum := o.Recent[i]; s.wants(sum.Number) && sum.may(s.query) {
			if err := s.block(sum.Number); err != nil {
				return err
			}
		}
	}
	before := GroupOf(s.chain.Head.Number+1) + 1
	if s.after != nil && !s.after.open {
		before = min(before, GroupOf(s.after.block)+1)
	}
	for n := groupsAtFirst; !s.full(); n = min(4*n, groupsAtOnce) {
		groups, err := s.src.Groups(s.ctx, before, n)
		if err != nil {
			return err
		}
		if err := s.groups(groups); err != nil {
			return err
		}
		if len(groups) < n {
			break
		}
		before = groups[n-1].Number
	}
	if !s.full() {
		s.cut()
	}
	return nil
}

// wants reports whether a block is one that the list has not passed.
func (s *search) wants(number int64) bool {
	if number <= s.chain.Base.Number {
		return false
	}
	return s.after == nil || s.after.open || number <= s.after.block
}

// openEnd lists what is not sealed.
func (s *search) openEnd() error {
	o, err := s.src.Open(s.ctx, WithRecords)
	if err != nil {
		return err
	}
	t := &Table{}
	if _, err := s.codec.Gather(t, o); err != nil {
		return err
	}
	bound := o.Chain.Head.Number + 1
	for from := t.Len(); from > 0 && !s.full(); {
		part := t.part(max(0, from-MaxRecords), from)
		from -= part.Len()
		content, err := part.Encode(nil)
		if err != nil {
			return err
		}
		v, err := s.codec.Open(content)
		if err != nil {
			return err
		}
		err = s.list(v, func(i int) (*place, error) {
			k := part.key(&part.rows[i])
			if s.after != nil && k.compare(&s.after.key) >= 0 {
				return nil, nil
			}
			p := &place{open: true, bounded: true, bound: bound, key: k}
			if s.after != nil {
				p.bound = s.after.bound
			}
			return p, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// groups lists what the blocks of groups hold; the groups stand the last first.
func (s *search) groups(groups []*Group) error {
	sets := make(map[int64]uint64, len(groups))
	for _, g := range groups {
		if set := g.may(s.query); set != 0 {
			sets[g.Number] = set
		}
	}
	for _, t := range s.query.terms {
		if err := s.narrow(groups, sets, t); err != nil {
			return err
		}
	}
	for _, g := range groups {
		for set := sets[g.Number]; set != 0 && !s.full(); {
			i := 63 - bits.LeadingZeros64(set)
			set &^= 1 << i
			if number := g.Number*GroupSize + int64(i) + 1; s.wants(number) {
				if err := s.block(number); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// narrow leaves the blocks in sets that may hold the term. Groups with the same
// number of segments have it in the same one, and are asked together.
func (s *search) narrow(groups []*Group, sets map[int64]uint64, t term) error {
	type span struct{ first, last int64 }
	spans := map[int]span{}
	in := map[int64]int{}
	for _, g := range groups {
		if sets[g.Number] == 0 {
			continue
		}
		n := t.segment(g.segments)
		in[g.Number] = n
		at, ok := spans[n]
		if !ok {
			at.last = g.Number
		}
		at.first = g.Number
		spans[n] = at
	}
	for n, at := range spans {
		err := s.src.Segments(s.ctx, n, at.first, at.last, func(group int64, bits []byte) error {
			if wanted, ok := in[group]; !ok || wanted != n {
				return nil
			}
			delete(in, group)
			set, err := t.holding(bits)
			sets[group] &= set
			return err
		})
		if err != nil {
			return err
		}
	}
	if len(in) > 0 {
		return errDamaged // a group lacks a segment
	}
	return nil
}

// block lists what a block holds.
func (s *search) block(number int64) error {
	if err := s.ctx.Err(); err != nil {
		return err
	}
	b, err := s.src.Block(s.ctx, number)
	if err != nil || b == nil {
		return err
	}
	before := len(s.found)
	if s.read(b) != nil {
		s.found = s.found[:before]
		s.damaged(b)
	}
	return nil
}

// read lists what a block holds. It fails if the block is damaged.
func (s *search) read(b *Block) error {
	v, err := s.codec.Open(b.Content)
	if err != nil {
		return err
	}
	bounded := s.bounded(b)
	return s.list(v, func(i int) (*place, error) {
		if s.after != nil && !s.after.open && b.Number == s.after.block && i >= s.after.index {
			return nil, nil
		}
		p := &place{block: b.Number, index: i}
		if bounded {
			if k, err := v.key(i); err != nil || k.compare(&s.after.key) >= 0 {
				return nil, err
			}
			p.bounded, p.bound, p.key = true, s.after.bound, s.after.key
		}
		return p, nil
	})
}

// bounded reports whether the list still is in what was open when its first page
// was read.
func (s *search) bounded(b *Block) bool {
	return s.after != nil && s.after.bounded && b.Number >= s.after.bound
}

// damaged lists a gap in the place of a block that cannot be read.
func (s *search) damaged(b *Block) {
	if s.after != nil && !s.after.open && b.Number == s.after.block {
		return // the page before ended with it
	}
	p := &place{block: b.Number}
	if s.bounded(b) {
		if b.Last.UnixMicro() >= s.after.key.time {
			return
		}
		p.bounded, p.bound, p.key = true, s.after.bound, s.after.key
	}
	s.gap(gapRecord(s.account, int64(b.Records), b.First, b.Last, fmt.Sprintf("block %d is damaged", b.Number)), p)
}

// gap lists a record that tells of a gap, if the filter lets it pass.
func (s *search) gap(r *Record, p *place) {
	at := r.Time.UnixMicro()
	if q := s.query; len(q.terms) > 0 || !q.overlaps(at, at) {
		return
	}
	if c, _ := classOf(r.Kind, r.Outcome); s.query.classes&(1<<c) == 0 {
		return
	}
	r.Place = p.String()
	s.found = append(s.found, *r)
}

// list adds the records of v that pass, the last first; at tells the place of
// each, nil if the list has passed it.
func (s *search) list(v *View, at func(i int) (*place, error)) error {
	return s.query.matches(v, func(i int) (bool, error) {
		p, err := at(i)
		if err != nil || p == nil {
			return true, err
		}
		if err := v.All(); err != nil {
			return false, err
		}
		r, err := v.Record(i)
		if err != nil {
			return false, err
		}
		r.AccountID, r.Place = s.account, p.String()
		s.found = append(s.found, r)
		return !s.full(), nil
	})
}

// key returns where the record i stands in the order of the log.
func (v *View) key(i int) (key, error) {
	if err := v.All(); err != nil {
		return key{}, err
	}
	r, err := v.Record(i)
	return key{time: v.times[i], seq: r.Seq, request: r.RequestID}, err
}

// cutIndex is the index of the record that tells of a cut: it stands below the
// first of the block that follows.
const cutIndex = -1

// cut lists what was removed before its time, as the oldest record.
func (s *search) cut() {
	cut, base := s.chain.Cut, s.chain.Base.Number
	if cut.Records == 0 || s.after != nil && !s.after.open && s.after.index == cutIndex {
		return
	}
	s.gap(gapRecord(s.account, cut.Records, cut.First, cut.Last, "the log outgrew --audit-max-bytes"), &place{block: base + 1, index: cutIndex})
}

// NewGap returns the record that tells that n records of the account are
// missing, the first and last of which were of the given times.
func NewGap(accountID string, n int64, first, last time.Time) *Record {
	return gapRecord(accountID, n, first, last, "the store could not take them")
}

func gapRecord(accountID string, n int64, first, last time.Time, reason string) *Record {
	text := func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
	return &Record{
		AccountID: accountID, Time: last.UTC().Truncate(time.Microsecond), Kind: Management, Outcome: Success, Action: GapNoted, Target: accountID,
		Diff: Diff{"lost_records": {nil, json.Number(strconv.FormatInt(n, 10))}, "first_at": {nil, text(first)}, "last_at": {nil, text(last)}, "reason": {nil, reason}},
	}
}

// Gather adds everything in the open end to the table, and sorts it. It returns
// how many records are lost since their chunks are damaged: a gap tells of them.
func (c *Codec) Gather(t *Table, o *Open) (lost int, err error) {
	for i := range o.Chunks {
		n, err := c.AddChunk(t, &o.Chunks[i])
		if err != nil {
			return lost, err
		}
		lost += n
	}
	for i := range o.Records {
		if err := t.Add(&o.Records[i]); err != nil {
			return lost, err
		}
	}
	t.Sort()
	return lost, nil
}

// AddChunk adds the records of a chunk to a table, or, if they cannot be read, a
// gap. It returns how many records that is of.
func (c *Codec) AddChunk(t *Table, chunk *Chunk) (lost int, err error) {
	v, err := c.Open(chunk.Content)
	if err == nil {
		err = t.AddView(v)
	}
	if err == nil {
		return 0, nil
	}
	lost = max(chunk.Records, 1)
	return lost, t.Add(gapRecord(chunk.AccountID, int64(lost), chunk.First, chunk.First, "their part of the open end was damaged"))
}

// RunRecords is how many records of chunks go into a block at most: the rest is
// room for management records of the same time.
const RunRecords = 4000

// chunkRecords is how many records a chunk has at most: two of them or more
// make a block.
const chunkRecords = RunRecords / 2

// Chunks returns the records of a sorted table as chunks of the account's open
// end.
func (t *Table) Chunks(accountID string) ([]Chunk, error) {
	var chunks []Chunk
	for from := 0; from < len(t.rows); from += chunkRecords {
		part := t.part(from, min(from+chunkRecords, len(t.rows)))
		content, err := part.Encode(nil)
		if err != nil {
			return nil, err
		}
		chunks = append(chunks, Chunk{AccountID: accountID, Records: part.Len(), First: time.UnixMicro(part.rows[0].time).UTC(), Content: content})
	}
	return chunks, nil
}

// part returns some of the records, to be read alone.
func (t *Table) part(from, to int) *Table {
	if t.encoder == nil {
		t.encoder = &encoder{}
	}
	return &Table{calls: t.calls, callers: t.callers, clients: t.clients, paths: t.paths, extras: t.extras, rows: t.rows[from:to:to], encoder: t.encoder}
}
