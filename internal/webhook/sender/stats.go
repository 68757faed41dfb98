package sender

import (
	"sync/atomic"

	"github.com/keygate/keygate/internal/webhook"
)

// Stats are the counters and gauges of a sender.
type Stats struct {
	Held     int // deliveries that this sender has leased
	InFlight int // deliveries in flight
	Paused   int // endpoints whose breaker is open

	// The following only grow.

	Claimed     int64 // leases
	Delivered   int64 // deliveries
	Retried     int64 // failed attempts that another attempt follows
	Failed      int64 // deliveries that get no further attempt
	Late        int64 // results that reached the store after their lease had passed to another sender
	Pauses      int64 // openings of a breaker
	Postponed   int64 // deliveries that an open breaker handed back
	TakenOver   int64 // leases of other nodes that were ended because their node's lease had ended
	Unwritten   int64 // results and releases given up because the store failed
	StoreErrors int64 // calls of the store that failed
}

type counters struct {
	claimed, delivered, retried, failed, late, pauses, postponed, takenOver, unwritten, storeErrors atomic.Int64
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

// Stats returns the current counters and gauges.
func (s *Sender) Stats() Stats {
	held, inFlight, paused := s.dispatcher.gauges()
	c := &s.stats
	return Stats{
		Held: held, InFlight: inFlight, Paused: paused,
		Claimed: c.claimed.Load(), Delivered: c.delivered.Load(), Retried: c.retried.Load(), Failed: c.failed.Load(),
		Late: c.late.Load(), Pauses: c.pauses.Load(), Postponed: c.postponed.Load(),
		TakenOver: c.takenOver.Load(), Unwritten: c.unwritten.Load(), StoreErrors: c.storeErrors.Load(),
	}
}
