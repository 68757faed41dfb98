package gitsync

import (
	"context"
	"slices"
	"time"
)

// stage is a step of syncs: its slots, and the syncs that wait for a slot. Accounts take turns, and
// within an account it is first come, first served. Accounts that were slow have half of the slots
// together. It is guarded by Syncer.mu.
type stage struct {
	perAccount int // slots of one account
	all        int // slots of all accounts
	forSlow    int // slots of all accounts that were slow

	taken int
	lines map[string]*line     // of the accounts that hold a slot or wait for one
	turns []*line              // with waiting jobs, in the order of their turns
	slow  map[string]time.Time // until when an account counts as slow; of both stages
}

// line is what one account has of a stage.
type line struct {
	account string
	taken   int
	waiting []*job
}

// job is a step that waits for a slot or holds one.
type job struct {
	account string
	run     func(ctx context.Context)
	since   time.Time // it has its slot
}

// An account that has held a slot for slowAfter counts as slow for slowFor.
const (
	slowAfter = 20 * time.Second
	slowFor   = time.Hour
)

func newStage(perAccount, all int, slow map[string]time.Time) *stage {
	return &stage{perAccount: perAccount, all: all, forSlow: max(1, all/2), lines: map[string]*line{}, slow: slow}
}

// add appends j to the line of its account, or puts it first.
func (s *stage) add(j *job, first bool) {
	l := s.lines[j.account]
	if l == nil {
		l = &line{account: j.account}
		s.lines[j.account] = l
	}
	if len(l.waiting) == 0 {
		s.turns = append(s.turns, l)
	}
	at := len(l.waiting)
	if first {
		at = 0
	}
	l.waiting = slices.Insert(l.waiting, at, j)
}

// next gives a slot to the job whose turn it is, and returns the job; nil if none may begin.
func (s *stage) next() *job {
	if s.taken >= s.all || len(s.turns) == 0 {
		return nil
	}
	now, takenSlow := time.Now(), 0
	for account := range s.slow {
		if l := s.lines[account]; l != nil && s.isSlow(account, now) {
			takenSlow += l.taken
		}
	}
	for i, l := range s.turns {
		if l.taken >= s.perAccount || takenSlow >= s.forSlow && s.isSlow(l.account, now) {
			continue
		}
		j := l.waiting[0]
		l.waiting = slices.Delete(l.waiting, 0, 1)
		s.turns = slices.Delete(s.turns, i, i+1)
		if len(l.waiting) > 0 {
			s.turns = append(s.turns, l)
		}
		s.taken++
		l.taken++
		j.since = now
		return j
	}
	return nil
}

// isSlow reports whether an account counts as slow.
func (s *stage) isSlow(account string, now time.Time) bool {
	until, found := s.slow[account]
	if found && !now.Before(until) {
		delete(s.slow, account)
		return false
	}
	return found
}

// done gives back the slot of j.
func (s *stage) done(j *job) {
	if now := time.Now(); now.Sub(j.since) >= slowAfter {
		s.slow[j.account] = now.Add(slowFor)
	}
	l := s.lines[j.account]
	s.taken--
	l.taken--
	if l.taken == 0 && len(l.waiting) == 0 {
		delete(s.lines, j.account)
	}
}
