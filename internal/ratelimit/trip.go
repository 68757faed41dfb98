package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/logpace"
)

const (
	// tripInterval is the least time between two trips for the same bucket, except in the mode
	// Exact: so there are at most 50 in a second.
	tripInterval = 20 * time.Millisecond
	// horizon is the time for which a node asks for tokens: as many as it will spend in this time.
	grantHorizon = 50 * time.Millisecond
	// checkInterval is the time between two attempts to reach a lost store.
	checkInterval = 100 * time.Millisecond
	// tripTimeout bounds a pipeline.
	tripTimeout = 50 * time.Millisecond
	// startTimeout bounds the wait for the store at the start.
	startTimeout = 2 * time.Second
	// maxBatch bounds the number of trips in a pipeline.
	maxBatch = 1000
)

// leg is one bucket of a trip.
type leg struct {
	lease  *Lease
	amount int64 // what each request is charged

	// The answer, set before trip.done is closed.
	word    uint64 // state of the bucket
	granted int64  // tokens for later use, which word counts as used
	answer  answer // for giving requests back
}

// trip is one question to the limit store: may this many requests pass, each charged to the buckets
// of all legs or to none?
type trip struct {
	legs     []leg // in the order of the request's limits
	requests int64
	force    bool
	left     bool // it is not pending any more; guarded by Sharing.mu
	done     chan struct{}

	// The answer, set before done is closed.
	admitted int64 // of requests, the first ones
	mono     int64 // when the states were true
	behind   bool  // the store knows newer parameters of a bucket
	newer    int64 // the change that made them
	err      error

	generation int64 // of the store when the trip left

	settled bool // catchUp has dealt with behind; guarded by Sharing.catching
}

func newTrip(legs []leg) *trip { return &trip{legs: legs, done: make(chan struct{})} }

// leg returns the leg of e, or nil.
func (r *trip) leg(e *Lease) *leg {
	for i := range r.legs {
		if r.legs[i].lease == e {
			return &r.legs[i]
		}
	}
	return nil
}

func (r *trip) answered() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// ErrUnsuitable is in the chain of an error of LimitStore.Check that does not go away by itself.
var ErrUnsuitable = errors.New("the limit store is not suitable")

// Start begins to make trips. A store that does not answer counts as lost until it does. An
// unsuitable store is an error.
func (s *Sharing) Start(ctx context.Context) error {
	if s.cfg.Store == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := s.cfg.Store.Check(ctx); errors.Is(err, ErrUnsuitable) {
		return fmt.Errorf("start sharing limits: %w", err)
	} else if err != nil {
		s.lose(err)
	}
	if err := s.group.Start(s.run); err != nil {
		return fmt.Errorf("start sharing limits: %w", err)
	}
	return nil
}

// Stop ends what Start began. Waiting requests are then decided as if the store were lost.
func (s *Sharing) Stop(ctx context.Context) error {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	if err := s.group.Stop(ctx); err != nil {
		return fmt.Errorf("stop sharing limits: %w", err)
	}
	s.failPending(errStopped())
	return nil
}

func (s *Sharing) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var checked int64 // when the lost store was tried last
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-timer.C:
		}
		s.tell()
		next := time.Minute
		if s.Lost() {
			s.failPending(errLost())
			next = time.Duration(checked + int64(checkInterval) - s.cfg.Now().Mono)
			if checked == 0 || next <= 0 {
				s.tryAgain()
				checked, next = s.cfg.Now().Mono, checkInterval
			}
		}
		if !s.Lost() {
			next, checked = s.depart(), 0
		}
		timer.Reset(min(next, s.tell()))
	}
}

// told is what the log says about the store.
type told struct {
	lost   bool
	losses int64
	gate   logpace.Gate
}

