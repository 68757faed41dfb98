package lead

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/keygate/keygate/internal/canary"
)

// state is what the Leader knows of a canary that runs.
type state struct {
	canary canary.Canary
	first  int // number from which on what was counted is of the step

	loaded bool // step has what was stored of it
	step   *canary.Step

	// Rows up to until are found by asking for those of the canary, behind cursor, until listed; later ones with those of all.
	until, cursor int64
	listed        bool
	queue         []canary.Listed // not read yet
	later         []canary.Listed // of steps that the record does not have yet

	added  []int64   // rows that the step has, and that are in the store
	size   int64     // of them in bytes
	folded time.Time // zero at first, so that rows that others have left are removed at once

	looked  time.Time // when it was judged last, without a time that was skipped since
	turn    int64     // its last turn
	wrote   time.Time // when its progress was stored
	decided bool      // what was decided has been done since the record was read
}

// isBehind reports whether there is something to read.
func (s *state) isBehind() bool { return !s.loaded || !s.listed || len(s.queue) > 0 }

// read reads what is new, in turns, up to MaxBytes.
func (l *Leader) read(ctx context.Context) error {
	behind := map[string][]*state{} // by account
	for _, s := range l.states {
		if s.isBehind() {
			behind[s.canary.AccountID] = append(behind[s.canary.AccountID], s)
		}
	}
	for bytes := 0; len(behind) > 0 && bytes < MaxBytes; {
		account := next(behind, l.served)
		l.served = account
		s := slices.MinFunc(behind[account], func(a, b *state) int {
			return cmp.Or(cmp.Compare(a.turn, b.turn), cmp.Compare(a.canary.ID, b.canary.ID))
		})
		l.turn++
		s.turn = l.turn
		n, err := l.readSome(ctx, s)
		if err != nil {
			return fmt.Errorf("read counts of canary %s: %w", s.canary.ID, err)
		}
		bytes += n
		if s.isBehind() && len(s.added) < foldRows {
			continue
		}
		behind[account] = slices.DeleteFunc(behind[account], func(o *state) bool { return o == s })
		if len(behind[account]) == 0 {
			delete(behind, account)
		}
	}
	return nil
}

// next returns the account behind another one, in turn.
func next(of map[string][]*state, after string) string {
	accounts := slices.Sorted(maps.Keys(of))
	i, is := slices.BinarySearch(accounts, after)
	if is {
		i++
	}
	return accounts[i%len(accounts)]
}

// readSome reads some of what is new of a canary, and returns about how many bytes.
func (l *Leader) readSome(ctx context.Context, s *state) (bytes int, err error) {
	const listedBytes = 64 // that a row takes to be found
	if !s.loaded {
		return l.load(ctx, s)
	}
	if !s.listed && len(s.queue) < turnRows {
		page, err := l.cfg.Store.CanaryCountsOf(ctx, s.canary.ID, s.cursor, s.until, listPage)
		if err != nil {
			return 0, err
		}
		for _, row := range page {
			s.cursor = row.Seq
			s.queue = append(s.queue, row)
		}
		s.listed = len(page) < listPage
		bytes += len(page) * listedBytes
	}
	n, size := 0, 0 // of what is taken from the queue
	var seqs []int64
	var later []canary.Listed
	for _, row := range s.queue {
		if n == min(turnRows, foldRows-len(s.added)) || bytes+size >= turnBytes {
			break
		}
		n++
		switch {
		case row.Number > s.canary.Number:
			later = append(later, row)
		case row.Number >= s.first: // those of earlier steps are only removed
			seqs = append(seqs, row.Seq)
			size += row.Size
		}
	}
	if err := l.add(ctx, s, seqs); err != nil {
		return 0, err
	}
	for _, row := range s.queue[:n] {
		if row.Number <= s.canary.Number {
			s.added = append(s.added, row.Seq)
			s.size += int64(row.Size)
		}
	}
	s.queue, s.later = s.queue[n:], append(s.later, later...)
	return bytes + size, nil
}

// load reads what is stored of the step of a canary.
func (l *Leader) load(ctx context.Context, s *state) (bytes int, err error) {
	stored, err := l.cfg.Store.CanaryStep(ctx, s.canary.ID)
	if err != nil {
		return 0, err
	}
	s.loaded = true
	if stored == nil {
		return 0, nil
	}
	if stored.Step == s.canary.Step && stored.First == s.first {
		if err := s.step.UnmarshalBinary(stored.Data); err != nil { // it goes on without what was counted before
			l.cfg.Log.Warn("what a canary has counted cannot be read; its step counts anew", "canary", s.canary.ID, "error", err)
		}
	}
	return len(stored.Data), nil
}

// add adds rows to the step, all or none.
func (l *Leader) add(ctx context.Context, s *state, seqs []int64) error {
	if len(seqs) == 0 {
		return nil
	}
	since := lastProgress(&s.canary).Since
	var tallies []*canary.Tally
	var ends []time.Duration
	err := l.cfg.Store.ReadCanaryCounts(ctx, seqs, func(seq int64, r *canary.CountRow) error {
		t := &canary.Tally{}
		if err := t.UnmarshalBinary(r.Data); err != nil {
			l.cfg.Log.Warn("counts of a canary cannot be read; they are left out", "canary", s.canary.ID, "row", seq, "error", err)
			return nil
		}
		tallies, ends = append(tallies, t), append(ends, r.At.Sub(since))
		return nil
	})
	if err != nil {
		return err
	}
	for i, t := range tallies {
		s.step.AddTally(ends[i], t)
	}
	return nil
}

