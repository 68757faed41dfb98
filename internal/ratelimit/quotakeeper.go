package ratelimit

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/service"
)

// QuotaKeeperConfig configures a QuotaKeeper.
type QuotaKeeperConfig struct {
	Store   QuotaStore                              // where quotas are kept; required
	Process string                                  // names this process among all, also earlier ones; "" means a random name
	Alone   bool                                    // no other process shares the store while this one runs
	Nodes   func() int                              // returns the number of nodes that live; nil means 1
	Now     func() time.Time                        // the wall clock; nil means time.Now
	Steer   func(now time.Time, took time.Duration) // receives the time by the store's clock, and the duration of the call that returned it; nil ignores it
	Full    func(accountID string) bool             // an account may raise no more events for now; nil means that none is full
	Log     *slog.Logger                            // receives failures; nil discards them
}

// QuotaKeeper owns the quotas of this process.
//
// It takes units in the store ahead of use, so that the store never has fewer than were used: no crash, and no number of
// nodes, lets more than the count pass. A crash loses what is left of the ranges, which is a hundredth of the count in
// all, or one unit (plans.md, section 4). When that is used up, or little is left of the count, units are taken only as
// requests wait for them. One goroutine makes all claims, in rounds of up to 400.
type QuotaKeeper struct {
	cfg     QuotaKeeperConfig
	shards  [shards]quotaShard
	count   atomic.Int64          // of quotas
	lost    atomic.Bool           // the last round failed
	settles atomic.Int64          // how often requests have settled what the word of a quota does not have
	saved   atomic.Int64          // how many of these are in the store
	queue   atomic.Pointer[Quota] // the quotas that have asked, linked by next
	wake    service.Signal        // somebody waits for the next round
	soon    service.Signal        // there is work for which nobody waits
	group   service.Group

	// Used only by the goroutine.
	pending []*Quota // of the present round
	rest    []*Quota // that have asked, oldest first or in turn, and were in no round yet; their queued is true
	holds   bool     // some quota may have units left
	ending  bool     // no more units are taken

	mu      sync.Mutex
	round   *round // the round that will serve new requests
	failing error  // of the last round, until a round succeeds
	stopped bool
}

const (
	quotasAtOnce = 400                    // claims of one call of the store; each is up to 4 rows
	recallEvery  = 100 * time.Millisecond // how often the store is asked what other processes need
	recallWait   = 500 * time.Millisecond // how long Settle waits for the others
	quotaSweep   = time.Minute
	quotaPause   = 25 * time.Millisecond // between rounds, unless somebody waits for one
	syncTimeout  = time.Second           // of Sync
	idleSweeps   = 10                    // after so many without use, a range is given back
)