// tell writes to the log whether the store is lost, unless the last line says the same. However often that changes,
// there are only a few lines a minute, and the last line is true. It returns the time until the next line is due. Only
// run calls it.
func (s *Sharing) tell() time.Duration {
	s.mu.Lock()
	lost, losses, err := s.Lost(), s.stats.losses.Load(), s.loss
	s.mu.Unlock()
	if lost == s.told.lost && losses == s.told.losses {
		return time.Minute
	}
	if ok, wait := s.told.gate.Pass(time.Duration(s.cfg.Now().Mono)); !ok {
		return wait
	}
	times := losses - s.told.losses
	switch {
	case lost:
		s.log.Warn("the limit store is lost; it is tried again", "limits", string(s.cfg.OnLoss), "times", times, "error", err)
	case times > 0:
		s.log.Warn("the limit store was lost and is there again", "limits", string(s.cfg.OnLoss), "times", times, "error", err)
	default:
		s.log.Info("the limit store is there again")
	}
	s.told.lost, s.told.losses = lost, losses
	return time.Minute
}

func errLost() error { return fault.New(fault.Unavailable, "the limit store is lost") }

// failPending ends the wait of those whose trip has not left.
func (s *Sharing) failPending(err error) {
	s.mu.Lock()
	failed := slices.Clone(s.pending)
	s.leave(failed)
	s.mu.Unlock()
	for _, r := range failed {
		r.err = err
		close(r.done)
	}
}

// lose notes that the store is lost.
func (s *Sharing) lose(err error) {
	s.mu.Lock()
	if !s.lost.Swap(true) {
		s.loss = err
		s.stats.losses.Add(1)
	}
	s.mu.Unlock()
	s.wake.Notify()
}

// tryAgain checks whether the lost store can be used again. If so, every lease reports what it has
// admitted meanwhile.
func (s *Sharing) tryAgain() {
	ctx, cancel := context.WithTimeout(s.group.Grace(), 10*tripTimeout)
	defer cancel()
	if err := s.cfg.Store.Check(ctx); err != nil {
		return
	}
	s.mu.Lock()
	for e := range s.indebted {
		s.pendAlone(e)
	}
	s.mu.Unlock()
	s.lost.Store(false)
}

// depart sends the trips that are due. It returns when the next trip is due.
func (s *Sharing) depart() (next time.Duration) {
	s.takeQueue()
	s.mu.Lock()
	waiting := slices.Clone(s.pending)
	s.mu.Unlock()

	now := s.cfg.Now()
	next = time.Minute
	var due []*trip
	for _, r := range waiting {
		left := r.untilDue(now.Mono)
		if left > 0 || len(due) == maxBatch {
			next = min(next, left)
			continue
		}
		due = append(due, r)
	}
	if len(due) == 0 {
		return next
	}
	s.mu.Lock()
	s.leave(due)
	s.mu.Unlock()
	questions := s.questions(due, now)
	if !s.group.Go(func(context.Context) { s.travel(due, questions, now) }) {
		s.arrive(due, questions, now, errStopped())
	}
	return next
}

// leave makes trips not pending any more. The caller holds the lock.
func (s *Sharing) leave(trips []*trip) {
	for _, r := range trips {
		r.left = true
		first := r.legs[0].lease
		first.pending = slices.DeleteFunc(first.pending, func(o *trip) bool { return o == r })
	}
	s.pending = slices.DeleteFunc(s.pending, func(r *trip) bool { return r.left })
}

// takeQueue makes a trip for each lease that asks for tokens.
func (s *Sharing) takeQueue() {
	for e := s.queue.Swap(nil); e != nil; {
		next := e.next
		e.queued.Store(false)
		s.mu.Lock()
		s.pendAlone(e)
		s.mu.Unlock()
		e = next
	}
}

// untilDue returns how long r must still wait because an earlier trip for one of its buckets has
// not returned, or has left a short time ago. If it has not returned, its return wakes the
// goroutine.
func (r *trip) untilDue(mono int64) time.Duration {
	var left time.Duration
	for i := range r.legs {
		e := r.legs[i].lease
		e.mu.Lock()
		if e.flying > 0 {
			left = max(left, tripTimeout)
		}
		if e.sent != 0 {
			left = max(left, time.Duration(e.sent-mono)+tripInterval)
		}
		e.mu.Unlock()
	}
	return left
}