// judge judges all canaries of which something was read.
func (l *Leader) judge(ctx context.Context, lead canary.Lead, now time.Time) error {
	var errs []error
	var waits []*judgement
	for _, canaryID := range slices.Sorted(maps.Keys(l.states)) {
		s := l.states[canaryID]
		if !s.loaded || s.decided {
			continue
		}
		j := s.judgement(now)
		switch {
		case j.Action != canary.Wait:
			errs = append(errs, l.carryOut(ctx, lead, j))
		case !j.isKnown():
			waits = append(waits, j)
		}
	}
	slices.SortStableFunc(waits, func(a, b *judgement) int { return a.wrote.Compare(b.wrote) })
	for _, j := range waits[:min(len(waits), maxProgress)] {
		j.wrote = now
		errs = append(errs, l.carryOut(ctx, lead, j))
	}
	return errors.Join(errs...)
}

// judgement is a decision about a canary.
type judgement struct {
	*state
	progress canary.Progress
	ran      canary.Ran
	isStale  bool // the record does not have ran, and it is time
	canary.Decision
}

// judgement decides about the canary. While something is not read yet, it may only be aborted.
func (s *state) judgement(now time.Time) *judgement {
	since := s.canary.Since
	last := since // time that was judged
	if s.looked.After(since) {
		last = s.looked
	}
	skipped := max(0, now.Sub(last)-canary.MostIdle)
	if skipped == 0 {
		s.looked = now
	}
	j := &judgement{state: s, progress: lastProgress(&s.canary), ran: canary.Ran{For: s.canary.Ran + max(0, now.Sub(since)-skipped), Until: now}}
	j.isStale = skipped > 0 || now.Sub(since).Abs() >= noteEvery
	cfg := s.canary.Plan.Config()
	j.Decision = s.step.Decide(&cfg, j.ran.For)
	if s.isBehind() && j.Action != canary.Abort {
		j.Action, j.Reason = canary.Wait, ""
	}
	j.progress.Number = s.first
	j.progress.Next, j.progress.Other = figures(s.step, canary.Next), figures(s.step, canary.Other)
	return j
}

// isKnown reports whether the record has it already.
func (j *judgement) isKnown() bool {
	was := lastProgress(&j.canary)
	return !j.isStale && equal(&was.Next, &j.progress.Next) && equal(&was.Other, &j.progress.Other) && j.canary.Explanation == j.Explanation
}

func equal(a, b *canary.Figures) bool {
	return a.Requests == b.Requests && a.Bad == b.Bad && (a.P95 == nil) == (b.P95 == nil) && (a.P95 == nil || *a.P95 == *b.P95)
}

// figures returns the figures of a side.
func figures(s *canary.Step, side canary.Side) (f canary.Figures) {
	c := s.Counts(side)
	f.Requests, f.Bad = c.Requests, c.Bad
	if p95, is := s.P95(side); is {
		f.P95 = new(math.Round(p95.Seconds()*1e6) / 1e3)
	}
	return f
}

// carryOut does what was decided.
func (l *Leader) carryOut(ctx context.Context, lead canary.Lead, j *judgement) error {
	err := l.cfg.Control.JudgeCanary(ctx, j.canary.ID, j.canary.Number, lead, j.progress, j.ran, j.Decision)
	if err = unlessLost(err); err != nil {
		return fmt.Errorf("judge canary %s: %w", j.canary.ID, err)
	}
	j.decided = j.Action != canary.Wait
	return nil
}

// fold stores steps in place of rows, those first that have waited longest, up to MaxBytes.
func (l *Leader) fold(ctx context.Context, lead canary.Lead, now time.Time) error {
	var due []*state
	for _, s := range l.states {
		if s.loaded && len(s.added) > 0 && (now.Sub(s.folded) >= foldEvery || len(s.added) >= foldRows) {
			due = append(due, s)
		}
	}
	slices.SortFunc(due, func(a, b *state) int {
		return cmp.Or(a.folded.Compare(b.folded), cmp.Compare(a.canary.ID, b.canary.ID))
	})
	bytes := 0
	var errs []error
	for _, s := range due {
		if bytes >= MaxBytes {
			break
		}
		data, _ := s.step.MarshalBinary() // see there
		bytes += len(data)
		stored := &canary.StoredStep{CanaryID: s.canary.ID, Step: s.canary.Step, First: s.first, Data: data}
		if err := l.cfg.Store.FoldCanaryStep(ctx, lead, stored, s.added, s.size); err != nil {
			if err = unlessLost(err); err != nil {
				errs = append(errs, fmt.Errorf("store the step of canary %s: %w", s.canary.ID, err))
			}
			continue
		}
		s.added, s.size, s.folded = nil, 0, now
	}
	return errors.Join(errs...)
}
