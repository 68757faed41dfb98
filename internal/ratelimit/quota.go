package ratelimit

import (
	"math"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/keygate/keygate/internal/calendar"
)

// A quotaWord is what requests change of a quota.
//
//	bits  0–52  left: units that are taken in the store and not used yet
//	bits 53–62  the turn of the quotaState that belongs to it, modulo 1024
type quotaWord uint64

const (
	closedQuota quotaWord = math.MaxUint64

	unitBits = 53
	turns    = 1024
)

func packQuota(turn uint64, left int64) quotaWord {
	return quotaWord(turn%turns)<<unitBits | quotaWord(left)
}

func (w quotaWord) left() int64 { return int64(w & MaxUnits) }

func (w quotaWord) isOf(s *quotaState) bool { return uint64(w)>>unitBits == s.turn%turns }

// quotaState is what this process knows of the window of a quota. It is immutable: the keeper replaces it. What this
// process has used in the window is taken − left.
type quotaState struct {
	turn       uint64
	start, end int64 // of the window, in Unix nanoseconds; both are 0 before the first claim
	span       *quotaSpan
	taken      int64 // by this process, what is left included
	counted    int64 // how many of span.settled are in taken
	others     QuotaFigures
	hold       int64       // units that the other processes which live hold
	grants     int64       // units
	under      int64       // the largest count for which units that are left were taken
	low        int64       // when no more are left, the next range is taken
	tell       int64       // when this process has used as many, the store must know
	terms      *QuotaTerms // for which tell and low are
	former     *QuotaTerms // for which they were before
	asked      int64       // when the store has answered, in Unix nanoseconds
}

// isNew reports whether the store has not been asked by these terms, or not within a second if two gateways limit the quota
// by different ones in turn.
func (s *quotaState) isNew(t *QuotaTerms, wall int64) bool {
	return t != s.terms && (t != s.former || !isRecent(s.asked, wall, second))
}

// used returns how many units of the window are used or held by other processes when left are left.
func (s *quotaState) used(left int64) int64 {
	return s.others.Taken + s.taken - left + s.span.settled.Load() - s.counted
}

// quotaSpan is what requests whose amounts change do to one window of a quota, also after its end.
type quotaSpan struct {
	start   int64
	open    atomic.Int64 // requests that were charged in the window and may still change what they have taken
	settled atomic.Int64 // units that requests have ever added, less what they have given back, other than by the word

	// Used only by the keeper's goroutine, once the quota has gone on to a later window.
	taken   int64 // by this process
	counted int64 // how many of settled are in taken
	unsaved bool  // the store does not have taken
	idle    int   // sweeps since a request was charged in the window
}

// Quota is the count of one subject's quota in this process. A QuotaKeeper creates it.
//
// The process takes units in the store ahead of use, in ranges. Requests use what is left of a range, without the store.
type Quota struct {
	word    atomic.Uint64 // a quotaWord
	state   atomic.Pointer[quotaState]
	keeper  *QuotaKeeper
	name    *Quotas // without the subject
	subject [16]byte
	holder  QuotaHolder

	own     atomic.Pointer[calendar.Own] // the subject's own zone and anchor; nil for those of the plan
	terms   atomic.Pointer[QuotaTerms]   // of the request that has asked last
	over    atomic.Int64                 // units that passed while the store was lost (OverageAllow), not yet in the state
	largest atomic.Int64                 // the most units that a request has asked for
	waiting atomic.Int64                 // units that calls of wait need
	wants   atomic.Bool                  // a range is to be taken
	flush   atomic.Bool                  // the store is asked, even if nothing has changed
	recall  atomic.Bool                  // what is left must be given back
	refused atomic.Pointer[error]        // why the store does not count it, or nil
	queued  atomic.Bool                  // it is in the keeper's queue
	next    *Quota                       // in the queue

	// Used only by the keeper's goroutine.
	saved   QuotaFigures // of this process in the store, in the window of the state
	unsaved bool         // saved is not known
	seen    quotaWord    // at the last sweep
	idle    int          // sweeps since it was used
	past    []*quotaSpan // earlier windows in which requests may still change what they have taken
}

// quotaSize is the bytes of a quota with its state and its slot.
const quotaSize = int64(unsafe.Sizeof(node[Quota]{})+unsafe.Sizeof(quotaState{})+unsafe.Sizeof(quotaSpan{})) + 3*slotSize

