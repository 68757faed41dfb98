package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
)

// The most that one step of a Scan reads. It keeps the transaction of the step short, so that a
// slow reader holds up no checkpoint of the store.
const (
	scanBlocks = 16
	scanBytes  = 1 << 20 // after this many bytes of content, no further block is read
)

// errRemoved is the error of a Scan whose log is no longer in the store.
var errRemoved = errors.New("the log was removed while it was read")

// Scan reads an account's log as it is at the beginning of the scan, oldest record first, in the order of their times. It
// holds the open end in memory, 16 bytes for each block, and the blocks that overlap in time with the one that it has
// reached. Records that retention removes meanwhile are left out; records that are removed early leave a gap record.
//
// A Scan is not safe for concurrent use. Each step must be encoded before the next one is read.
type Scan struct {
	codec   *Codec
	account string
	query   *query

	open    *Open       // at the beginning; nil once a step has it
	head    int64       // number of the last block at the beginning
	chosen  int64       // blocks up to this number are in todo, read, or without a match
	todo    []scanBlock // the blocks to read; in the order in which they are read once all are chosen
	merge   merge
	cut     int64 // records that were removed early at the last step
	started bool  // the first step was read
}

// scanBlock is a block that is to be read.
type scanBlock struct{ number, first int64 }

// ScanStep is what one step of a Scan has read.
type ScanStep struct {
	scan   *Scan
	gap    *Record // to list first; may be nil
	blocks []*Block
	open   *Open // may be nil
}

// Scan begins a scan of the records that f matches.
func (c *Codec) Scan(ctx context.Context, src Source, accountID string, f Filter) (*Scan, error) {
	o, err := src.Open(ctx, WithRecords)
	if err != nil {
		return nil, fmt.Errorf("scan the audit log of %s: %w", accountID, err)
	}
	return &Scan{
		codec: c, account: accountID, query: newQuery(f), open: o, head: o.Chain.Head.Number, chosen: o.Chain.Base.Number,
		merge: merge{horizon: math.MinInt64},
	}, nil
}

// Read reads the next step, or returns nil at the end. src may belong to another transaction than
// at the step before.
func (s *Scan) Read(ctx context.Context, src Source) (*ScanStep, error) {
	step, err := s.read(ctx, src)
	if err != nil {
		return nil, fmt.Errorf("scan the audit log of %s: %w", s.account, err)
	}
	return step, nil
}

func (s *Scan) read(ctx context.Context, src Source) (*ScanStep, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	step := &ScanStep{scan: s}
	var err error
	if step.gap, err = s.follow(ctx, src); err != nil {
		return nil, err
	}
	if s.chosen < s.head {
		if err := s.choose(ctx, src); err != nil || s.chosen < s.head {
			return step, err
		}
	}
	for size := 0; len(s.todo) > 0 && len(step.blocks) < scanBlocks && size < scanBytes; s.todo = s.todo[1:] {
		b, err := src.Block(ctx, s.todo[0].number)
		if err != nil {
			return nil, err
		}
		if b != nil {
			step.blocks = append(step.blocks, b)
			size += len(b.Content)
		}
	}
	if s.merge.horizon = math.MaxInt64; len(s.todo) > 0 {
		s.merge.horizon = s.todo[0].first
	}
	if s.open == nil && step.gap == nil && len(step.blocks) == 0 && len(s.merge.runs) == 0 {
		return nil, nil
	}
	step.open, s.open = s.open, nil
	return step, nil
}

// follow reads what retention has removed since the last step. At the beginning, and if records
// were removed early that the scan has not read yet, it returns the gap record of the log.
func (s *Scan) follow(ctx context.Context, src Source) (gap *Record, err error) {
	o, err := src.Open(ctx, 0)
	if err != nil {
		return nil, err
	}
	if o.Chain.Head.Number < s.head {
		return nil, errRemoved
	}
	base, cut := o.Chain.Base.Number, o.Chain.Cut
	missed := base > s.chosen || slices.ContainsFunc(s.todo, func(b scanBlock) bool { return b.number <= base })
	if (!s.started || missed) && cut.Records > s.cut {
		gap = s.query.gap(gapRecord(s.account, cut.Records, cut.First, cut.Last, reasonOutgrown))
	}
	s.started, s.cut = true, cut.Records
	s.chosen = max(s.chosen, base)
	if missed {
		s.todo = slices.DeleteFunc(s.todo, func(b scanBlock) bool { return b.number <= base })
	}
	return gap, nil
}

