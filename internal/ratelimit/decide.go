package ratelimit

import (
	"runtime"
	"sync/atomic"
)

// Result is the result of a decision.
type Result uint8

// The results.
const (
	Admitted         Result = iota // every limit was charged
	Refused                        // no limit was charged
	Stale                          // a limit was replaced by a change: find it again, then decide again
	NeedsReservation               // a daily cap or quota has nothing reserved: Charge.Wait, then decide again
	NeedsTicket                    // the limit store must decide about shared buckets: Charge.Wait, then decide again
)

// Decide takes c for a request that came at now: all of it, or nothing. For the results Admitted and Refused
// it sets the statuses of c. It does not allocate.
//
// Decide checks all limits before it charges any. If a limit refuses after others were
// charged, because a concurrent decision took what was left, the others are refunded.
func (l *Limiter) Decide(now Instant, c *Charge) Result {
	d := decision{moment: moment{now, dayOf(now.Wall), l.mono, c.ticket, c.slot.full}, limiter: l, entries: c.entries()}
	c.came, c.shown = now, 0
	for {
		f, i := d.check()
		switch f {
		case passes:
		case refuses:
			if l.marks != nil && !d.isFinal() {
				runtime.Gosched()
				continue
			}
			c.slot = slotWaiting{}
			c.show(d.fillRefused())
			return Refused
		case isStale:
			c.worst = i
			return Stale
		case mustAsk:
			c.worst, c.awaits = i, nil
			return NeedsTicket
		default:
			c.worst, c.awaits = i, &d.entries[i]
			return NeedsReservation
		}
		if d.charge() {
			c.show(d.fillCharged())
			c.taken, c.ticket, c.slot = true, nil, slotWaiting{}
			return Admitted
		}
	}
}

// Peek sets the statuses of c as Decide does, but charges nothing. A limit for which Decide would return Stale
// or NeedsReservation counts as unused.
func (l *Limiter) Peek(now Instant, c *Charge) {
	d := decision{moment: moment{now, dayOf(now.Wall), l.mono, nil, nil}, limiter: l, entries: c.entries()}
	for i := range d.entries {
		d.entries[i].peek(&d.moment)
	}
	c.show(d.fillStatuses())
}

// decision is the state of one call of Decide or Peek.
type decision struct {
	moment
	limiter *Limiter
	entries []entry
	held    uint // the limits that are locked, as bits
}

// view is what a decision has read from one limit, and what it has charged.
type view struct {
	amount   int64          // what is charged of a bucket
	state    *atomic.Uint64 // what a charge changes, if not bucket; nil if the limit store has charged
	params   *Params        // of word and next, if they are the state of a bucket
	word     uint64         // the state
	next     uint64         // the state after a charge
	at       uint64         // for a bucket, the units gained until wall; for a daily cap, the cap
	bucket   *bucketState   // what a charge changes, or nil
	refunded uint64         // of bucket, while its state is word
	wall     int64          // the wall clock at that time; 0 means the wall clock of the decision
	answer   *answer        // answer of the limit store, if it has charged; nil if unknown
	owed     owed           // if the kind is toShareAndStore
	quota    *quotaState    // of a quota: what belongs to word
	kind     chargeKind     // of a lease
	over     bool           // of a quota: the request passes because the store is lost
	few      bool           // little is left of a daily cap, of its range, or of granted tokens
	refuses  bool
}

// units returns what is charged of a bucket, in units of v.params.
func (v *view) units() uint64 { return v.params.unitsOf(v.amount) }

// charges returns what a charge changes, or nil.
func (v *view) charges() *atomic.Uint64 {
	if v.bucket != nil {
		return &v.bucket.state
	}
	return v.state
}

