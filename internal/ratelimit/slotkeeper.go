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

// SlotKeeperConfig configures a SlotKeeper.
type SlotKeeperConfig struct {
	Store   SlotStore    // where slots are claimed; required
	Process string       // names this process among all, also earlier ones; "" means a random name
	Nodes   func() int   // returns the number of nodes that live; nil means 1
	Serve   bool         // while the store is lost, or the lease has ended, this process counts alone
	Leased  func() bool  // reports whether the lease of this process lasts; nil means always. It is only asked with Serve
	Log     *slog.Logger // receives failures; nil discards them
}

// SlotKeeper claims the slots that this process shares with others. One goroutine makes all claims, in rounds of up to 400.
//
// The store never has less than this process may have in flight: what a process gives back it takes from its requests
// before it writes, and it gives them what was granted after the answer. A process whose lease has ended has nothing
// (Regained).
type SlotKeeper struct {
	cfg         SlotKeeperConfig
	count       atomic.Int64                // of active
	turn        atomic.Uint64               // grants of other turns are void
	regained    atomic.Int64                // how often
	lost        atomic.Bool                 // the last round failed
	alone       atomic.Int64                // slots whose alone is true
	unconfirmed atomic.Int64                // requests that began without a claim
	queue       atomic.Pointer[sharedSlots] // those that have asked, linked by next
	wake        service.Signal              // there is work to do
	later       service.Signal              // there is work that can wait for lingers
	group       service.Group

	// Used only by the goroutine.
	rest   []*sharedSlots // that have asked, oldest first, and were in no round yet; their queued is true
	active map[int64]*sharedSlots
	parts  int64
	soon   []*sharedSlots // of which few are left, and some may be not in use
	seen   time.Time      // the last time by the store's clock
	turned uint64         // the turn of the last round
	ending bool           // nothing more is claimed
	deaf   bool           // the last try to read what others need has failed

	mu      sync.Mutex
	round   *round // the round that will serve new requests
	failing error  // of the last round, until a round succeeds
	stopped bool
}

const (
	slotsAtOnce  = 400                    // claims of one call of the store
	askedEvery   = 50 * time.Millisecond  // how often the store is asked what others need
	slotTick     = 250 * time.Millisecond // how often idle slots are looked for
	idleTicks    = 3                      // after more ticks without use, slots are given back
	soonAfter    = 25 * time.Millisecond  // when few are left, what a request has left is given back
	lingers      = 5 * time.Millisecond   // for how long a slot of a request that has ended waits for another here, when few are left
	slotsTrimmed = time.Minute
)

