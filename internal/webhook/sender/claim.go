package sender

import (
	"context"
	"crypto/rand"
	"slices"
	"time"
)

// Pauses of the claiming: idlePoll is how long it goes without a look at the
// store, for deliveries that nobody told of; retryStore how long it waits when
// the store failed; sweepEvery how long an endpoint without work is remembered.
const (
	idlePoll   = 5 * time.Second
	retryStore = time.Second
	sweepEvery = time.Minute
)

// claimTime is how long a claim may take.
const claimTime = 10 * time.Second

// claimAll claims deliveries and begins to send them until ctx is done.
func (s *Sender) claimAll(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		wait, again := s.claimOnce(ctx)
		if again {
			continue
		}
		s.sweep()
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-s.wake:
		case <-ctx.Done():
		}
	}
}

// claimOnce makes one claim. It returns how long to wait for the next unless
// something happens before, or that the next should follow at once.
func (s *Sender) claimOnce(ctx context.Context) (wait time.Duration, again bool) {
	c := s.claim()
	if c.Limit <= 0 {
		return idlePoll, false // a place that becomes free wakes us
	}
	// A claim that is cut off may have been made all the same.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimTime)
	defer cancel()
	jobs, err := s.cfg.Queue.ClaimDeliveries(ctx, c)
	if err != nil {
		s.stats.storeErrors.Add(1)
		s.cfg.Log.WarnContext(ctx, "cannot claim webhook deliveries; trying again", "error", err)
		return retryStore, false
	}
	s.stats.claimed.Add(int64(len(jobs)))
	if s.take(c, jobs) {
		return 0, true
	}
	next, err := s.cfg.Queue.NextDelivery(ctx, c.Now)
	if err != nil {
		s.stats.storeErrors.Add(1)
		s.cfg.Log.WarnContext(ctx, "cannot ask for the next webhook delivery; trying again", "error", err)
		return retryStore, false
	}
	return s.waitUntil(c.Now, next), false
}

// claim says what this sender is ready to take.
func (s *Sender) claim() Claim {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Now()
	free := maxHeldInAll - s.held
	s.full = free <= 0
	s.planned = time.Time{}
	clear(s.recalled)
	most := max(1, free/claimShare)
	c := Claim{
		Now: now, Token: rand.Text(), Until: now.Add(leaseTime),
		Limit: free, Each: min(minWindow, most), Room: make(map[string]Room, len(s.busy)),
	}
	for e := range s.busy {
		r := e.room(now)
		r.Any = min(r.Any, most)
		c.Room[e.webhookID] = r
	}
	return c
}

// take begins what a claim brought. It reports whether the next claim should
// follow at once.
func (s *Sender) take(c Claim, jobs []Job) (again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.full = len(jobs) >= c.Limit
	brought := map[*endpoint][]*task{}
	for _, j := range jobs {
		e := s.endpoint(j.Endpoint.WebhookID)
		brought[e] = append(brought[e], &task{Job: j, e: e, until: c.Until})
	}
	if !s.full {
		for e := range s.busy {
			if asked, ok := c.Room[e.webhookID]; ok && len(brought[e]) == 0 {
				e.take(nil, asked, c.Now)
			}
		}
	}
	s.held += len(jobs)
	for e, tasks := range brought {
		asked, ok := c.Room[e.webhookID]
		if !ok {
			asked.Any = c.Each
		}
		slices.SortFunc(tasks, func(a, b *task) int { return a.DueAt.Compare(b.DueAt) })
		e.take(tasks, asked, c.Now)
		s.busy[e] = struct{}{}
		if !asked.Begun && e.paused(c.Now) {
			s.postpone(e) // the breaker opened while the claim was made
		}
		if _, changed := s.recalled[e.webhookID]; changed || e.gone {
			s.takeBack(e)
		}
		s.dispatch(e)
		again = again || e.wants()
	}
	return again && s.held < maxHeldInAll
}

// endpoint returns what is known of an endpoint. The mutex is held.
func (s *Sender) endpoint(webhookID string) *endpoint {
	e := s.endpoints[webhookID]
	if e == nil {
		e = newEndpoint(webhookID)
		s.endpoints[webhookID] = e
	}
	return e
}

// waitUntil returns how long to wait after a claim made at claimed: until next,
// or until a pause ends, but no longer than idlePoll.
func (s *Sender) waitUntil(claimed, next time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Now()
	wait := idlePoll
	if !next.IsZero() {
		wait = min(wait, next.Sub(now))
	}
	for e := range s.busy {
		if e.paused(claimed) {
			wait = min(wait, e.resume.Sub(now))
		}
	}
	wait = max(wait, 0)
	s.planned = now.Add(wait)
	return wait
}

// sweep forgets endpoints that have had nothing to do.
func (s *Sender) sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Now()
	if now.Sub(s.swept) < sweepEvery {
		return
	}
	s.swept = now
	for webhookID, e := range s.endpoints {
		if e.forgettable(now) {
			delete(s.busy, e)
			delete(s.endpoints, webhookID)
		}
	}
}
