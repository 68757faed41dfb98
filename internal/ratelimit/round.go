package ratelimit

import (
	"context"
	"fmt"
	"time"

	"github.com/keygate/keygate/internal/fault"
)

// sweepEvery is how often the counts of unused keys are dropped.
const sweepEvery = time.Minute

// idleAfter is how long a range may lie unused while there are other nodes.
const idleAfter = 5 * time.Second

// loadByName is the most limits whose counts are read by their names. The day may have a million other counts.
const loadByName = 1000

// retryAfter is how long the Reserver leaves the store alone after a failed round, so that
// requests do not add to the trouble of a store whose disk is full.
const retryAfter = time.Second

// Start reads today's counts and reserves ranges in the background until Stop. Limits may
// be registered before and after Start.
func (r *Reserver) Start(ctx context.Context) error {
	if err := r.group.Start(); err != nil {
		return fmt.Errorf("start the reserver of daily caps: %w", err)
	}
	r.mu.Lock()
	r.started = true
	r.mu.Unlock()
	_ = r.claim(ctx, dayOf(r.now().UnixNano()), nil) // so that the day is the store's
	if err := r.load(ctx, dayOf(r.now().UnixNano())); err != nil {
		return err
	}
	r.group.Go(r.run)
	return nil
}

// claim makes claims on the store, and follows its clock.
func (r *Reserver) claim(ctx context.Context, day int64, claims []DailyClaim) error {
	began := time.Now()
	now, err := r.store.ReserveDaily(ctx, r.node, day, claims)
	if !now.IsZero() {
		r.steer(now, time.Since(began))
	}
	return err
}

// Stop finishes the current round, unless ctx ends first, and returns the unused part of
// the reserved ranges to the store. From then on, decisions by daily caps return
// NeedsReservation.
func (r *Reserver) Stop(ctx context.Context) error {
	r.mu.Lock()
	r.stopped = true
	r.mu.Unlock()
	if err := r.group.Stop(ctx); err != nil {
		return fmt.Errorf("stop the reserver of daily caps: %w", err)
	}

	r.mu.Lock()
	if !r.started || r.released {
		r.mu.Unlock()
		return nil
	}
	r.released = true
	current := r.round
	limits := r.dropped
	for _, limit := range r.limits {
		limits = append(limits, limit)
	}
	r.mu.Unlock()
	current.err = errStopped()
	close(current.done)

	var unused batch
	for _, limit := range limits {
		limit.each(func(d *Daily) { unused.release(d, r.day, packDaily(r.day, 0, 0)) })
	}
	return unused.save(ctx, r, nil)
}

func errStopped() error {
	return fault.New(fault.Unavailable, "the server is shutting down: try again")
}

func (r *Reserver) run(ctx context.Context) {
	rounds := r.group.Grace() // a round that has begun is finished
	timer, idle := time.NewTimer(r.untilTick()), time.NewTicker(idleAfter)
	defer timer.Stop()
	defer idle.Stop()
	var retry <-chan time.Time // nil unless the last round failed
	serve := func() {
		if retry = nil; !r.serve(rounds) {
			retry = time.After(retryAfter)
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-retry:
			serve()
		case <-r.wake:
			if retry == nil {
				serve()
			}
		case <-idle.C:
			if retry == nil && r.nodes() > 1 {
				r.giveBack(rounds)
			}
		case <-timer.C:
			if retry == nil {
				serve()
				r.sweep(rounds)
			}
			timer.Reset(r.untilTick())
		}
	}
}

// untilTick returns the time until the next sweep, or until midnight if that is sooner.
func (r *Reserver) untilTick() time.Duration {
	return min(sweepEvery, time.Duration(dayLength-r.now().UnixNano()%dayLength))
}

// serve runs one round and wakes those who wait for it. It reports whether the round succeeded.
func (r *Reserver) serve(ctx context.Context) bool {
	end := r.begin()
	err := r.reserve(ctx, func() { end(nil) })
	end(err)
	return err == nil
}

// begin begins a round and returns the function that ends it, which wakes those who wait for the round. When that
// function is called again, it only keeps the error.
func (r *Reserver) begin() (end func(err error)) {
	r.mu.Lock()
	current := r.round
	r.round = &round{done: make(chan struct{})}
	r.mu.Unlock()
	ended := false
	return func(err error) {
		if err != nil {
			r.log.Error("reserving daily limits failed; it is tried again once a second", "error", err)
			err = &fault.Error{Code: fault.Unavailable, Message: notCounted, Err: err}
		}
		r.mu.Lock()
		r.failing = err
		r.mu.Unlock()
		if !ended {
			ended = true
			current.err = err
			close(current.done)
		}
	}
}

// serveWaiting is a round within another round that has more counts to save than one call of the store takes. It serves
// up to claimsAtOnce caps for which requests wait, so that no request waits because others use, or give up, the caps of
// many keys.
func (r *Reserver) serveWaiting(ctx context.Context) {
	r.mu.Lock()
	stopped := r.stopped
	r.mu.Unlock()
	if r.within || stopped || r.stale || r.day != dayOf(r.now().UnixNano()) {
		return
	}
	r.within = true
	defer func() { r.within = false }()
	var b batch
	waiting, others := partition(r.takeQueue(nil), (*Daily).isUrgent)
	for _, d := range r.some(waiting) {
		b.extend(d, r.day)
	}
	for _, d := range others {
		r.enqueue(d)
	}
	if len(b.claims) == 0 {
		return
	}
	end := r.begin()
	end(b.save(ctx, r, func(claims []DailyClaim, of []*Daily) { open(claims, of, r.day) }))
}