// check reads every limit and returns the greatest finding and its limit.
func (d *decision) check() (worst finding, at int) {
	for i := range d.entries {
		e := &d.entries[i]
		var f finding
		if e.isLocal() {
			if e.read(d.Mono); e.word > e.at && d.mono != nil {
				return d.checkUsed()
			}
			f = e.params.check(&e.view)
		} else {
			f = e.check(&d.moment)
		}
		if e.refuses = f == refuses; f > worst {
			worst, at = f, i
		}
	}
	return worst, at
}

// checkUsed does what check does, if some bucket of this node alone is not full. It reads the clock once,
// after the states of all such buckets.
func (d *decision) checkUsed() (worst finding, at int) {
	for i := range d.entries {
		if e := &d.entries[i]; e.isLocal() {
			e.read(d.Mono)
		}
	}
	d.advance()
	for i := range d.entries {
		e := &d.entries[i]
		if e.isLocal() {
			e.at = e.Params.unitsAt(d.Mono)
		}
		f := e.check(&d.moment)
		if e.refuses = f == refuses; f > worst {
			worst, at = f, i
		}
	}
	return worst, at
}

// isFinal reports whether a refusal stands: some limit refuses, and no other decision has charged this
// limit and may yet refund it.
func (d *decision) isFinal() bool {
	if d.limiter.marks == nil {
		return true
	}
	for i := range d.entries {
		e := &d.entries[i]
		if !e.refuses {
			continue
		}
		state := e.charges()
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
		if e.reread(&d.moment) == refuses && m.Load() == before {
			return true
		}
	}
	return false
}

// check returns what the state v.word allows at v.at, and sets v.next.
func (p *Params) check(v *view) finding {
	start := max(v.word, v.at)
	units := p.unitsOf(v.amount)
	if v.next = start + units; p.fits(start-v.at, units) {
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
	for i := range d.entries {
		e := &d.entries[i]
		state := e.state
		if b := e.bucket; b != nil {
			state, e.refunded = &b.state, b.refunded()
		}
		if state != nil && !state.CompareAndSwap(e.word, e.next) && !d.retryCharge(i) {
			d.refund(i)
			return false
		}
	}
	if d.held != 0 {
		d.release()
	}
	return true
}

// retryCharge charges the limit i, which has changed since it was checked.
func (d *decision) retryCharge(i int) bool {
	e := &d.entries[i]
	was := e.charges()
	for i := range d.entries { // whose answers do not change as time passes
		if o := &d.entries[i]; o.wall == 0 {
			o.wall = d.Wall
		}
	}
	for {
		f := e.reread(&d.moment)
		if d.held>>i&1 != 0 && e.charges() != was { // the tokens of a lease are used up: what it charges now is not locked
			d.limiter.markOf(was).Add(1)
			d.held &^= 1 << i
			return false
		}
		if f != passes || !d.isFree(&e.view) {
			return false
		}
		if e.bucket != nil {
			e.refunded = e.bucket.refunded()
		}
		if state := e.charges(); state == nil || state.CompareAndSwap(e.word, e.next) {
			return true
		}
	}
}

// refund takes back the charges of the first n limits, because the next one does not allow the request, and
// unlocks what hold has locked.
func (d *decision) refund(n int) {
	later := uint(0) // bits of the limits that have changed since and are not locked
	for i := range n {
		e := &d.entries[i]
		switch {
		case e.bucket == nil:
			e.refund(&d.moment)
		case e.bucket.state.CompareAndSwap(e.next, e.word):
		case d.limiter.marks == nil || d.holds(d.limiter.markOf(&e.bucket.state)):
			if back := e.view; e.bucket.giveBack(&back, d.clock) {
				later |= 1 << i // to the bucket that has replaced it, which has another mark
			}
		default:
			later |= 1 << i
		}
	}
	d.release()
	for i := range n {
		if later>>i&1 != 0 {
			d.limiter.giveBack(&d.entries[i].view)
		}
	}
}

// clock reads the monotonic clock.
func (m *moment) clock() int64 {
	m.advance()
	return m.Mono
}