// askEvery is how long, in nanoseconds, a refusal counts that other processes may end, by giving units back, before the
// store is asked again.
const askEvery = second / 4

// clockTolerance is how far, in nanoseconds, the clocks of a process and of its store may differ at the edges of windows.
const clockTolerance = second

// read returns the word and the state that belong together.
func (q *Quota) read() (quotaWord, *quotaState) {
	for {
		w, s := quotaWord(q.word.Load()), q.state.Load()
		if w == closedQuota || w.isOf(s) {
			return w, s
		}
		runtime.Gosched() // the keeper changes both
	}
}

// isNow reports whether the window of s has the time wall. Where a store has a clock of its own, that decides: its answer
// holds a moment beyond the end.
func (q *Quota) isNow(s *quotaState, wall int64) bool {
	if q.keeper.cfg.Alone {
		return wall >= s.start && wall < s.end
	}
	return wall >= s.start-clockTolerance && (wall < s.end || s.asked >= s.end && isRecent(s.asked, wall, second/10))
}

// check returns what the quota allows by the terms, and sets v.next.
func (q *Quota) check(m *moment, t *QuotaTerms, v *view) finding {
	w, s := q.read()
	v.state, v.bucket, v.params, v.wall, v.word, v.next, v.quota, v.over = &q.word, nil, nil, 0, uint64(w), uint64(w), s, false
	if w == closedQuota {
		return isStale
	}
	left := w.left()
	f := mustReserve
	if q.isNow(s, m.Wall) {
		f = q.room(m.Wall, t, s, left, v.amount)
	}
	switch {
	case f == passes:
		v.next, v.few = uint64(w)-uint64(v.amount), left < scarce
	case f == mustReserve && t.Allow && q.keeper.lost.Load():
		f, v.over = passes, true // it is counted by charged
	case f == mustReserve:
		q.ask(t, v.amount)
	case f == refuses && s.isNew(t, m.Wall): // percentages may be passed by a count that was lowered
		q.ask(t, 0)
		q.flush.Store(true)
		q.keeper.enqueue(q)
	}
	return f
}

// room returns what the state allows within its window.
func (q *Quota) room(wall int64, t *QuotaTerms, s *quotaState, left, amount int64) finding {
	switch {
	case s.used(left)+amount > t.limit(s.grants):
		if q.keeper.cfg.Alone || s.hold == 0 && isRecent(s.asked, wall, askEvery) {
			return refuses
		}
		return mustReserve
	case left < amount, t.Count < s.under:
		return mustReserve
	case amount == 0 && left == 0 && !q.keeper.cfg.Alone && !isRecent(s.asked, wall, askEvery): // others may have used it up
		return mustReserve
	default:
		return passes
	}
}

// ask notes by which terms the next claim is made, and how many units a request asks for.
func (q *Quota) ask(t *QuotaTerms, amount int64) {
	if q.terms.Load() != t {
		q.terms.Store(t)
	}
	for {
		most := q.largest.Load()
		if amount <= most || q.largest.CompareAndSwap(most, amount) {
			return
		}
	}
}

// charged does what follows a charge in the view, by the terms.
func (q *Quota) charged(m *moment, t *QuotaTerms, v *view, use Use) {
	if v.over {
		q.over.Add(v.amount)
		return
	}
	if use != UseRequest {
		v.quota.span.open.Add(1)
	}
	if !q.used(v.quota, t, quotaWord(v.next).left(), v.amount) && v.quota.isNew(t, m.Wall) {
		q.ask(t, v.amount) // the percentages may be others
		q.keeper.enqueue(q)
	}
}

// used reports whether the keeper has something to do after an amount was used, and left are left: it then asks it.
func (q *Quota) used(s *quotaState, t *QuotaTerms, left, amount int64) bool {
	switch {
	case left <= s.low && left+amount > s.low:
		q.wants.Store(true)
	case s.taken-left >= s.tell && s.taken-left-amount < s.tell:
	default:
		return false
	}
	q.ask(t, amount)
	q.keeper.enqueue(q)
	return true
}

// refund gives back what was charged in the view, unless the window has ended: then nobody can use it.
func (q *Quota) refund(v *view) {
	if v.over {
		q.over.Add(-v.amount)
		return
	}
	q.giveBack(v.quota.span, v.amount)
}

