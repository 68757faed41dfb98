package ratelimit

import (
	"runtime"
	"sync/atomic"
)

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

// Decide charges one request, which came at now, to all limits or to none. It fills statuses, which
// must be as long as limits. It does not allocate. Pass at most MaxLimits limits, in the order of
// their scopes, no two with the same bucket.
//
// worst is an index into limits. For Admitted, it is the limit with the fewest requests
// left (on a tie, the one that resets later), or -1 without limits. For Refused, it is the
// refusing limit for which the caller must wait longest. For other results, it is the limit that
// caused the result.
//
// Decide checks all limits before it charges any. If a limit refuses after others were
// charged, because a concurrent decision took the last request, the others are refunded.
func (l *Limiter) Decide(now Instant, limits []Limit, status []Status) (r Result, worst int) {
	d := decision{moment: moment{now, dayOf(now.Wall), l.mono}, limiter: l, limits: limits, status: status[:len(limits)]}
	for {
		f, i := d.check()
		switch f {
		case passes:
		case refuses:
			if l.marks != nil && !d.isFinal() {
				runtime.Gosched()
				continue
			}
			return Refused, fillRefused(&d.moment, limits, status)
		case isStale:
			return Stale, i
		case mustAsk:
			return NeedsTicket, i
		default:
			return NeedsReservation, i
		}
		if d.charge() {
			return Admitted, fillCharged(&d.moment, limits, status)
		}
	}
}

// Peek fills statuses as Decide does, but charges nothing. worst is the limit with the
// fewest requests left. A limit for which Decide would return Stale or NeedsReservation
// counts as unused.
func (l *Limiter) Peek(now Instant, limits []Limit, status []Status) (worst int) {
	m := moment{now, dayOf(now.Wall), l.mono}
	for i := range limits {
		limits[i].peek(&m, &status[i].view)
	}
	return fillStatuses(&m, limits, status)
}

// Decide is Limiter.Decide at a time that stands still, as in a simulation.
func Decide(now Instant, limits []Limit, status []Status) (r Result, worst int) {
	return (&Limiter{}).Decide(now, limits, status)
}

// Peek is Limiter.Peek at a time that stands still.
func Peek(now Instant, limits []Limit, status []Status) (worst int) {
	return (&Limiter{}).Peek(now, limits, status)
}

// decision is the state of one call of Decide.
type decision struct {
	moment
	limiter *Limiter
	limits  []Limit
	status  []Status // of which only view is used before the decision is made
	held    uint     // the limits that are locked, as bits
}

// view is what a decision has read of one limit, and what it has charged.
type view struct {
	state    *atomic.Uint64 // what a charge changes unless that is bucket; nil if the limit store has charged
	params   *Params        // of word and next, if they are the state of a bucket
	word     uint64         // the state
	next     uint64         // the state after a charge
	at       uint64         // for a bucket, the units gained until wall; for a daily cap, the cap
	bucket   *bucketState   // what a charge changes, or nil
	refunded uint64         // of bucket, while its state is word
	wall     int64          // the wall clock at that time, or 0 if that is the moment's
	lease    *Lease         // of a bucket that nodes share, once it is charged
	answer   *answer        // of the limit store, if that was charged; nil if it is not known
	kind     chargeKind     // of a lease
	owed     owed           // if the kind is toShareAndStore
	few      bool           // little is left of a daily cap, of its range, or of granted tokens
	refuses  bool
}

// charges returns what a charge changes, or nil.
func (v *view) charges() *atomic.Uint64 {
	if v.bucket != nil {
		return &v.bucket.state
	}
	return v.state
}

// check reads every limit and returns the greatest finding and its limit.
func (d *decision) check() (worst finding, at int) {
	for i := range d.limits {
		l, v := &d.limits[i], &d.status[i].view
		var f finding
		if l.isLocal() {
			if l.read(d.Mono, v); v.word > v.at && d.mono != nil {
				return d.checkUsed()
			}
			f = v.params.check(v)
		} else {
			f = l.check(&d.moment, v)
		}
		if v.refuses = f == refuses; f > worst {
			worst, at = f, i
		}
	}
	return worst, at
}

// checkUsed is check where some bucket of this node alone is not full. It reads the clock once, after the
// states of all of them.
func (d *decision) checkUsed() (worst finding, at int) {
	for i := range d.limits {
		if l := &d.limits[i]; l.isLocal() {
			l.read(d.Mono, &d.status[i].view)
		}
	}
	d.advance()
	for i := range d.limits {
		l, v := &d.limits[i], &d.status[i].view
		if l.isLocal() {
			v.at = l.Params.unitsAt(d.Mono)
		}
		f := l.check(&d.moment, v)
		if v.refuses = f == refuses; f > worst {
			worst, at = f, i
		}
	}
	return worst, at
}

// isFinal reports whether a refusal stands: some limit refuses that no other decision has charged and may
// yet refund.
func (d *decision) isFinal() bool {
	if d.limiter.marks == nil {
		return true
	}
	for i := range d.limits {
		v := &d.status[i].view
		if !v.refuses {
			continue
		}
		state := v.charges()
		if state == nil {
			return true // the limit store refuses
		}
		m := d.limiter.markOf(state)
		before := m.Load()
		if before == 0 {
			return true
		}
		if isLocked(before) {
			continue
		}
		if d.limits[i].reread(&d.moment, v) == refuses && m.Load() == before {
			return true
		}
	}
	return false
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
		v.next, v.few = uint64(w+oneUsed-oneLeft), w.left() < scarce
		return passes
	}
}

// charge charges every limit as check planned. If a limit no longer allows it, or another decision has
// locked it, charge refunds the others and reports false.
func (d *decision) charge() bool {
	if d.limiter.marks != nil && !d.hold() {
		runtime.Gosched()
		return false
	}
	for i := range d.limits {
		v := &d.status[i].view
		state := v.state
		if b := v.bucket; b != nil {
			state, v.refunded = &b.state, b.refunded()
		}
		if state != nil && !state.CompareAndSwap(v.word, v.next) && !d.retryCharge(i) {
			d.refund(i)
			return false
		}
	}
	if d.held != 0 {
		d.release()
	}
	return true
}

// retryCharge charges a limit that has changed since it was checked.
func (d *decision) retryCharge(i int) bool {
	v := &d.status[i].view
	for j := range d.status { // which the time that passes leaves as they are
		if o := &d.status[j].view; o.wall == 0 {
			o.wall = d.Wall
		}
	}
	for {
		if d.limits[i].reread(&d.moment, v) != passes || !d.isFree(v) {
			return false
		}
		if v.bucket != nil {
			v.refunded = v.bucket.refunded()
		}
		if state := v.charges(); state == nil || state.CompareAndSwap(v.word, v.next) {
			return true
		}
	}
}

// refund takes back the charges of the first n limits, because the next one does not allow the request, and
// unlocks what hold has locked.
func (d *decision) refund(n int) {
	var later [MaxLimits]bool // what has changed since, and is not locked
	for i := range n {
		v := &d.status[i].view
		switch {
		case v.bucket == nil:
			d.limits[i].refund(&d.moment, v)
		case v.bucket.state.CompareAndSwap(v.next, v.word):
		case d.limiter.marks == nil || d.holds(d.limiter.markOf(&v.bucket.state)):
			v.bucket.giveBack(v, d.clock)
		default:
			later[i] = true
		}
	}
	d.release()
	for i := range n {
		if v := &d.status[i].view; later[i] {
			d.limiter.giveBack(v)
		}
	}
}

// clock reads the monotonic clock.
func (m *moment) clock() int64 {
	m.advance()
	return m.Mono
}