// choose chooses the blocks of the next groups that must be read, because the index does not exclude a match. Once it
// has chosen all, it puts them in the order of their first records.
func (s *Scan) choose(ctx context.Context, src Source) error {
	from := GroupOf(s.chosen + 1)
	through := min(s.head, (from+groupsAtOnce)*GroupSize)
	groups, err := src.Groups(ctx, from+groupsAtOnce, groupsAtOnce)
	if err != nil {
		return err
	}
	groups = slices.DeleteFunc(groups, func(g *BlockGroup) bool { return g.Number < from })
	sets, err := s.query.blocks(ctx, src, groups)
	if err != nil {
		return err
	}
	grouped := make(map[int64]*BlockGroup, len(groups))
	for _, g := range groups {
		grouped[g.Number] = g
	}
	var single map[int64]*Summary // of the blocks without a group, once one was met
	for number := s.chosen + 1; number <= through; number++ {
		group, at := GroupOf(number), (number-1)%GroupSize
		if g := grouped[group]; g != nil {
			if sets[group]&(1<<at) != 0 {
				s.todo = append(s.todo, scanBlock{number, g.first[at]})
			}
			continue
		}
		if single == nil {
			if single, err = summaries(ctx, src); err != nil {
				return err
			}
		}
		if sum := single[number]; sum == nil {
			s.todo = append(s.todo, scanBlock{number, math.MinInt64})
		} else if sum.mayMatch(s.query) {
			s.todo = append(s.todo, scanBlock{number, sum.First})
		}
	}
	if s.chosen = through; s.chosen == s.head {
		slices.SortFunc(s.todo, func(a, b scanBlock) int {
			return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(a.number, b.number))
		})
	}
	return nil
}

// summaries returns the summaries of the blocks that are in no group, by number.
func summaries(ctx context.Context, src Source) (map[int64]*Summary, error) {
	o, err := src.Open(ctx, WithSummaries)
	if err != nil {
		return nil, err
	}
	single := make(map[int64]*Summary, len(o.Recent))
	for _, sum := range o.Recent {
		single[sum.Number] = sum
	}
	return single, nil
}

// Encode encodes the records of the step that the filter matches, oldest first. It calls emit
// with whole lines, of at most about EmitSize bytes unless one record is larger. emit must not
// keep them.
func (t *ScanStep) Encode(to *LineEncoder, emit func(lines []byte) error) error {
	if t.gap != nil {
		if err := to.record(t.gap, emit); err != nil {
			return err
		}
	}
	merge := &t.scan.merge
	for _, b := range t.blocks {
		v, indexes, err := t.scan.decode(b.Content)
		if err != nil {
			if gap := t.scan.query.gap(damagedRecord(t.scan.account, b)); gap != nil {
				merge.add(&run{order: b.Number, record: gap})
			}
			continue
		}
		merge.add(&run{order: b.Number, view: v, indexes: indexes})
	}
	if t.open != nil {
		if err := t.mergeOpen(); err != nil {
			return err
		}
	}
	if err := merge.encode(to, emit); err != nil {
		return err
	}
	return to.flush(emit)
}

// decode opens the content of a block, and returns the records that the filter matches,
// ascending. A block that is damaged anywhere is an error, so that no part of it is listed.
func (s *Scan) decode(content []byte) (*View, []int, error) {
	v, err := s.codec.Open(content)
	if err != nil {
		return nil, nil, err
	}
	var indexes []int
	err = s.query.matches(v, func(i int) (bool, error) {
		indexes = append(indexes, i)
		return true, nil
	})
	if err != nil || len(indexes) == 0 {
		return v, nil, err
	}
	slices.Reverse(indexes)
	return v, indexes, v.check()
}

// mergeOpen adds the records of the open end to the merge.
func (t *ScanStep) mergeOpen() error {
	table := &Table{}
	if _, err := t.scan.codec.Gather(table, t.open); err != nil {
		return err
	}
	ends := table.ends(MaxRecords)
	for n := 1; n < len(ends); n++ {
		content, err := table.part(ends[n-1], ends[n]).Encode(nil)
		if err != nil {
			return err
		}
		v, indexes, err := t.scan.decode(content)
		if err != nil {
			return err
		}
		t.scan.merge.add(&run{order: t.scan.head + int64(n), view: v, indexes: indexes})
	}
	return nil
}

// gap returns the gap record r if q matches it, or nil.
func (q *query) gap(r *Record) *Record {
	at := r.Time.UnixMicro()
	if c, _ := classOf(r.Kind, r.Outcome); len(q.elements) > 0 || !q.overlaps(at, at) || q.classes&(1<<c) == 0 {
		return nil
	}
	return r
}

// check decodes the rest of the columns, and reports whether every record can be read.
func (v *View) check() error {
	if err := v.All(); err != nil {
		return err
	}
	for i := range v.rest.extras {
		if _, err := v.Record(i); err != nil {
			return err
		}
	}
	return nil
}
