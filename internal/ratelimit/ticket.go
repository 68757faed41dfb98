package ratelimit

import (
	"context"
	"time"
)

// Ticket is one request's question to the limit store about the shared buckets that this node
// cannot decide by itself, and its answer. A nil Ticket is one of a request that has not asked. It
// is for one goroutine.
type Ticket struct {
	sharing *Sharing
	trip    *trip
	number  int64   // among the requests of the trip
	began   int64   // when the request began to wait, in nanoseconds of Instant.Mono
	late    bool    // the answer did not come in time
	paid    *Ticket // an earlier one that was paid
}

// patience is how long a request waits for the limit store.
const patience = 50 * time.Millisecond

// Ask returns a ticket for those of limits, decided at now with the result NeedsTicket, that the
// store must decide. before is the ticket with which that was decided, or nil.
func Ask(now Instant, limits []Limit, before *Ticket) *Ticket {
	t := &Ticket{}
	if before != nil {
		if before.isPaid() {
			t.paid = before
		} else {
			t.paid, t.began = before.paid, before.began
		}
	}
	var set tripSet
	n := 0
	for i := range limits {
		l := &limits[i]
		if l.Bucket == nil || l.Bucket.lease == nil {
			continue
		}
		if v := new(view); l.check(&moment{Instant: now}, v) == mustAsk {
			set[n] = l.Bucket.lease
			n++
		}
	}
	if n == 0 {
		return t // it has been settled meanwhile
	}
	t.sharing = set[0].sharing
	if t.began == 0 {
		t.began = now.Mono
	}
	t.trip, t.number = t.sharing.join(set)
	return t
}

// Attach makes limits be decided by the answer to t.
func (t *Ticket) Attach(limits []Limit) {
	for ; t != nil; t = t.paid {
		if t.trip == nil {
			continue
		}
		for i := range limits {
			if b := limits[i].Bucket; b != nil && b.lease != nil && limits[i].ticket == nil && t.trip.set.index(b.lease) >= 0 {
				limits[i].ticket = t
			}
		}
	}
}

// Wait waits for the answer, for the bound that is set for the limit store. The caller must then
// decide again with t. The error is that of ctx, or has the code fault.Unavailable if requests are
// refused while the store is lost.
func (t *Ticket) Wait(ctx context.Context) error {
	if t.trip == nil {
		return ctx.Err()
	}
	return t.sharing.wait(ctx, t)
}

// Return gives back what t has paid for, because the request was not admitted after all.
func (t *Ticket) Return(now Instant) {
	for ; t != nil; t = t.paid {
		if t.trip == nil || !t.isPaid() {
			continue
		}
		for _, e := range t.trip.set {
			if e != nil {
				e.payBack(nil, t.answerOf(e), now.Mono)
			}
		}
	}
}

// isPaid reports whether the store has charged the request.
func (t *Ticket) isPaid() bool {
	return t.trip != nil && !t.late && t.trip.answered() && t.trip.err == nil && t.number < t.trip.admitted
}

// check is Lease.check with an answer.
func (t *Ticket) check(e *Lease, m *moment, v *view) finding {
	r := t.trip
	v.state, v.bucket, v.params = nil, nil, nil
	switch {
	case e.tokens.Load() == closed:
		return isStale
	case t.isPaid():
		t.fill(e, m, v)
		return passes
	case t.late:
		return e.checkLost(m, v)
	case !r.answered() || r.err != nil || r.behind:
		return e.check(m, nil, v)
	}
	i := r.set.index(e)
	v.params, v.at, v.word, v.wall = e.params, e.params.unitsAt(r.mono), r.words[i], m.Wall-(m.Mono-r.mono)
	if f := e.params.check(v); f != passes {
		return f
	}
	v.params = nil
	return mustAsk
}

// fill sets v to the level of the paid bucket before and after the request. The store has said what it
// is after all requests of the trip, and counts what it granted for later use as used.
func (t *Ticket) fill(e *Lease, m *moment, v *view) {
	r, p := t.trip, e.params
	i := r.set.index(e)
	v.params, v.at, v.wall = p, p.unitsAt(r.mono), m.Wall-(m.Mono-r.mono)
	later := uint64(r.admitted-1-t.number+r.granted[i]) * p.cost
	v.next = v.at + max(r.words[i]-v.at, later+p.cost) - later
	v.word = v.next - p.cost
}

// answerOf returns the answer about e of the trip by which the request was paid for, or nil.
func (t *Ticket) answerOf(e *Lease) *answer {
	for ; t != nil; t = t.paid {
		if t.isPaid() {
			if i := t.trip.set.index(e); i >= 0 {
				return &t.trip.answers[i]
			}
		}
	}
	return nil
}
