package ratelimit

import "sync/atomic"

// Limit is one limit that applies to a request: a bucket with its parameters, or a daily
// cap.
type Limit struct {
	Scope   Scope
	Default bool // the server's default for a gateway without a global limit
	Params  *Params
	Bucket  *Bucket
	Daily   *Daily
}

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
)

// Decide charges one request to all limits or to none. It fills statuses, which must be as
// long as limits. It does not allocate. Pass at most MaxLimits limits, in the order of
// their scopes, no two with the same bucket.
//
// worst is an index into limits. For Admitted, it is the limit with the fewest requests
// left (on a tie, the one that resets later), or -1 without limits. For Refused, it is the
// refusing limit for which the caller must wait longest. For Stale and NeedsReservation, it
// is the limit that caused the result.
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
		default:
			return NeedsReservation, i
		}
		if charge(day, limits, views) {
			break
		}
	}
	for i := range limits {
		if d := limits[i].Daily; d != nil {
			d.charged(dailyWord(views[i].next))
		}
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
		l, v := &limits[i], &views[i]
		if l.Daily != nil {
			v.at = uint64(l.Daily.cap())
			w := l.Daily.load()
			if w == closedDaily || !w.isOf(day) {
				w = packDaily(day, 0, 0)
			}
			v.next = uint64(w)
			continue
		}
		v.at = l.Params.unitsAt(now.Mono)
		if v.next = l.Bucket.state.Load(); v.next == closed {
			v.next = 0
		}
	}
	return fillStatuses(now, day, limits, views, status)
}

// view is what a decision has read of one limit.
type view struct {
	word uint64 // the state
	next uint64 // the state after a charge
	at   uint64 // for a bucket, the units gained until now; for a daily cap, the cap
}

// finding is the result of checking one limit. The greatest finding determines the
// decision.
type finding uint8

const (
	passes      finding = iota
	mustReserve         // a daily cap has room, but nothing reserved
	refuses
	isUnknown // today's count of a daily cap is not loaded yet, so its status is unknown
	isStale
)

// check reads every limit and returns the greatest finding and its limit.
func check(now Instant, day int64, limits []Limit, views []view) (worst finding, at int) {
	for i := range limits {
		l, v := &limits[i], &views[i]
		var f finding
		if l.Daily != nil {
			v.at = uint64(l.Daily.cap())
			v.word = l.Daily.word.Load()
			f = l.Daily.check(day, v)
		} else {
			v.at = l.Params.unitsAt(now.Mono)
			v.word = l.Bucket.state.Load()
			f = l.Params.check(v)
		}
		if f > worst {
			worst, at = f, i
		}
	}
	return worst, at
}

// check returns what the state v.word allows at v.at, and sets v.next.
func (p *Params) check(v *view) finding {
	start := max(v.word, v.at)
	if v.next = start + p.cost; start-v.at <= p.span-p.cost {
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
func charge(day int64, limits []Limit, views []view) bool {
	for i := range limits {
		l, v := &limits[i], &views[i]
		var state *atomic.Uint64
		if l.Daily != nil {
			state = &l.Daily.word
		} else {
			state = &l.Bucket.state
		}
		if !state.CompareAndSwap(v.word, v.next) && !l.retryCharge(day, state, v) {
			refund(day, limits[:i], views)
			return false
		}
	}
	return true
}

// retryCharge charges a limit that has changed since v was filled.
func (l *Limit) retryCharge(day int64, state *atomic.Uint64, v *view) bool {
	for {
		v.word = state.Load()
		var f finding
		if l.Daily != nil {
			f = l.Daily.check(day, v)
		} else {
			f = l.Params.check(v)
		}
		if f != passes {
			return false
		}
		if state.CompareAndSwap(v.word, v.next) {
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
		if d := limits[i].Daily; d != nil {
			d.refund(day)
		} else {
			limits[i].Bucket.state.CompareAndSwap(views[i].next, views[i].word)
		}
	}
}
