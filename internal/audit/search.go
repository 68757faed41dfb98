package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"math/bits"
	"strconv"
	"time"
)

// Chunk is a part of the open end of an account's log: records in the uncompressed format
// of Table.Encode.
type Chunk struct {
	ID        int64 // set by the store
	AccountID string
	Records   int
	First     time.Time
	Content   []byte
}

// Open is the open end of an account's log, which is not sealed yet, and the chain that it
// will extend.
type Open struct {
	Chain   Chain
	Chunks  []Chunk    // in the order in which they were written
	Records []Record   // management records, the newest first
	More    bool       // there are newer management records
	Recent  []*Summary // of the blocks after the last complete group, in order
}

// Part selects the fields of Open to read besides Chain.
type Part uint8

// The parts.
const (
	WithRecords   Part = 1 << iota // Chunks and Records
	WithSummaries                  // Recent
	OnlyOldest                     // of the management records, OldestRecords
)

// OldestRecords is how many management records a Source returns with OnlyOldest. An account that deletes gateways has
// hundreds of thousands of them, and without this limit each transaction that seals some would read all.
const OldestRecords = 2 * MaxRecords

// Source is one account's log in a store, read in one transaction.
type Source interface {
	Open(ctx context.Context, parts Part) (*Open, error)
	// Groups returns up to limit groups with numbers below before, the last first.
	Groups(ctx context.Context, before int64, limit int) ([]*BlockGroup, error)
	// Partitions calls f with the given partition of each group from first to last that has
	// it, in any order. f must not keep bits.
	Partitions(ctx context.Context, partition int, first, last int64, f func(group int64, bits []byte) error) error
	// Block returns a block with its times, number of records and content, or nil if
	// retention has removed it.
	Block(ctx context.Context, number int64) (*Block, error)
}

// The number of groups read at a time grows, so that a search that succeeds early is
// cheap, and one that finds nothing needs few reads. 64 groups have 16 million records.
const (
	groupsAtFirst = 2
	groupsAtOnce  = 64
)

