package ratelimit

import "context"

// Limit is one limit that applies to a request. There are five kinds: a bucket of this node
// alone, a bucket that nodes share (Bucket.lease), a daily cap, a quota with its terms, and slots of which so many may be
// used. Only the methods in this file tell them apart.
type Limit struct {
	Scope   Scope
	Default bool   // the server's default for a gateway without a global limit
	Label   *Label // of a limit of a plan; else nil
	Params  *Params
	Bucket  *Bucket
	Daily   *Daily
	Quota   *Quota
	Terms   *QuotaTerms
	Slots   *Slots
	Most    int64 // requests in flight, with Slots
}

// finding is the result of checking one limit. The greatest finding determines the
// decision.
type finding uint8

const (
	passes      finding = iota
	mustAsk             // the limit store must decide
	mustReserve         // a daily cap or a quota may have room, but nothing reserved
	refuses
	isUnknown // today's count of a daily cap is not loaded yet, so its status is unknown
	isStale
)

// amountOf returns the amount of a charge of the limit for a number of units.
func (l *Limit) amountOf(units int64) int64 {
	if l.Params != nil && l.Params.grain > 1 {
		return ceilDiv(units, l.Params.grain)
	}
	return units
}

// unitsOf returns how many units an amount of the limit stands for, at most.
func (l *Limit) unitsOf(amount int64) int64 {
	if l.Params != nil {
		return amount * l.Params.grain
	}
	return amount
}

// isLocal reports whether the limit is a bucket of this node alone.
func (l *Limit) isLocal() bool { return l.Bucket != nil && l.Bucket.lease == nil }

// wait returns when a daily cap or quota for which a decision returned NeedsReservation can decide about the amount.
func (l *Limit) wait(ctx context.Context, amount int64) error {
	if l.Quota != nil {
		return l.Quota.keeper.wait(ctx, l.Quota, l.Terms, amount)
	}
	return l.Daily.limit.reserver.Wait(ctx, l.Daily)
}

// read reads the state of a bucket of this node alone. If some of it may be used at mono, the clock must be
// read again before the bucket is checked.
func (e *entry) read(mono int64) {
	e.bucket, e.params, e.word = &e.Bucket.bucketState, e.Params, e.Bucket.state.Load()
	e.at, e.wall = e.Params.unitsAt(mono), 0
}

// reread reads a limit that has changed, and checks it.
func (e *entry) reread(m *moment) finding {
	if e.isLocal() {
		e.read(m.Mono)
		m.advance()
		e.at, e.wall = e.Params.unitsAt(m.Mono), m.Wall
	}
	return e.check(m)
}

// check returns what the state of the limit allows, which it first reads unless read has.
func (e *entry) check(m *moment) finding {
	switch {
	case e.Daily != nil:
		e.state, e.bucket, e.params, e.at, e.wall = &e.Daily.word, nil, nil, uint64(e.Daily.cap()), 0
		e.word = e.state.Load()
		return e.Daily.check(m.day, &e.view)
	case e.Quota != nil:
		return e.Quota.check(m, e.Terms, &e.view)
	case e.Slots != nil:
		return e.Slots.check(m, e.Most, &e.view)
	case e.Bucket.lease != nil:
		return e.Bucket.lease.check(m, m.ticket.of(e.Bucket.lease), &e.view)
	default:
		return e.params.check(&e.view)
	}
}

// peek reads the limit without deciding. A limit that was replaced counts as unused.
func (e *entry) peek(m *moment) {
	switch {
	case e.Daily != nil:
		e.params, e.at, e.wall = nil, uint64(e.Daily.cap()), 0
		w := e.Daily.load()
		if w == closedDaily || !w.isOf(m.day) {
			w = packDaily(m.day, 0, 0)
		}
		e.next = uint64(w)
	case e.Quota != nil:
		e.Quota.peek(m, &e.view)
	case e.Slots != nil:
		e.Slots.peek(&e.view)
	case e.Bucket.lease != nil:
		e.Bucket.lease.peek(m, &e.view)
	default:
		m.load(&e.view, &e.Bucket.bucketState, e.Params)
		if e.next = e.word; e.next == closed {
			e.next = 0
		}
	}
}

// refund undoes the charge of a limit that is not a bucket, because another limit refuses.
func (e *entry) refund(m *moment) {
	switch {
	case e.Daily != nil:
		e.Daily.refund(m.day)
	case e.Quota != nil:
		e.Quota.refund(&e.view)
	case e.Slots != nil:
		e.Slots.release()
	case e.charges() != nil:
		e.Bucket.lease.charged(m.Instant, &e.view, nil)
		e.Bucket.lease.payBack(&e.view, e.answer, m.clock())
	}
}

// charged does what follows a decision that has charged the limit.
func (e *entry) charged(m *moment) {
	switch {
	case e.Daily != nil:
		e.Daily.charged(dailyWord(e.next))
	case e.Quota != nil:
		e.Quota.charged(m, e.Terms, &e.view, e.use)
	case e.Slots != nil:
		e.Slots.charged(&e.view)
	case e.Bucket.lease != nil:
		e.Bucket.lease.charged(m.Instant, &e.view, m.ticket.of(e.Bucket.lease))
	}
}

// begin sets the status of a limit that does not refuse.
func (e *entry) begin() *Status {
	s := &e.status
	s.Scope, s.Default, s.Label, s.Refused, s.RetryAfter = e.Scope, e.Default, e.Label, false, 0
	return s
}

// fillLocal is fillStatus for a bucket of this node alone.
func (e *entry) fillLocal(m *moment, word uint64) {
	e.params.fillStatus(e.begin(), word, e.at, m.wallOf(&e.view))
}

// fillStatus fills the status of the limit in the state word, which is a state in its view. params is nil
// in the view of a shared bucket whose level is the cluster's.
func (e *entry) fillStatus(m *moment, word uint64) {
	s := e.begin()
	switch {
	case e.Daily != nil:
		dailyWord(word).fillStatus(s, e.at, m.wallOf(&e.view), m.day)
	case e.Quota != nil:
		e.Quota.fillStatus(e.Terms, s, &e.view, word, m.wallOf(&e.view))
	case e.Slots != nil:
		e.Slots.fillStatus(s, e.Most, word)
	case e.params != nil:
		e.params.fillStatus(s, word, e.at, m.wallOf(&e.view))
	case e.state != nil:
		e.Bucket.lease.fillStatus(s, m, word)
	default:
		e.Bucket.lease.fillStatus(s, m, e.Bucket.lease.tokens.Load())
	}
}

// fillRefused fills the status of a limit when one of the request's limits refuses. It returns the
// nanoseconds until this limit would admit the request, or -1 if it does not refuse.
func (e *entry) fillRefused(m *moment) (wait int64) {
	if e.Bucket != nil && e.params != nil {
		return e.params.fillRefused(e.begin(), e.word, e.at, e.units(), m.wallOf(&e.view))
	}
	e.fillStatus(m, e.word)
	switch {
	case e.Daily != nil && e.status.Remaining == 0:
		e.Daily.refused(m.Wall)
		return max(0, (m.day+1)*dayLength-m.Wall)
	case e.Quota != nil && e.refuses:
		return max(0, e.quota.end-m.Wall)
	case e.Slots != nil && e.refuses:
		e.status.Remaining = 0
		e.status.reset(m.Wall, uint64(slotsRetry))
		return slotsRetry
	default:
		return -1
	}
}