// questions returns the questions of the trips, and marks their leases as on their way. If a
// pipeline has several trips for a bucket, only the first asks for tokens ahead of use.
func (s *Sharing) questions(trips []*trip, now Instant) []Question {
	version, generation := s.cfg.Version(), s.cfg.Store.Generation()
	qs := make([]Question, len(trips))
	first := map[*Lease]bool{}
	for i, r := range trips {
		q := &qs[i]
		q.Requests, r.generation = r.requests, generation
		for j := range r.legs {
			e, amount := r.legs[j].lease, r.legs[j].amount
			t := e.params.take(e.name.String(), amount, version)
			t.Force = r.force
			if s.cfg.Mode == Leased {
				t.Number = s.nextNumber()
			}
			e.mu.Lock()
			e.flying++
			e.sent = max(1, now.Mono)
			t.Known, t.Birth = e.known(now.Mono), e.birth
			if e.heard != generation {
				t.Birth = AnyBirth
			}
			if !first[e] {
				first[e] = true
				e.debt.report(&t, now.Mono, e.params.window, generation, s.nextNumber)
				if s.cfg.Mode == Leased && !r.force {
					e.askAhead(&t, r.requests*amount, now.Mono)
				}
			}
			e.mu.Unlock()
			q.Takes = append(q.Takes, t)
		}
	}
	return qs
}

// askAhead sets the tokens that e asks for later use: as many as the node will spend within the
// horizon, if it goes on as since the last trip. The caller holds the lock.
func (e *Lease) askAhead(t *Take, requests, mono int64) {
	t.Left, t.Outstanding = tokensAt(e.tokens.Load(), mono), e.params.ahead()
	if t.Outstanding == 0 {
		return
	}
	spent := max(0, e.held-t.Left) + e.taken + requests
	elapsed := max(int64(tripInterval), mono-e.asked)
	wish := min(spent, maxTokens)*int64(grantHorizon)/elapsed + 1
	t.Ahead = max(0, min(wish, t.Outstanding)-t.Left)
	e.asked, e.taken = mono, 0
}

// known returns the least number of used requests that the node knows of, rounded up: the number
// that the store has returned, less what was regained since. If the store has lost its levels, the
// highest number that any node knows becomes the level again. The caller holds the lock.
func (e *Lease) known(mono int64) int64 {
	word := e.bucket.state.Load()
	if word == closed {
		return 0
	}
	return e.params.requests(min(e.params.used(word, mono)+e.params.cost-1, e.params.span))
}

// travel asks the questions and delivers the answers.
func (s *Sharing) travel(trips []*trip, questions []Question, now Instant) {
	ctx, cancel := context.WithTimeout(s.group.Grace(), tripTimeout)
	defer cancel()
	s.stats.trips.Add(int64(len(trips)))
	s.stats.pipelines.Add(1)
	s.arrive(trips, questions, now, s.cfg.Store.Ask(ctx, questions))
}

// arrive delivers the answers to the trips that left at now.
func (s *Sharing) arrive(trips []*trip, questions []Question, now Instant, err error) {
	lost := false
	for i, r := range trips {
		q := &questions[i]
		if !q.Answered {
			r.err, lost = err, true
			if err == nil {
				r.err = errLost()
			}
		}
		r.mono, r.admitted = now.Mono, q.Admitted
		for j := range q.Takes {
			s.land(r, &r.legs[j], &q.Takes[j], now)
		}
	}
	if lost && err != nil {
		s.lose(err)
	}
	for _, r := range trips {
		close(r.done)
	}
	s.wake.Notify()
}

