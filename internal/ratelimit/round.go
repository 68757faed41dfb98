package ratelimit

import (
	"context"
	"fmt"
	"time"

	"github.com/keygate/keygate/internal/fault"
)

// sweepEvery is how often counts of keys that nobody uses are dropped.
const sweepEvery = time.Minute

// Start reads today's counts and reserves in the background until Stop. Limits may be
// registered before and after.
func (l *Reserver) Start(ctx context.Context) error {
	if err := l.group.Start(); err != nil {
		return fmt.Errorf("start the reserver of daily caps: %w", err)
	}
	l.mu.Lock()
	l.started = true
	l.mu.Unlock()
	if err := l.load(ctx, dayOf(l.now().UnixNano())); err != nil {
		return err
	}
	l.group.Go(l.run)
	return nil
}

// Stop finishes the round that runs, unless ctx ends first, and gives back to the store
// what was reserved and not used. Decisions by daily caps are NeedsReservation from then
// on.
func (l *Reserver) Stop(ctx context.Context) error {
	l.mu.Lock()
	l.stopped = true
	l.mu.Unlock()
	if err := l.group.Stop(ctx); err != nil {
		return fmt.Errorf("stop the reserver of daily caps: %w", err)
	}

	l.mu.Lock()
	if !l.started || l.released {
		l.mu.Unlock()
		return nil
	}
	l.released = true
	r := l.round
	limits := l.dropped
	for _, limit := range l.limits {
		limits = append(limits, limit)
	}
	l.mu.Unlock()
	r.err = errStopped()
	close(r.done)

	var unused batch
	for _, limit := range limits {
		limit.each(func(d *Daily) { unused.release(d, l.day, packDaily(l.day, 0, 0)) })
	}
	return unused.save(ctx, l.store)
}

func errStopped() error {
	return fault.New(fault.Unavailable, "the server is shutting down: try again")
}

func (l *Reserver) run(ctx context.Context) {
	rounds := l.group.Grace() // a round that has begun is finished
	timer := time.NewTimer(l.untilTick())
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
			l.serve(rounds)
		case <-timer.C:
			l.serve(rounds)
			l.sweep(rounds)
			timer.Reset(l.untilTick())
		}
	}
}

// untilTick returns the time to the next sweep, or to midnight if that is sooner.
func (l *Reserver) untilTick() time.Duration {
	return min(sweepEvery, time.Duration(dayLength-l.now().UnixNano()%dayLength))
}

// serve does one round and tells those who wait for it.
func (l *Reserver) serve(ctx context.Context) {
	l.mu.Lock()
	r := l.round
	l.round = &round{done: make(chan struct{})}
	l.mu.Unlock()

	if err := l.reserve(ctx); err != nil {
		l.log.Error("daily limits cannot be reserved", "error", err)
		r.err = &fault.Error{Code: fault.Unavailable, Message: "the daily limit cannot be counted now: try again", Err: err}
	}
	close(r.done)
}

// reserve serves every cap that asked.
func (l *Reserver) reserve(ctx context.Context) error {
	l.mu.Lock()
	dropped, resized := l.dropped, l.resized
	l.dropped, l.resized = nil, nil
	l.mu.Unlock()

	// What is dropped may come back: its last word goes to the store before anything is read.
	var last batch
	for _, limit := range dropped {
		limit.each(func(d *Daily) { last.release(d, l.day, closedDaily) })
	}
	if err := last.save(ctx, l.store); err != nil {
		l.log.Warn("the unused part of a dropped daily limit is lost", "error", err)
	}

	today := dayOf(l.now().UnixNano())
	for _, limit := range resized {
		l.stale = l.stale || limit.day != today
	}
	if l.stale || l.day != today {
		if err := l.load(ctx, today); err != nil {
			return err
		}
	}
	for _, limit := range resized {
		limit.each(l.enqueue)
	}

	var b batch
	l.pending = l.takeQueue(l.pending[:0])
	for _, d := range l.pending {
		b.extend(d, today)
	}
	clear(l.pending)
	if err := b.save(ctx, l.store); err != nil {
		return err
	}
	b.open(today)
	return nil
}

// load reads the counts of today and sets all limits to them that are of another day.
func (l *Reserver) load(ctx context.Context, today int64) error {
	l.stale = true
	l.mu.Lock()
	behind := make(map[limitKey]*dailyLimit)
	for k, limit := range l.limits {
		if limit.day != today {
			behind[k] = limit
		}
	}
	l.mu.Unlock()

	var counts []DailyCount
	if len(behind) > 0 {
		var err error
		if counts, err = l.store.LoadDailyCounts(ctx, today); err != nil {
			return fmt.Errorf("load daily counts: %w", err)
		}
	}
	known := groupCounts(counts, behind)
	var last batch
	for _, limit := range behind { // the clock may turn back to the day that ends
		limit.each(func(d *Daily) { last.release(d, l.day, packDaily(l.day, 0, 0)) })
	}
	if err := last.save(ctx, l.store); err != nil {
		l.log.Warn("the unused part of the daily limits of the last day is not given back", "error", err)
	}
	for k, limit := range behind {
		if limit.one != nil && limit.one.load().used() > 0 {
			l.enqueue(limit.one) // it was used the day before, so it will be today
		}
		limit.startDay(today, known[k])
	}
	l.day, l.stale = today, false
	return nil
}

// sweep drops the counts of keys that were not used since the last one. Those that have
// something reserved give it back first, and go with the next sweep.
func (l *Reserver) sweep(ctx context.Context) {
	l.mu.Lock()
	limits := make([]*dailyLimit, 0, len(l.limits))
	for _, limit := range l.limits {
		limits = append(limits, limit)
	}
	l.mu.Unlock()

	var unused batch
	for _, limit := range limits {
		for _, d := range limit.evict() {
			unused.release(d, l.day, packDaily(l.day, 0, 0))
			d.seen = d.load()
		}
	}
	if err := unused.save(ctx, l.store); err != nil {
		l.log.Warn("the unused part of idle daily limits is not given back", "error", err)
	}
}
