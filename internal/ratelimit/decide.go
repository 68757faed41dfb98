package ratelimit

import "sync/atomic"

// MaxLimits is the largest number of limits in one decision.
const MaxLimits = 5

// Result is the result of a decision.
type Result uint8

// The results.
const (
	Admitted         Result = iota // every limit was charged
	Refused                        // no limit was charged
	Stale                          // a limit was replaced by a change: find it again, then decide again
	NeedsReservation               // a daily cap has nothing reserved: Reserver.Wait for it, then decide again
	NeedsTicket                    // the limit store must decide about shared buckets: Ticket.Wait, then decide again with it
)

// Decide charges one request to all limits or to none. It fills statuses, which must be as
// long as limits. It does not allocate. Pass at most MaxLimits limits, in the order of
// their scopes, no two with the same bucket.
//
// worst is an index into limits. For Admitted, it is the limit with the fewest requests
// left (on a tie, the one that resets later), or -1 without limits. For Refused, it is the
// refusing limit for which the caller must wait longest. For other results, it is the limit that
// caused the result.
//
// Decide checks all limits before it charges any. If a limit refuses after others were
// charged, because a concurrent decision took the last request, the others are refunded. A
// bucket that has been charged again meanwhile keeps the charge, since a refund could admit
// more than the limit.
func Decide(now Instant, limits []Limit, status []Status) (r Result, worst int) {
	var room [MaxLimits]view
	views := room[:len(limits)]
	day := dayOf(now.Wall)
	for {
		f, i := check(now, day, limits, views)
		switch f {
		case passes:
		case refuses:
			return Refused, fillRefused(now, day, limits, views, status)
		case isStale:
			return Stale, i
		case mustAsk:
			return NeedsTicket, i
		default:
			return NeedsReservation, i
		}
		if charge(now, day, limits, views) {
			break
		}
	}
	for i := range limits {
		limits[i].charged(now, &views[i])
	}
	return Admitted, fillStatuses(now, day, limits, views, status)
}

// Peek fills statuses as Decide does, but charges nothing. worst is the limit with the
// fewest requests left. A limit for which Decide would return Stale or NeedsReservation
// counts as unused.
func Peek(now Instant, limits []Limit, status []Status) (worst int) {
	var room [MaxLimits]view
	views := room[:len(limits)]
	day := dayOf(now.Wall)
	for i := range limits {
		limits[i].peek(now, day, &views[i])
	}
	return fillStatuses(now, day, limits, views, status)
}

// view is what a decision has read of one limit.
type view struct {
	state  *atomic.Uint64 // what a charge changes; nil if the limit store has charged
	params *Params        // of word and next, if they are the state of a bucket
	word   uint64         // the state
	next   uint64         // the state after a charge
	at     uint64         // for a bucket, the units gained until now; for a daily cap, the cap
}

// check reads every limit and returns the greatest finding and its limit.
func check(now Instant, day int64, limits []Limit, views []view) (worst finding, at int) {
	for i := range limits {
		if f := limits[i].check(now, day, &views[i]); f > worst {
			worst, at = f, i
		}
	}
	return worst, at
}

// check returns what the state v.word allows at v.at, and sets v.next.
func (p *Params) check(v *view) finding {
	start := max(v.word, v.at)
	if v.next = start + p.cost; start-v.at < p.room {
		return passes
	}
	if v.word == closed {
		return isStale
	}
	return refuses
}

// check returns what the state v.word allows on the day, and sets v.next.
func (d *Daily) check(day int64, v *view) finding {
	w := dailyWord(v.word)
	switch {
	case w == closedDaily:
		return isStale
	case !w.isOf(day):
		return isUnknown
	case uint64(w.used()) >= v.at:
		return refuses
	case w.left() == 0:
		return mustReserve
	default:
		v.next = uint64(w + oneUsed - oneLeft)
		return passes
	}
}

// charge charges every limit as check planned. If a limit no longer allows it, charge
// refunds the others and reports false.
func charge(now Instant, day int64, limits []Limit, views []view) bool {
	for i := range limits {
		v := &views[i]
		if v.state != nil && !v.state.CompareAndSwap(v.word, v.next) && !limits[i].retryCharge(now, day, v) {
			refund(day, limits[:i], views)
			return false
		}
	}
	return true
}

// retryCharge charges a limit that has changed since v was filled.
func (l *Limit) retryCharge(now Instant, day int64, v *view) bool {
	for {
		if l.check(now, day, v) != passes {
			return false
		}
		if v.state == nil || v.state.CompareAndSwap(v.word, v.next) {
			return true
		}
	}
}

// RefundDaily takes back a request that Decide charged at now: it lowers the counts of daily caps. It
// leaves buckets alone, which may have been charged again or have refilled since, so that a refund
// could admit more than the limit.
func RefundDaily(now Instant, limits []Limit) {
	for i := range limits {
		if d := limits[i].Daily; d != nil {
			d.refund(dayOf(now.Wall))
		}
	}
}

func refund(day int64, limits []Limit, views []view) {
	for i := range limits {
		limits[i].refund(day, &views[i])
	}
}