// giveBack gives back units of the window, and reports whether it is the present one.
func (q *Quota) giveBack(of *quotaSpan, units int64) bool {
	for {
		w, s := q.read()
		if w == closedQuota || s.span != of {
			return false
		}
		if q.word.CompareAndSwap(uint64(w), uint64(w)+uint64(units)) {
			if w.left() > 2*s.low || !q.keeper.cfg.Alone {
				q.keeper.enqueue(q) // it holds more than a range, or what other processes may need
			}
			return true
		}
	}
}

// settle takes more units for a request that was charged in the view, even beyond the count, or gives units back if more
// is negative. They belong to the window in which it was charged.
func (q *Quota) settle(t *QuotaTerms, v *view, more int64) {
	of := v.quota.span
	switch {
	case more == 0:
		return
	case v.over:
		q.over.Add(more)
		return
	case more < 0 && q.giveBack(of, -more):
		return
	case more > 0:
		if more = q.take(of, t, more); more == 0 {
			return
		}
		q.wants.Store(true)
	}
	of.settled.Add(more)
	if quotaWord(q.word.Load()) != closedQuota {
		q.ask(t, 0)
		q.keeper.enqueue(q)
		q.keeper.settles.Add(1)
	}
}

// take takes units of what is left of the window, if it is the present one. It returns the rest.
func (q *Quota) take(of *quotaSpan, t *QuotaTerms, units int64) (rest int64) {
	for {
		w, s := q.read()
		if w == closedQuota || s.span != of {
			return units
		}
		n := min(units, w.left())
		if n == 0 {
			return units
		}
		if next := uint64(w) - uint64(n); q.word.CompareAndSwap(uint64(w), next) {
			q.used(s, t, quotaWord(next).left(), n)
			return units - n
		}
	}
}

// end notes that the request that was charged in the view changes nothing any more.
func (q *Quota) end(v *view) {
	if !v.over {
		v.quota.span.open.Add(-1)
	}
}

// peek sets v.next to the state, for a status.
func (q *Quota) peek(m *moment, v *view) {
	w, s := q.read()
	if w == closedQuota || !q.isNow(s, m.Wall) {
		w, s = 0, &quotaState{span: &quotaSpan{}}
	}
	v.params, v.wall, v.next, v.quota = nil, 0, uint64(w), s
}

// fillStatus fills the status of a quota with the state in the view and the given word.
func (q *Quota) fillStatus(t *QuotaTerms, s *Status, v *view, word uint64, wall int64) {
	known := v.quota
	start, end := known.start, known.end
	if end == 0 { // nothing of the window is known
		from, to := t.Calendar.With(q.own.Load()).Window(time.Unix(0, wall))
		start, end = from.UnixNano(), nanos(to)
	}
	s.Limit = min(t.Count+known.grants, MaxUnits)
	s.Remaining = max(0, s.Limit-known.used(quotaWord(word).left()))
	if end == math.MaxInt64 {
		s.Window = math.MaxInt32
		s.never(wall)
		return
	}
	s.Window, s.ResetAt, s.ResetIn = ceilSeconds(end-start), ceilSeconds(end), ceilSeconds(max(0, end-wall))
}

// nanos returns Unix nanoseconds, and the largest value for times beyond.
func nanos(t time.Time) int64 {
	if t.Unix() >= math.MaxInt64/second {
		return math.MaxInt64
	}
	return t.UnixNano()
}

// change replaces the state and the units that are left by what f returns for them. f may be called more than once. It
// reports false if the quota is closed. Only the keeper's goroutine may call it.
func (q *Quota) change(f func(s quotaState, left int64) (quotaState, int64)) bool {
	for {
		w, s := quotaWord(q.word.Load()), q.state.Load()
		if w == closedQuota {
			return false
		}
		next, left := f(*s, w.left())
		next.turn = s.turn + 1
		q.state.Store(&next)
		if q.word.CompareAndSwap(uint64(w), uint64(packQuota(next.turn, left))) {
			return true
		}
		q.state.Store(s)
	}
}

// release takes what is left from the requests. It returns false if nothing was left.
func (q *Quota) release() (released bool) {
	if quotaWord(q.word.Load()).left() == 0 {
		return false
	}
	return q.change(func(s quotaState, left int64) (quotaState, int64) {
		s.taken, s.under = s.taken-left, 0
		return s, 0
	})
}