// land takes the answer t to r about one of its legs.
func (s *Sharing) land(r *trip, l *leg, t *Take, now Instant) {
	e := l.lease
	e.mu.Lock()
	defer e.mu.Unlock()
	e.flying--
	if r.err != nil {
		return
	}
	if t.Behind {
		r.behind, r.newer = true, max(r.newer, t.Newer)
		return
	}
	s.settle(e, t)
	word := e.params.unitsAt(now.Mono) + e.params.usedUnits(t)
	l.word, l.granted = word, t.Granted
	l.answer = answer{level: t.Level, part: t.LevelPart, time: t.Time, generation: r.generation}
	e.hear(word)
	e.taken, e.heard = e.taken+r.admitted*l.amount, r.generation
	if t.Born != 0 {
		e.birth = t.Born
	}
	if t.Left < 0 {
		return
	}
	s.stats.granted.Add(t.Granted)
	e.held = t.Left + t.Granted
	e.half.Store(e.held / 2)
	lapses := now.Mono/int64(time.Millisecond) + grantLife
	e.grantedBy(l.answer.until(uint64(lapses)), tokensAt(e.tokens.Load(), s.cfg.Now().Mono), t.Granted)
	for {
		w := e.tokens.Load()
		if w == closed {
			return
		}
		left := tokensAt(w, s.cfg.Now().Mono)
		if e.tokens.CompareAndSwap(w, packLease(left+t.Granted, lapses)) {
			return
		}
	}
}

// grantedBy notes that the node, which has left tokens, is granted more by the answer a. Tokens are spent
// in the order in which they were granted. The caller holds the lock.
func (e *Lease) grantedBy(a *answer, left, granted int64) {
	switch {
	case left == 0:
		e.origin.Store(a)
	case left <= e.newest:
		e.origin.Store(e.last.until(a.lapses))
	}
	if granted > 0 || left == 0 {
		e.last, e.newest = a, granted
	}
}

// settle takes the answer to a report. The rest of a debt is reported again, and until then the
// share has so much less for another loss of the store. The caller holds the lease's lock.
func (s *Sharing) settle(e *Lease, t *Take) {
	now := s.cfg.Now()
	if t.DebtNumber > 0 {
		e.debt.settle(t.DebtNumber, t.Charged, now.Mono, e.params.window)
	}
	if e.debt.isZero() {
		s.mu.Lock()
		delete(s.indebted, e)
		s.mu.Unlock()
		return
	}
	if rest := t.Debt - t.Charged; rest > 0 {
		e.burden(rest, now)
	}
	s.enqueue(e)
}

// burden makes at least n requests of the node's share used, even if the share has fewer.
func (e *Lease) burden(n int64, now Instant) {
	h := e.shadow.Load()
	if h == nil {
		return
	}
	at := h.params.unitsAt(now.Mono)
	hi, units := bits.Mul64(uint64(n), h.params.cost)
	if hi > 0 {
		units = maxWord
	}
	h.raise(at + min(units, maxWord-at))
}

// catchUp puts in force the change that the store knows and this node does not. If there is no such
// change, the store remembers a configuration that the database does not have any more, for example
// because a backup was restored. Then the store must take over this node's configuration.
func (s *Sharing) catchUp(ctx context.Context, r *trip) error {
	select {
	case s.catching <- struct{}{}:
		defer func() { <-s.catching }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if r.settled {
		return nil
	}
	if err := s.cfg.CatchUp(ctx); err != nil {
		return &fault.Error{Code: fault.Unavailable, Message: "the configuration cannot be read at the moment: try again", Err: err}
	}
	r.settled = true
	for i := range r.legs {
		if r.legs[i].lease.tokens.Load() == closed { // it has new parameters now
			return nil
		}
	}
	if s.cfg.Version() <= r.newer {
		now, again := s.cfg.Now(), newTrip(slices.Clone(r.legs))
		again.force = true
		s.travel([]*trip{again}, s.questions([]*trip{again}, now), now)
	}
	return nil
}

func (s *Sharing) nextNumber() int64 { return s.numbers.Add(1) }