// NewSlotKeeper returns a SlotKeeper that is not started. The only error is a missing SlotKeeperConfig.Store.
func NewSlotKeeper(cfg SlotKeeperConfig) (*SlotKeeper, error) {
	if cfg.Store == nil {
		return nil, errors.New("ratelimit: SlotKeeperConfig.Store is required")
	}
	if cfg.Nodes == nil {
		cfg.Nodes = func() int { return 1 }
	}
	if cfg.Leased == nil {
		cfg.Leased = func() bool { return true }
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Process = cmp.Or(cfg.Process, rand.Text())
	k := &SlotKeeper{cfg: cfg, wake: service.NewSignal(), later: service.NewSignal(), round: &round{done: make(chan struct{})}, active: map[int64]*sharedSlots{}}
	k.turn.Store(1)
	return k, nil
}

// Share makes slots of a name a part of those that all processes share. Call it before the first decision. For slots that
// are shared already, and with a nil SlotKeeper, it does nothing.
func (k *SlotKeeper) Share(s *Slots, name *Name) {
	if k != nil && s.shared == nil {
		shared := &sharedSlots{slots: s, keeper: k, account: name.Account, name: name.String(), spare: -1}
		shared.low.Store(-1)
		s.shared = shared
	}
}

// Start claims in the background until Stop.
func (k *SlotKeeper) Start(context.Context) error {
	if err := k.group.Start(); err != nil {
		return fmt.Errorf("start the keeper of slots: %w", err)
	}
	k.group.Go(k.run)
	return nil
}

// Stop finishes the current round, unless ctx ends first, and gives everything back. Call it when no request is in flight
// any more.
func (k *SlotKeeper) Stop(ctx context.Context) error {
	k.mu.Lock()
	again := k.stopped
	k.stopped = true
	k.mu.Unlock()
	if err := k.group.Stop(ctx); err != nil {
		return fmt.Errorf("stop the keeper of slots: %w", err)
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
	var all []*sharedSlots
	for _, s := range k.active {
		all = append(all, s)
	}
	for some := range slices.Chunk(all, slotsAtOnce) {
		if err := k.claim(ctx, some); err != nil {
			return fmt.Errorf("give back slots: %w", err)
		}
	}
	return nil
}

// Regained makes everything void that was granted, because the lease of this process had ended: other processes may have
// it. Call it before the process decides about requests again. It does not block. With a nil SlotKeeper it does nothing.
func (k *SlotKeeper) Regained() {
	if k == nil {
		return
	}
	k.turn.Store(1 + uint64(k.regained.Add(1))%(slotTurns-1))
	k.wake.Notify()
}

// Count returns of how many subjects this process has slots. With a nil SlotKeeper it returns 0.
func (k *SlotKeeper) Count() int {
	if k == nil {
		return 0
	}
	return int(k.count.Load())
}

// Unconfirmed returns how many requests began while this process counted alone. With a nil SlotKeeper it returns 0.
func (k *SlotKeeper) Unconfirmed() int64 {
	if k == nil {
		return 0
	}
	return k.unconfirmed.Load()
}

// Degraded returns that this process counts alone, or "". With a nil SlotKeeper it returns "".
func (k *SlotKeeper) Degraded() string {
	if k == nil || !k.cfg.Serve || !k.lost.Load() && k.alone.Load() == 0 && !k.hasLapsed() {
		return ""
	}
	return SlotsAlone
}

// SlotsAlone is what SlotKeeper.Degraded returns.
const SlotsAlone = "slots_unconfirmed"

// hasLapsed reports whether the lease of this process has ended and it goes on, so that others may have what it was granted.
func (k *SlotKeeper) hasLapsed() bool { return k.cfg.Serve && !k.cfg.Leased() }

func (k *SlotKeeper) run(ctx context.Context) {
	rounds := k.group.Grace() // a round that has begun is finished
	tick, trim := time.NewTicker(slotTick), time.NewTicker(slotsTrimmed)
	defer tick.Stop()
	defer trim.Stop()
	var retry, asked, soon, given <-chan time.Time // nil unless the last round failed, this process has slots, k.soon has some, and k.later had a token
	serve := func() {
		if retry = nil; !k.serve(rounds) {
			retry = time.After(retryAfter)
		}
	}
	for {
		if asked == nil && len(k.active) > 0 {
			asked = time.After(askedEvery)
		}
		if soon == nil && len(k.soon) > 0 {
			soon = time.After(soonAfter)
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
		case <-k.later:
			if given == nil {
				given = time.After(lingers)
			}
		case <-given:
			if given = nil; retry == nil {
				serve()
			}
		case <-asked:
			if asked = nil; retry == nil && !k.answer(rounds) {
				asked = time.After(retryAfter)
			}
		case <-soon:
			soon = nil
			k.lookSoon()
		case <-tick.C:
			k.tick()
		case <-trim.C:
			if err := k.cfg.Store.TrimSlots(rounds); err != nil {
				k.cfg.Log.Warn("removing the slots of nodes that have ended failed", "error", err)
			}
		}
	}
}

// serve runs one round and wakes those who wait for it. It reports whether the round succeeded.
func (k *SlotKeeper) serve(ctx context.Context) bool {
	k.mu.Lock()
	current := k.round
	k.round = &round{done: make(chan struct{})}
	k.mu.Unlock()
	if turn := k.turn.Load(); turn != k.turned {
		k.turned = turn
		for _, s := range k.active {
			s.unsaved = true // others may have removed it
			k.enqueue(s)
		}
	}
	err := k.claim(ctx, k.take())
	if lost := k.lost.Swap(err != nil); lost && err == nil {
		k.cfg.Log.Info("requests in flight are counted again")
	}
	if err != nil {
		k.cfg.Log.Error("counting requests in flight failed; it is tried again once a second", "error", err, "alone", k.cfg.Serve)
		err = &fault.Error{Code: fault.Unavailable, Message: slotsNotCounted, Err: err}
	}
	k.mu.Lock()
	k.failing = err
	k.mu.Unlock()
	current.err = err
	close(current.done)
	return err == nil
}

const slotsNotCounted = "requests in flight cannot be counted at the moment: try again"

// take returns up to slotsAtOnce slots that have asked: first those that requests here or on other nodes wait for, in turn between accounts, so
// that an account that asks for very many delays no other one. The others stay for the next round.
func (k *SlotKeeper) take() (taken []*sharedSlots) {
	all, known := k.rest, len(k.rest)
	for s := k.queue.Swap(nil); s != nil; s = s.next {
		all = append(all, s)
	}
	slices.Reverse(all[known:]) // the queue has the newest first
	taken, k.rest = all, nil
	if len(all) > slotsAtOnce {
		taken, k.rest = takeUrgentFirst(nil, all, slotsAtOnce, (*sharedSlots).isUrgent, func(s *sharedSlots) string { return s.account })
		k.wake.Notify()
	}
	for _, s := range taken {
		s.queued.Store(false)
	}
	return taken
}

// isUrgent reports whether requests wait for the slots, here or on other nodes.
func (s *sharedSlots) isUrgent() bool { return s.waiting.Load() > 0 || s.asked.Load() }

// claim claims for slots, as far as they need it.
func (k *SlotKeeper) claim(ctx context.Context, all []*sharedSlots) error {
	claims, of := make([]SlotClaim, 0, len(all)), make([]*sharedSlots, 0, len(all))
	turn, nodes := k.turn.Load(), int64(k.cfg.Nodes())
	for _, s := range all {
		if s.part == 0 {
			k.parts++
			s.part = k.parts
		}
		if k.active[s.part] == nil {
			k.active[s.part] = s
			k.count.Add(1)
		}
		if c, ok := s.prepare(turn, nodes); ok {
			s.unsaved = true
			s.claims.Add(1)
			claims, of = append(claims, c), append(of, s)
		}
	}
	if len(claims) == 0 {
		k.answered(all)
		return nil
	}
	if err := k.cfg.Store.ClaimSlots(ctx, k.cfg.Process, claims); err != nil {
		for _, s := range of {
			k.enqueue(s)
		}
		for _, s := range all {
			if s.alone.Load() {
				k.enqueue(s)
			}
		}
		return fmt.Errorf("claim slots: %w", err)
	}
	for i, s := range of {
		k.saw(claims[i].At)
		s.apply(&claims[i], nodes)
		if s.tight.Load() && !s.idle {
			s.idle = true
			k.soon = append(k.soon, s)
		}
	}
	k.answered(all)
	return nil
}

// answered notes that the store has what it must know of slots.
func (k *SlotKeeper) answered(all []*sharedSlots) {
	for _, s := range all {
		s.setAlone(false)
	}
}

// saw notes a time by the store's clock.
func (k *SlotKeeper) saw(at time.Time) {
	if at.After(k.seen) {
		k.seen = at
	}
}

// lookSoon gives back what requests have left of slots of which there are few.
func (k *SlotKeeper) lookSoon() {
	for _, s := range k.soon {
		s.idle = false
		if w := slotWord(s.slots.word.Load()); w != closedSlots && w.granted() > w.flying() {
			k.enqueue(s)
		}
	}
	k.soon = k.soon[:0]
}

// answer gives back what other processes need, or says that it is in use. It reports whether the store has told; the log
// has one line of several failures in a row.
func (k *SlotKeeper) answer(ctx context.Context) bool {
	parts, at, err := k.cfg.Store.AskedSlots(ctx, k.cfg.Process, slotsAtOnce)
	if err != nil && !k.deaf {
		k.cfg.Log.Warn("reading which slots other nodes need failed; it is tried again once a second", "error", err)
	}
	if k.deaf = err != nil; k.deaf {
		return false
	}
	k.saw(at)
	for _, part := range parts {
		if s := k.active[part]; s != nil {
			s.asked.Store(true)
			k.enqueue(s)
		}
	}
	return true
}

// tick looks for slots that are idle.
func (k *SlotKeeper) tick() {
	nodes := int64(k.cfg.Nodes())
	for part, s := range k.active {
		if s.tick(nodes) {
			delete(k.active, part)
			k.count.Add(-1)
		}
	}
}

// slotWaiting is how a request waits for slots, however often it is decided meanwhile.
type slotWaiting struct {
	until    time.Time    // for all slots; zero before the first wait
	of       *sharedSlots // the last that it has waited for
	before   int64        // sharedSlots.claims when it began to wait for these
	began    int64        // a time since then, by the store's clock in Unix microseconds; 0 if none is known yet
	answered bool         // the store has answered since then
	full     *sharedSlots // all of these are in use, so that the request is to be refused unless some are free by then
}

// wait returns when a request can be decided under a limit of most, so that the caller may decide again. Its errors are
// those of Reserver.Wait.
func (s *sharedSlots) wait(ctx context.Context, most int64, w *slotWaiting) (err error) {
	k := s.keeper
	s.waiting.Add(1)
	defer func() {
		if s.waiting.Add(-1); err != nil {
			k.enqueue(s) // gives back what was claimed for it
		}
	}()
	if w.until.IsZero() {
		w.until = time.Now().Add(slotWait)
	}
	if w.of != s {
		w.of, w.before, w.began, w.answered = s, s.claims.Load(), 0, false
	}
	late := time.NewTimer(time.Until(w.until))
	defer late.Stop()
	for pause := firstPause; !s.canDecide(most); pause = min(2*pause, longestPause) {
		s.ask(most)
		k.mu.Lock()
		current, stopped, failing := k.round, k.stopped, k.failing
		k.mu.Unlock()
		if stopped {
			return errStopped()
		}
		if failing != nil {
			return k.unless(failing)
		}
		k.enqueue(s)
		k.wake.Notify() // the round that has begun may take s from the queue, and then current must begin, too
		select {
		case <-current.done:
			if w.answered = true; current.err != nil {
				return k.unless(current.err)
			}
			if w.began == 0 && s.known.Load() > w.before {
				w.began = s.at.Load()
			}
		case <-late.C:
			return s.end(w)
		case <-ctx.Done():
			return ctx.Err()
		}
		if s.canDecide(most) {
			return nil
		}
		if w.began > 0 && s.fullAt.Load() > w.began {
			w.full = s
			return nil
		}
		again := time.NewTimer(pause)
		select {
		case <-again.C:
		case <-late.C:
			again.Stop()
			return s.end(w)
		case <-ctx.Done():
			again.Stop()
			return ctx.Err()
		}
	}
	return nil
}

// unless returns the error, unless this process counts alone then.
func (k *SlotKeeper) unless(err error) error {
	if k.cfg.Serve && k.lost.Load() {
		return nil
	}
	return err
}

// end ends the wait of a request that got nothing.
func (s *sharedSlots) end(w *slotWaiting) error {
	switch {
	case w.answered:
		w.full = s
		return nil
	case s.keeper.cfg.Serve:
		s.setAlone(true)
		s.keeper.enqueue(s) // until it is answered
		return nil
	default:
		return fault.New(fault.Unavailable, slotsNotCounted)
	}
}

// canDecide reports whether a request passes or is refused, or the slots are closed.
func (s *sharedSlots) canDecide(most int64) bool {
	w := slotWord(s.slots.word.Load())
	return w == closedSlots || w.flying() >= most || s.has(w, most) || s.isAlone()
}

// enqueue adds s to the queue of slots that ask. It neither blocks nor allocates.
func (k *SlotKeeper) enqueue(s *sharedSlots) {
	if k.push(s) {
		k.wake.Notify()
	}
}

// enqueueLater does what enqueue does, for work that can wait for lingers.
func (k *SlotKeeper) enqueueLater(s *sharedSlots) {
	if k.push(s) {
		k.later.Notify()
	}
}

// push adds s to the queue, and reports whether it was not in it.
func (k *SlotKeeper) push(s *sharedSlots) bool {
	if s.queued.Swap(true) {
		return false
	}
	for {
		head := k.queue.Load()
		s.next = head
		if k.queue.CompareAndSwap(head, s) {
			return true
		}
	}
}
