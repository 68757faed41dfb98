package sender

import (
	"context"
	"time"
)

// Timing of the claims.
const (
	// idlePoll is how long the sender waits before it asks the store again without a
	// Wake, for deliveries that other processes made.
	idlePoll = 5 * time.Second
	// retryStore is how long it waits after the store failed.
	retryStore = time.Second
	// claimTimeout is how long one claim may take.
	claimTimeout = 10 * time.Second
)

// claimAll claims deliveries and starts to send them until ctx ends.
func (s *Sender) claimAll(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		wait, again := s.claimOnce()
		if again {
			continue
		}
		s.dispatcher.sweep()
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-s.dispatcher.wake:
		case <-ctx.Done():
		}
	}
}

// claimOnce makes one claim. It returns how long to wait for the next one unless the
// dispatcher asks for it earlier, or again if it should follow at once.
func (s *Sender) claimOnce() (wait time.Duration, again bool) {
	c := s.dispatcher.claim()
	if c.Limit <= 0 {
		return idlePoll, false // the dispatcher asks for a claim when a lease ends
	}
	// Stop lets a claim finish: the store may have made one that was interrupted.
	ctx, cancel := context.WithTimeout(s.claiming.Grace(), claimTimeout)
	defer cancel()
	jobs, err := s.cfg.Queue.ClaimDeliveries(ctx, c)
	if err != nil {
		s.stats.storeErrors.Add(1)
		s.cfg.Log.WarnContext(ctx, "cannot claim webhook deliveries; trying again", "error", err)
		return retryStore, false
	}
	s.stats.claimed.Add(int64(len(jobs)))
	if s.dispatcher.claimed(c, jobs) {
		return 0, true
	}
	next, err := s.cfg.Queue.NextDelivery(ctx, c.Now)
	if err != nil {
		s.stats.storeErrors.Add(1)
		s.cfg.Log.WarnContext(ctx, "cannot find the next webhook delivery; trying again", "error", err)
		return retryStore, false
	}
	return s.dispatcher.planClaim(c.Now, next), false
}