// isUrgent reports whether requests wait for the cap.
func (d *Daily) isUrgent() bool { return d.waiting.Load() > 0 }

// some returns as many caps as one call of the store may have, of all accounts in turn, so that an account that asks for
// very many delays no other one. The next round serves the others.
func (r *Reserver) some(waiting []*Daily) []*Daily {
	taken, rest := takeInTurn(nil, waiting, r.atOnce, (*Daily).owner)
	for _, d := range rest {
		r.enqueue(d)
	}
	return taken
}

// reserve serves the caps that have asked for a range. If there are many, it serves some of those for which requests wait
// first, and then calls served.
func (r *Reserver) reserve(ctx context.Context, served func()) error {
	r.mu.Lock()
	dropped, resized := r.dropped, r.resized
	r.dropped, r.resized = nil, nil
	r.mu.Unlock()

	// A dropped limit may be registered again: save its count before reading the store.
	var last batch
	for _, limit := range dropped {
		limit.each(func(d *Daily) { last.release(d, r.day, closedDaily) })
		limit.uncount()
	}
	if err := last.save(ctx, r, nil); err != nil {
		r.log.Warn("returning the unused part of a dropped daily limit failed", "error", err)
	}

	today := dayOf(r.now().UnixNano())
	for _, limit := range resized {
		r.stale = r.stale || limit.day != today
	}
	if r.stale || r.day != today {
		if err := r.load(ctx, today); err != nil {
			return err
		}
	}
	for _, limit := range resized {
		limit.each(r.enqueue)
	}

	var first, rest batch
	r.pending = r.takeQueue(r.pending[:0])
	many := len(r.pending) > r.atOnce
	now, later := r.pending, []*Daily(nil)
	if many {
		now, later = partition(r.pending, (*Daily).isUrgent)
		now = r.some(now)
	}
	for _, d := range now {
		first.extend(d, today)
	}
	for _, d := range later {
		rest.extend(d, today)
	}
	clear(r.pending)
	opened := func(claims []DailyClaim, of []*Daily) { open(claims, of, today) }
	if err := first.save(ctx, r, opened); err != nil {
		rest.forget(0)
		return err
	}
	if len(rest.claims) > 0 {
		served()
	}
	return rest.save(ctx, r, opened)
}

// load reads the counts of today and sets all limits to them that are still at another day.
func (r *Reserver) load(ctx context.Context, today int64) error {
	r.stale = true
	r.mu.Lock()
	behind := make(map[limitKey]*dailyLimit)
	var ids []string
	for k, limit := range r.limits {
		if limit.day != today {
			behind[k], ids = limit, append(ids, k.id)
		}
	}
	r.mu.Unlock()
	if len(ids) > loadByName {
		ids = nil // all
	}

	var counts []DailyCount
	if len(behind) > 0 {
		var err error
		if counts, err = r.store.LoadDailyCounts(ctx, r.node, today, ids...); err != nil {
			return fmt.Errorf("load daily counts: %w", err)
		}
	}
	known := groupCounts(counts, behind)
	var last batch
	for _, limit := range behind { // the clock may be set back to the day that has ended
		limit.each(func(d *Daily) { last.release(d, r.day, packDaily(r.day, 0, 0)) })
	}
	if err := last.save(ctx, r, nil); err != nil {
		r.log.Warn("returning the unused part of the last day's limits failed", "error", err)
	}
	for k, limit := range behind {
		limit.startDay(today, known[k])
	}
	r.day, r.stale = today, false
	return nil
}

// sweep drops the counts of keys that were not used since the last sweep. A key with a reserved
// range first gives the range back, and is dropped by the next sweep.
func (r *Reserver) sweep(ctx context.Context) {
	r.mu.Lock()
	limits := make([]*dailyLimit, 0, len(r.limits))
	for _, limit := range r.limits {
		limits = append(limits, limit)
	}
	r.mu.Unlock()

	var unused batch
	for _, limit := range limits {
		for _, d := range limit.evict() {
			unused.release(d, r.day, packDaily(r.day, 0, 0))
			d.seen = d.load()
		}
	}
	if err := unused.save(ctx, r, nil); err != nil {
		r.log.Warn("returning the unused part of idle daily limits failed", "error", err)
	}
}

// giveBack gives back the ranges of caps that were not used since the last call, so that other nodes
// can use them.
func (r *Reserver) giveBack(ctx context.Context) {
	r.mu.Lock()
	limits := make([]*dailyLimit, 0, len(r.limits))
	for _, limit := range r.limits {
		limits = append(limits, limit)
	}
	r.mu.Unlock()

	var unused batch
	for _, limit := range limits {
		limit.each(func(d *Daily) {
			if w := d.load(); w == d.seenHeld && w.left() > 0 {
				unused.release(d, r.day, packDaily(r.day, 0, 0))
			}
			d.seenHeld = d.load()
		})
	}
	if err := unused.save(ctx, r, nil); err != nil {
		r.log.Warn("returning the unused part of idle daily limits failed", "error", err)
	}
}
