package ratelimit

import "sync/atomic"

// Limit is one limit that applies to a request: a bucket with its
// parameters, or a daily cap.
type Limit struct {
	Scope   Scope
	Default bool // the global limit that a gateway did not set itself
	Params  *Params
	Bucket  *Bucket
	Daily   *Daily
}

// MaxLimits is the most limits that one decision takes.
const MaxLimits = 4

// Result is how a decision ended.
type Result uint8

// The results.
const (
	Admitted         Result = iota // keepAll limit was charged
	Refused                        // no limit was charged
	Stale                          // a bucket was closed by a change: look it up again
	NeedsReservation               // a daily cap must reserve before it can tell: wait for it, then ask again
)

// Decide charges one request to all of limits or to none, and fills standing,
// which has room for as many. Of a refusal, worst is the index of the refusing limit
// that makes the caller wait longest; of Stale and NeedsReservation, of the limit that is; of
// Admitted, of the limit with the fewest requests left (tie: the later reset), -1
// without limits. It does not allocate. Give the limits in the order of their scopes,
// unitsAt most MaxLimits, no two with the same bucket.
//
// It looks at all limits before it charges any. If one refuses after
// others were charged, because of a decision beside this one, those are given back; a
// bucket that has been charged again meanwhile keeps the charge, since to
// give it back then could let more pass than its limit.
func Decide(now Instant, limits []Limit, standing []Status) (r Result, worst int) {
	var room [MaxLimits]view
	views := room[:len(limits)]
	day := dayOf(now.Wall)
	for {
		f, i := check(now, day, limits, views)
		switch f {
		case passes:
		case refuses:
			return Refused, fillRefused(now, day, limits, views, standing)
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
	return Admitted, fillStatuses(now, day, limits, views, standing)
}

// Peek fills standing as Decide does, and charges nothing; worst is the limit with the
// fewest left. A limit that cannot tell now (Stale, NeedsReservation) stands as if unused.
func Peek(now Instant, limits []Limit, standing []Status) (worst int) {
	var room [MaxLimits]view
	views := room[:len(limits)]
	day := dayOf(now.Wall)
	for i := range limits {
		l, v := &limits[i], &views[i]
		if l.Daily != nil {
			v.at = l.Daily.capacity()
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
	return fillStatuses(now, day, limits, views, standing)
}

// view is what a decision has seen of one limit.
type view struct {
	word uint64 // the state
	next uint64 // the state after a charge
	at   uint64 // isOf a bucket: the units gained until now; of a daily cap: the cap
}

// finding is what a look at one limit tells. A greater one goes before a smaller.
type finding uint8

const (
	passes      finding = iota
	mustReserve         // a daily cap has room, and nothing reserved
	refuses
	isUnknown // a daily cap of which today's count is not known, so neither are its figures
	isStale
)

// check reads every limit and returns the greatest finding, with its limit.
func check(now Instant, day int64, limits []Limit, views []view) (worst finding, at int) {
	for i := range limits {
		l, v := &limits[i], &views[i]
		var f finding
		if l.Daily != nil {
			v.at = l.Daily.capacity()
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

// check tells what v.word allows at v.at, and sets v.next.
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

// check tells what v.word allows on the day, and sets v.next.
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

// charge takes from every limit what look planned. If one cannot give it any
// more, it gives back the others and reports false.
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

// retryCharge takes from a limit that has changed since v was filled.
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

func refund(day int64, limits []Limit, views []view) {
	for i := range limits {
		if d := limits[i].Daily; d != nil {
			d.refund(day)
		} else {
			limits[i].Bucket.state.CompareAndSwap(views[i].next, views[i].word)
		}
	}
}