// Search returns up to limit records that f matches, newest first. after is Record.Cursor
// of the last record of the previous page, or "" for the first page.
//
// Search reads a block only if its time bounds, classes and Bloom filter say that it may
// have a match. They do not say whether two values of a block occur in the same record,
// such as a key and a success: a search for both takes about 0.2 ms for each block that has both,
// but in different records.
func (c *Codec) Search(ctx context.Context, src Source, accountID string, f Filter, after string, limit int) ([]Record, error) {
	if limit <= 0 {
		return nil, nil
	}
	s := search{ctx: ctx, codec: c, src: src, account: accountID, query: newQuery(f), limit: limit}
	if after != "" {
		var err error
		if s.after, err = readCursor(after); err != nil {
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
	after   *cursor // nil at the beginning
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
		if sum := o.Recent[i]; s.wants(sum.Number) && sum.mayMatch(s.query) {
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

// wants reports whether the list has not passed the block yet.
func (s *search) wants(number int64) bool {
	if number <= s.chain.Base.Number {
		return false
	}
	return s.after == nil || s.after.open || number <= s.after.block
}

// openEnd lists the records of the open end.
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
	ends := t.ends(MaxRecords)
	for n := len(ends) - 1; n > 0 && !s.full(); n-- {
		part := t.part(ends[n-1], ends[n])
		content, err := part.Encode(nil)
		if err != nil {
			return err
		}
		v, err := s.codec.Open(content)
		if err != nil {
			return err
		}
		err = s.list(v, func(i int) (*cursor, error) {
			k := part.key(&part.rows[i])
			if s.after != nil && k.compare(&s.after.key) >= 0 {
				return nil, nil
			}
			p := &cursor{open: true, bounded: true, bound: bound, key: k}
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

// groups lists the records of the blocks of groups, which begin with the last group.
func (s *search) groups(groups []*BlockGroup) error {
	sets, err := s.query.blocks(s.ctx, s.src, groups)
	if err != nil {
		return err
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

// blocks returns, by the number of the group, the blocks of each group that may have a record that
// q matches, as the index says: one bit for each block. The groups begin with the last.
func (q *query) blocks(ctx context.Context, src Source, groups []*BlockGroup) (map[int64]uint64, error) {
	sets := make(map[int64]uint64, len(groups))
	for _, g := range groups {
		if set := g.mayMatch(q); set != 0 {
			sets[g.Number] = set
		}
	}
	for _, t := range q.elements {
		if err := narrow(ctx, src, groups, sets, t); err != nil {
			return nil, err
		}
	}
	return sets, nil
}

// narrow removes from sets the blocks that do not have the element. Groups with the same number of
// partitions have it in the same one, and are read together.
func narrow(ctx context.Context, src Source, groups []*BlockGroup, sets map[int64]uint64, t element) error {
	type span struct{ first, last int64 }
	spans := map[int]span{}
	in := map[int64]int{}
	for _, g := range groups {
		if sets[g.Number] == 0 {
			continue
		}
		n := t.partition(g.partitions)
		in[g.Number] = n
		at, ok := spans[n]
		if !ok {
			at.last = g.Number
		}
		at.first = g.Number
		spans[n] = at
	}
	for n, at := range spans {
		err := src.Partitions(ctx, n, at.first, at.last, func(group int64, bits []byte) error {
			if wanted, ok := in[group]; !ok || wanted != n {
				return nil
			}
			delete(in, group)
			set, err := t.blocksWith(bits)
			sets[group] &= set
			return err
		})
		if err != nil {
			return err
		}
	}
	if len(in) > 0 {
		return errDamaged // a group lacks a partition
	}
	return nil
}

// block lists the records of a block.
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

// read lists the records of a block. It returns an error if the block is damaged.
func (s *search) read(b *Block) error {
	v, err := s.codec.Open(b.Content)
	if err != nil {
		return err
	}
	bounded := s.bounded(b)
	return s.list(v, func(i int) (*cursor, error) {
		if s.after != nil && !s.after.open && b.Number == s.after.block && i >= s.after.index {
			return nil, nil
		}
		p := &cursor{block: b.Number, index: i}
		if bounded {
			if k, err := v.key(i); err != nil || k.compare(&s.after.key) >= 0 {
				return nil, err
			}
			p.bounded, p.bound, p.key = true, s.after.bound, s.after.key
		}
		return p, nil
	})
}

// bounded reports whether b has records that were open when the first page was read.
func (s *search) bounded(b *Block) bool {
	return s.after != nil && s.after.bounded && b.Number >= s.after.bound
}

// damaged lists a gap record instead of the records of a damaged block.
func (s *search) damaged(b *Block) {
	if s.after != nil && !s.after.open && b.Number == s.after.block {
		return // the previous page ended with the gap
	}
	p := &cursor{block: b.Number}
	if s.bounded(b) {
		if b.Last.UnixMicro() >= s.after.key.time {
			return
		}
		p.bounded, p.bound, p.key = true, s.after.bound, s.after.key
	}
	s.gap(damagedRecord(s.account, b), p)
}

// damagedRecord returns the gap record for a damaged block.
func damagedRecord(accountID string, b *Block) *Record {
	return gapRecord(accountID, int64(b.Records), b.First, b.Last, fmt.Sprintf("block %d is damaged", b.Number))
}

// gap lists a gap record, if the filter matches it.
func (s *search) gap(r *Record, p *cursor) {
	if s.query.gap(r) == nil {
		return
	}
	r.Cursor = p.String()
	s.found = append(s.found, *r)
}

// list adds the records of v that the filter matches, the last first. at returns the
// cursor of a record, or nil if the list has passed it.
func (s *search) list(v *View, at func(i int) (*cursor, error)) error {
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
		r.AccountID, r.Cursor = s.account, p.String()
		s.found = append(s.found, r)
		return !s.full(), nil
	})
}

// key returns the sort key of record i.
func (v *View) key(i int) (key, error) {
	if err := v.All(); err != nil {
		return key{}, err
	}
	r, err := v.Record(i)
	return key{time: v.times[i], seq: r.Seq, request: r.RequestID}, err
}

// cutIndex is the index of the gap record for the cut. It is below the index of the first record of
// the oldest block.
const cutIndex = -1

// reasonOutgrown is the reason of a gap record for the cut.
const reasonOutgrown = "the log outgrew --audit-max-bytes"

// cut lists a gap record for the records that were removed early, as the oldest record.
func (s *search) cut() {
	cut, base := s.chain.Cut, s.chain.Base.Number
	if cut.Records == 0 || s.after != nil && !s.after.open && s.after.index == cutIndex {
		return
	}
	s.gap(gapRecord(s.account, cut.Records, cut.First, cut.Last, reasonOutgrown), &cursor{block: base + 1, index: cutIndex})
}

// NewGap returns a gap record: n records of the account, with times from first to last,
// are missing.
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

// Gather adds all records of the open end to the table, merges and sorts them. For damaged chunks it adds
// gap records; lost is the number of records in them.
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
	t.Merge()
	t.Sort()
	return lost, nil
}

// AddChunk adds the records of a chunk to a table, or, if the chunk is damaged, a gap record. Then
// lost is the number of records in the chunk.
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

// RunRecords is the maximum number of records from chunks in a block. The rest is room for
// management records of the same time.
const RunRecords = 4000

// chunkRecords is the maximum number of records of a chunk: half of a block's.
const chunkRecords = RunRecords / 2

// Chunks returns the records of a sorted table as chunks of an account's open end.
func (t *Table) Chunks(accountID string) ([]Chunk, error) {
	var chunks []Chunk
	ends := t.ends(chunkRecords)
	for n := 1; n < len(ends); n++ {
		part := t.part(ends[n-1], ends[n])
		content, err := part.Encode(nil)
		if err != nil {
			return nil, err
		}
		chunks = append(chunks, Chunk{AccountID: accountID, Records: part.Len(), First: time.UnixMicro(part.rows[0].time).UTC(), Content: content})
	}
	return chunks, nil
}

// ends returns 0 and the ends of the parts into which the table is to be divided. A part has at most so many
// records, and not many more than partExtras bytes of extras.
func (t *Table) ends(records int) []int {
	ends := []int{0}
	from, size := 0, 0
	for i := range t.rows {
		if i-from == records || size >= partExtras {
			ends = append(ends, i)
			from, size = i, 0
		}
		if n := t.rows[i].extra; n != 0 {
			size += t.extras[n-1].size()
		}
	}
	if len(t.rows) > 0 {
		ends = append(ends, len(t.rows))
	}
	return ends
}

// part returns a table of the records from to to, which shares the memory of t.
func (t *Table) part(from, to int) *Table {
	if t.encoder == nil {
		t.encoder = &encoder{}
	}
	return &Table{calls: t.calls, callers: t.callers, clients: t.clients, paths: t.paths, extras: t.extras, rows: t.rows[from:to:to], encoder: t.encoder}
}