// NewQuotaKeeper returns a QuotaKeeper that is not started. The only error is a missing QuotaKeeperConfig.Store.
func NewQuotaKeeper(cfg QuotaKeeperConfig) (*QuotaKeeper, error) {
	if cfg.Store == nil {
		return nil, errors.New("ratelimit: QuotaKeeperConfig.Store is required")
	}
	if cfg.Nodes == nil {
		cfg.Nodes = func() int { return 1 }
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Steer == nil {
		cfg.Steer = func(time.Time, time.Duration) {}
	}
	if cfg.Full == nil {
		cfg.Full = func(string) bool { return false }
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Process = cmp.Or(cfg.Process, rand.Text())
	k := &QuotaKeeper{cfg: cfg, wake: service.NewSignal(), soon: service.NewSignal(), round: &round{done: make(chan struct{})}}
	for i := range k.shards {
		empty := newIndex[Quota](0)
		k.shards[i].current.Store(&empty)
	}
	return k, nil
}

// Start claims in the background until Stop.
func (k *QuotaKeeper) Start(context.Context) error {
	if err := k.group.Start(); err != nil {
		return fmt.Errorf("start the keeper of quotas: %w", err)
	}
	k.group.Go(k.run)
	return nil
}

// Stop finishes the current round, unless ctx ends first, and gives back what is left of all ranges. From then on, no
// more is taken.
func (k *QuotaKeeper) Stop(ctx context.Context) error {
	k.mu.Lock()
	again := k.stopped
	k.stopped = true
	k.mu.Unlock()
	if err := k.group.Stop(ctx); err != nil {
		return fmt.Errorf("stop the keeper of quotas: %w", err)
	}
	if again {
		return nil
	}
	k.mu.Lock()
	current := k.round
	k.mu.Unlock()
	current.err = errStopped()
	close(current.done)
	k.ending = true
	var all []*Quota
	k.each(func(q *Quota) {
		q.release()
		all = append(all, q)
	})
	for len(all) > 0 {
		n := min(len(all), quotasAtOnce)
		if err := k.claim(ctx, all[:n]); err != nil {
			return fmt.Errorf("give back what is left of quotas: %w", err)
		}
		all = all[n:]
	}
	return nil
}

// Count returns how many quotas this process counts.
func (k *QuotaKeeper) Count() int { return int(k.count.Load()) }

func (k *QuotaKeeper) run(ctx context.Context) {
	rounds := k.group.Grace() // a round that has begun is finished
	sweep := time.NewTicker(quotaSweep)
	defer sweep.Stop()
	var retry, recall, pause <-chan time.Time // nil unless the last round failed, this process holds units, and a round was just made
	due := false                              // there is work for which nobody waits, after the pause
	serve := func() {
		retry, pause, due = nil, time.After(quotaPause), false
		if !k.serve(rounds) {
			retry = time.After(retryAfter)
		}
	}
	for {
		if recall == nil && k.holds && !k.cfg.Alone {
			recall = time.After(recallEvery)
		}
		select {
		case <-ctx.Done():
			return
		case <-retry:
			serve()
		case <-k.wake:
			if retry == nil {
				serve()
			}
		case <-k.soon:
			if due = true; retry == nil && pause == nil {
				serve()
			}
		case <-pause:
			if pause = nil; retry == nil && due {
				serve()
			}
		case <-recall:
			if recall = nil; retry == nil {
				k.answer(rounds)
			}
		case <-sweep.C:
			k.sweep()
		}
	}
}

// serve runs one round and wakes those who wait for it. It reports whether the round succeeded.
func (k *QuotaKeeper) serve(ctx context.Context) bool {
	k.mu.Lock()
	current := k.round
	k.round = &round{done: make(chan struct{})}
	k.mu.Unlock()
	settles := k.settles.Load()
	err := k.claim(ctx, k.take())
	if err == nil && len(k.rest) == 0 {
		k.saved.Store(settles)
	}
	k.lost.Store(err != nil)
	if err != nil {
		k.cfg.Log.Error("counting quotas failed; it is tried again once a second", "error", err)
		err = &fault.Error{Code: fault.Unavailable, Message: quotaNotCounted, Err: err}
	}
	k.mu.Lock()
	k.failing = err
	k.mu.Unlock()
	current.err = err
	close(current.done)
	return err == nil
}

const quotaNotCounted = "the quota cannot be counted at the moment: try again"

// take returns up to quotasAtOnce quotas that have asked: first those that requests or Settle wait for, in turn between
// accounts, so that an account that asks for very many delays no other one. The others stay for the next round.
func (k *QuotaKeeper) take() []*Quota {
	all, known := k.rest, len(k.rest)
	for q := k.queue.Swap(nil); q != nil; q = q.next {
		all = append(all, q)
	}
	slices.Reverse(all[known:]) // the queue has the newest first
	k.pending, k.rest = inTurn(k.pending[:0], all)
	for _, q := range k.pending {
		q.queued.Store(false)
	}
	if len(k.rest) > 0 {
		k.wake.Notify()
	}
	return k.pending
}

// inTurn appends up to quotasAtOnce of all to taken, and returns the rest, in which those of an account keep their order.
func inTurn(taken, all []*Quota) (_, rest []*Quota) {
	if len(all) <= quotasAtOnce {
		taken = append(taken, all...)
		clear(all)
		return taken, all[:0]
	}
	return takeUrgentFirst(taken, all, quotasAtOnce, (*Quota).isUrgent, func(q *Quota) string { return q.name.name.AccountID })
}

// claimant is a quota that claims, with the earlier window for which it does, or nil for the present one.
type claimant struct {
	quota *Quota
	past  *quotaSpan
}

// collect adds what requests have settled to what this process has taken in an earlier window.
func (s *quotaSpan) collect() {
	if n := s.settled.Load(); n != s.counted {
		s.taken, s.counted, s.unsaved = max(0, s.taken+n-s.counted), n, true
	}
}

// claimOf returns the claim by which the store learns what this process has taken in an earlier window.
func (q *Quota) claimOf(past *quotaSpan) QuotaClaim {
	t := q.terms.Load()
	return QuotaClaim{
		QuotaKey: q.key(), Terms: t, Calendar: t.Calendar.With(q.own.Load()), Holder: q.holder,
		Window: time.Unix(0, past.start).UTC(), Own: QuotaFigures{Taken: past.taken},
	}
}

// forget drops the earlier windows in which no request can change anything any more.
func (q *Quota) forget() {
	q.past = slices.DeleteFunc(q.past, func(s *quotaSpan) bool {
		if s.open.Load() > 0 || s.settled.Load() != s.counted || s.unsaved {
			s.idle = 0
			return false
		}
		s.idle++ // a decision may have charged it, and not noted this yet
		return s.idle > 1
	})
}

// isUrgent reports whether requests or Settle wait for the quota.
func (q *Quota) isUrgent() bool { return q.flush.Load() || q.waiting.Load() > 0 }

// claim claims for quotas, as far as they need it.
func (k *QuotaKeeper) claim(ctx context.Context, quotas []*Quota) error {
	claims, of := make([]QuotaClaim, 0, len(quotas)), make([]claimant, 0, len(quotas))
	nodes := int64(k.cfg.Nodes())
	for _, q := range quotas {
		if len(claims) >= quotasAtOnce {
			if !q.queued.Swap(true) {
				k.rest = append(k.rest, q)
			}
			continue
		}
		if c, ok := q.prepare(k.cfg.Now().UnixNano(), nodes); ok {
			claims, of = append(claims, c), append(of, claimant{q, nil})
		}
		for _, past := range q.past {
			if past.collect(); past.unsaved {
				claims, of = append(claims, q.claimOf(past)), append(of, claimant{q, past})
			}
		}
	}
	if len(claims) == 0 {
		return nil
	}
	began := time.Now()
	now, err := k.cfg.Store.ClaimQuotas(ctx, k.cfg.Process, k.cfg.Now(), claims)
	if !now.IsZero() {
		k.cfg.Steer(now, time.Since(began))
	}
	if err != nil {
		for _, c := range of {
			c.quota.unsaved = c.quota.unsaved || c.past == nil
			k.enqueue(c.quota)
		}
		return fmt.Errorf("claim quotas: %w", err)
	}
	at := k.cfg.Now().UnixNano()
	for i, c := range of {
		q := c.quota
		if err := claims[i].Err; err != nil {
			q.refused.Store(&err)
			continue
		}
		if c.past != nil {
			c.past.unsaved = false
			continue
		}
		q.refused.Store(nil)
		q.apply(&claims[i], at, nodes)
		k.holds = k.holds || q.holds()
	}
	return nil
}

// ahead returns how many units this process should hold: half of what crashes may still lose, and at most a quarter of the
// node's share of what remains of the window. Near the end of the count, and where a request needs more, it is 0.
func (q *Quota) ahead(t *QuotaTerms, s *quotaState, left, nodes int64) int64 {
	size := max(0, budgetOf(t.Count)-s.others.Reserved) / 2
	if !t.Allow {
		size = min(size, (t.limit(s.grants)-s.used(left))/(4*nodes))
	}
	if size < q.largest.Load() {
		return 0
	}
	return max(0, size)
}

// prepare returns the claim that the quota needs; ok is false if it needs none.
func (q *Quota) prepare(wall, nodes int64) (c QuotaClaim, ok bool) {
	t := q.terms.Load()
	if t == nil || quotaWord(q.word.Load()) == closedQuota {
		return c, false
	}
	s := q.state.Load()
	wants, flush := q.wants.Swap(false), q.flush.Swap(false)
	if recalled := q.recall.Swap(false); recalled || !q.isNow(s, wall) || t.Count < s.under {
		q.release()
		flush = flush || recalled
	}
	q.collect()
	s = q.state.Load()
	left := quotaWord(q.word.Load()).left()
	size := q.ahead(t, s, left, nodes)
	if left > max(2*size, 1) && q.waiting.Load() == 0 { // refunds, or a count that was lowered
		q.release()
		s, left = q.state.Load(), 0
	}
	c = QuotaClaim{
		QuotaKey: q.key(), Terms: t, Calendar: t.Calendar.With(q.own.Load()), Holder: q.holder,
		Own: QuotaFigures{s.taken, left}, Need: q.waiting.Load(), Quiet: q.keeper.cfg.Full(q.name.name.AccountID),
	}
	if s.end != 0 {
		c.Window = time.Unix(0, s.start).UTC()
	}
	if q.keeper.ending {
		c.Need, wants = 0, false
	}
	if c.Want = c.Need; (wants || c.Need > 0) && left*2 <= size {
		c.Want += size - left
	}
	return c, c.Want > 0 || flush || q.unsaved || c.Own != q.saved
}

// collect adds to the state what passed while the store was lost, and what requests have settled.
func (q *Quota) collect() {
	s, over := q.state.Load(), int64(0)
	if s.end != 0 {
		over = q.over.Load()
	}
	settled := s.span.settled.Load()
	if over == 0 && settled == s.counted {
		return
	}
	q.over.Add(-over)
	q.change(func(s quotaState, left int64) (quotaState, int64) {
		s.taken, s.counted = min(max(left, s.taken+over+settled-s.counted), MaxUnits), settled
		return s, left
	})
}

// apply makes the answer to a claim the state of the quota.
func (q *Quota) apply(c *QuotaClaim, at, nodes int64) {
	w, share := &c.Answer, &c.Share
	q.saved, q.unsaved = share.Own, false
	was, unused := q.state.Load(), int64(0)
	q.change(func(s quotaState, left int64) (quotaState, int64) {
		start, end := nanos(w.Start), nanos(w.End)
		if s.start != start || s.end != end {
			s = quotaState{start: start, end: end, span: &quotaSpan{start: start}, taken: share.Own.Taken - c.Granted, turn: s.turn}
			left, unused = 0, left
		}
		if left == 0 {
			s.under = 0
		}
		s.taken += c.Granted
		left += c.Granted
		s.others = QuotaFigures{w.All.Taken - share.Own.Taken, w.All.Reserved - share.Own.Reserved}
		s.hold, s.grants, s.under, s.asked = share.OthersHold, w.Grants, max(s.under, c.Terms.Count), at
		s.low = q.ahead(c.Terms, &s, left, nodes) / 2
		if s.low == 0 {
			s.low = -1 // ranges are not taken ahead
		}
		if s.terms != c.Terms {
			s.terms, s.former = c.Terms, s.terms
		}
		s.tell = MaxUnits + 1
		for _, percent := range c.Terms.WarnAt {
			if !slices.Contains(w.Told, percent) {
				s.tell = min(s.tell, c.Terms.unitsAt(percent, w.Grants)-(s.others.Taken-s.others.Reserved))
			}
		}
		if c.Quiet && s.taken-left >= s.tell {
			s.tell, q.unsaved = MaxUnits+1, true // the next sweep lets it tell
		}
		return s, left
	})
	if was.span != q.state.Load().span && was.end != 0 {
		was.span.taken, was.span.counted, was.span.unsaved = was.taken-unused, was.counted, unused > 0
		q.past = append(q.past, was.span)
	}
	if s := q.state.Load(); q.over.Load() != 0 || s.taken-quotaWord(q.word.Load()).left() >= s.tell {
		q.flush.Store(true) // used meanwhile
		q.keeper.enqueue(q)
	}
}

// answer gives back what other processes need.
func (k *QuotaKeeper) answer(ctx context.Context) {
	keys, err := k.cfg.Store.RecalledQuotas(ctx, k.cfg.Process, quotasAtOnce)
	if err != nil {
		k.cfg.Log.Warn("reading which quotas other nodes need failed", "error", err)
		return
	}
	for i := range keys {
		if q := k.byKey(&keys[i]); q != nil {
			q.recall.Store(true)
			k.enqueue(q)
			k.wake.Notify()
		}
	}
}

// sweep writes what was used since the last sweep, gives back ranges that were not used for ten minutes, and drops quotas
// that were not used for ten minutes and whose figures are in the store.
func (k *QuotaKeeper) sweep() {
	k.holds = false
	for i := range k.shards {
		s := &k.shards[i]
		s.mu.Lock()
		x := s.current.Load()
		dropped := 0
		x.each(func(n *node[Quota]) {
			if isCounting(n) && n.value.sweep() {
				dropped++
			}
			k.holds = k.holds || n.value.holds()
		})
		if dropped > 0 {
			k.count.Add(int64(-dropped))
			smaller := x.with(isCounting)
			s.current.Store(&smaller)
		}
		s.mu.Unlock()
	}
}

// holds reports whether units are left.
func (q *Quota) holds() bool {
	w := quotaWord(q.word.Load())
	return w != closedQuota && w.left() > 0
}

// sweep reports whether it has closed the quota.
func (q *Quota) sweep() (closed bool) {
	w := quotaWord(q.word.Load())
	s := q.state.Load()
	if w.left() != q.seen.left() || !q.seen.isOf(s) || q.waiting.Load() > 0 {
		q.seen, q.idle = w, 0
	} else {
		q.idle++
	}
	q.forget()
	exact := QuotaFigures{s.taken, w.left()} == q.saved && !q.unsaved && q.over.Load() == 0 && s.span.settled.Load() == s.counted && len(q.past) == 0
	if s.span.open.Load() > 0 {
		q.idle = 0
	}
	switch {
	case q.idle < idleSweeps:
		if !exact {
			q.keeper.enqueue(q)
		}
	case w.left() > 0 || !exact:
		q.recall.Store(true)
		q.keeper.enqueue(q)
	case q.word.CompareAndSwap(uint64(w), uint64(closedQuota)):
		q.name.budget.add(-quotaSize)
		return true
	}
	return false
}

// wait returns when the quota can decide about the amount, so that the caller may decide again. Its errors are those of
// Reserver.Wait.
func (k *QuotaKeeper) wait(ctx context.Context, q *Quota, t *QuotaTerms, amount int64) (err error) {
	need := max(1, amount) // for nothing, too, so that other processes are asked for what they hold
	q.waiting.Add(need)
	defer func() {
		if q.waiting.Add(-need); err != nil {
			k.enqueue(q) // gives back what was taken for it
		}
	}()
	late := time.NewTimer(dailyTimeout)
	defer late.Stop()
	for !q.canDecide(k.cfg.Now().UnixNano(), t, amount) {
		q.ask(t, amount)
		k.mu.Lock()
		current, stopped, failing := k.round, k.stopped, k.failing
		k.mu.Unlock()
		if stopped {
			return errStopped()
		}
		err = failing
		if err == nil {
			k.enqueue(q)
			k.wake.Notify() // the round that has begun may take q from the queue, and then current must begin, too
			err = k.await(ctx, current, late.C, q)
		}
		if refused := q.refused.Load(); err == nil && refused != nil {
			return *refused
		}
		switch {
		case err == nil:
		case t.Allow && k.lost.Load() && ctx.Err() == nil:
			return nil // it passes without the store
		default:
			return err
		}
	}
	return nil
}

// await waits for a round. If others must first give back what they hold, it waits a moment more.
func (k *QuotaKeeper) await(ctx context.Context, r *round, late <-chan time.Time, q *Quota) error {
	select {
	case <-r.done:
		if r.err != nil {
			return r.err
		}
	case <-late:
		return fault.New(fault.Unavailable, quotaNotCounted)
	case <-ctx.Done():
		return ctx.Err()
	}
	if q.state.Load().hold == 0 {
		return nil
	}
	pause := time.NewTimer(recallEvery / 4)
	defer pause.Stop()
	select {
	case <-pause.C:
		return nil
	case <-late:
		return fault.New(fault.Unavailable, quotaNotCounted)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// canDecide reports whether a request of the amount passes or is refused, or the quota is closed.
func (q *Quota) canDecide(wall int64, t *QuotaTerms, amount int64) bool {
	w, s := q.read()
	return w == closedQuota || q.isNow(s, wall) && q.room(wall, t, s, w.left(), amount) != mustReserve
}

// Settle writes to the store what this process has used of the quotas, gives the rest back, and learns what was granted.
// The other processes that live are asked to write what they have used; Settle waits half a second for them at most. Its
// errors are ctx.Err(), and those of the store.
func (k *QuotaKeeper) Settle(ctx context.Context, keys []QuotaKey) error {
	var own []*Quota
	for i := range keys {
		if q := k.byKey(&keys[i]); q != nil && q.terms.Load() != nil {
			q.recall.Store(true) // so that what is left does not seem to be used
			q.flush.Store(true)
			own = append(own, q)
		}
	}
	if len(own) > 0 {
		if err := k.settleOwn(ctx, own); err != nil {
			return err
		}
	}
	if k.cfg.Alone {
		return nil
	}
	return k.settleOthers(ctx, keys)
}

// Sync returns when what requests have taken beyond their reserves before the call is in the store, so that no usage record
// is stored without it; at the latest after a second, or when a round has failed. Its only error is ctx.Err().
func (k *QuotaKeeper) Sync(ctx context.Context) error {
	want := k.settles.Load()
	if k.saved.Load() >= want {
		return nil
	}
	late := time.NewTimer(syncTimeout)
	defer late.Stop()
	for k.saved.Load() < want {
		k.mu.Lock()
		current, stopped, failing := k.round, k.stopped, k.failing
		k.mu.Unlock()
		if stopped || failing != nil {
			return nil
		}
		k.wake.Notify()
		select {
		case <-current.done:
		case <-late.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// settleOwn waits until rounds that begin from now on have claimed for the quotas whose flush is set.
func (k *QuotaKeeper) settleOwn(ctx context.Context, own []*Quota) error {
	for {
		k.mu.Lock()
		current, stopped := k.round, k.stopped
		k.mu.Unlock()
		if stopped {
			return errStopped()
		}
		for _, q := range own {
			k.enqueue(q)
		}
		k.wake.Notify() // as in wait
		select {
		case <-current.done:
			if current.err != nil {
				return current.err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
		// A round claims for quotasAtOnce at most, and not for those that were dropped meanwhile.
		if !slices.ContainsFunc(own, func(q *Quota) bool { return q.flush.Load() && quotaWord(q.word.Load()) != closedQuota }) {
			return nil
		}
	}
}

func (k *QuotaKeeper) settleOthers(ctx context.Context, keys []QuotaKey) error {
	late := time.NewTimer(recallWait)
	defer late.Stop()
	for {
		waiting, err := k.cfg.Store.RecallQuotas(ctx, k.cfg.Process, keys)
		if err != nil {
			return fmt.Errorf("ask the other nodes for what they have used: %w", err)
		}
		if waiting == 0 {
			return nil
		}
		pause := time.NewTimer(recallEvery / 2)
		select {
		case <-pause.C:
		case <-late.C:
			pause.Stop()
			return nil
		case <-ctx.Done():
			pause.Stop()
			return ctx.Err()
		}
	}
}

// Granted makes units that were granted known to this process, if it counts the quota.
func (k *QuotaKeeper) Granted(ctx context.Context, key QuotaKey) error {
	q := k.byKey(&key)
	if q == nil {
		return nil
	}
	return k.Settle(ctx, []QuotaKey{key})
}

// enqueue adds q to the queue of quotas that ask. The next round begins soon, unless wake is notified. It neither blocks
// nor allocates.
func (k *QuotaKeeper) enqueue(q *Quota) {
	if q.queued.Swap(true) {
		return
	}
	for {
		head := k.queue.Load()
		q.next = head
		if k.queue.CompareAndSwap(head, q) {
			break
		}
	}
	k.soon.Notify()
}
