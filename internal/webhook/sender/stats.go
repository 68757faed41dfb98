package sender

import (
	"sync/atomic"

	"github.com/keygate/keygate/internal/webhook"
)

// Stats are the figures of a sender. Those without another word only grow.
type Stats struct {
	Held   int // now: leased by this sender
	Flying int // now: in flight
	Paused int // now: endpoints whose breaker is open

	Claimed     int64 // leases
	Delivered   int64 // deliveries
	Retried     int64 // failed attempts that another follows
	Failed      int64 // deliveries without a further attempt
	Late        int64 // results that came after their lease
	Pauses      int64 // openings of a breaker
	Postponed   int64 // deliveries that a breaker handed back
	Unwritten   int64 // results and releases given up because the store failed
	StoreErrors int64 // calls to the store that failed
}

type counters struct {
	claimed, delivered, retried, failed, late, pauses, postponed, unwritten, storeErrors atomic.Int64
}

func (c *counters) count(r *Result) {
	switch r.State {
	case webhook.Delivered:
		c.delivered.Add(1)
	case webhook.Failed:
		c.failed.Add(1)
	default:
		c.retried.Add(1)
	}
}

// Stats returns the present figures.
func (s *Sender) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, paused := s.cfg.Now(), 0
	for e := range s.busy {
		if e.paused(now) {
			paused++
		}
	}
	c := &s.stats
	return Stats{
		Held: s.held, Flying: s.flying, Paused: paused,
		Claimed: c.claimed.Load(), Delivered: c.delivered.Load(), Retried: c.retried.Load(), Failed: c.failed.Load(),
		Late: c.late.Load(), Pauses: c.pauses.Load(), Postponed: c.postponed.Load(),
		Unwritten: c.unwritten.Load(), StoreErrors: c.storeErrors.Load(),
	}
}
