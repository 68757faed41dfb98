package ratelimit

import (
	"context"
	"time"
)

// ticket is one request's question to the limit store about the shared buckets that this node
// cannot decide by itself, and its answer. It is for one goroutine.
type ticket struct {
	sharing *Sharing
	trip    *trip
	number  int64   // among the requests of the trip
	began   int64   // when the request began to wait, in nanoseconds of Instant.Mono
	late    bool    // the answer did not come in time
	paid    *ticket // an earlier one that was paid
}

// waitTimeout is how long a request waits for the limit store.
const waitTimeout = 50 * time.Millisecond

// ask makes the ticket of c a question about the limits that the store must decide, as the last decision found.
func (c *Charge) ask() {
	t, before := &ticket{}, c.ticket
	if before != nil {
		if before.isPaid() {
			t.paid = before
		} else {
			t.paid, t.began = before.paid, before.began
		}
	}
	c.ticket = t
	var legs []leg
	entries := c.entries()
	for i := range entries {
		e := &entries[i]
		if e.Bucket == nil || e.Bucket.lease == nil {
			continue
		}
		if v := (view{amount: e.amount}); e.Bucket.lease.check(&moment{Instant: c.came}, before.of(e.Bucket.lease), &v) == mustAsk {
			legs = append(legs, leg{lease: e.Bucket.lease, amount: e.amount})
		}
	}
	if len(legs) == 0 {
		return // it has been settled meanwhile
	}
	t.sharing = legs[0].lease.sharing
	if t.began == 0 {
		t.began = c.came.Mono
	}
	t.trip, t.number = t.sharing.join(legs)
}

// of returns the last ticket, among t and the tickets before it, that asks about e, or nil.
func (t *ticket) of(e *Lease) *ticket {
	for ; t != nil; t = t.paid {
		if t.trip != nil && t.trip.leg(e) != nil {
			return t
		}
	}
	return nil
}

// wait waits for the answer, as long as is set for the limit store. The error is ctx.Err(), or has the code
// fault.Unavailable if requests are refused while the store is lost.
func (t *ticket) wait(ctx context.Context) error {
	if t.trip == nil {
		return ctx.Err()
	}
	return t.sharing.wait(ctx, t)
}

// giveBack gives back what t was charged, because the request was not admitted after all.
func (t *ticket) giveBack(mono int64) {
	for ; t != nil; t = t.paid {
		if !t.isPaid() {
			continue
		}
		for i := range t.trip.legs {
			leg := &t.trip.legs[i]
			t.sharing.giveBack(leg.lease, leg.amount, &leg.answer, mono)
		}
	}
}

// isPaid reports whether the store has charged the request.
func (t *ticket) isPaid() bool {
	return t.trip != nil && !t.late && t.trip.answered() && t.trip.err == nil && t.number < t.trip.admitted
}

// check is Lease.check with an answer.
func (t *ticket) check(e *Lease, m *moment, v *view) finding {
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
	v.params, v.at, v.word, v.wall = e.params, e.params.unitsAt(r.mono), r.leg(e).word, m.Wall-(m.Mono-r.mono)
	if f := e.params.check(v); f != passes {
		return f
	}
	v.params = nil
	return mustAsk
}

// fill sets v to the level of the charged bucket before and after the request. The answer of the store
// has the level after all requests of the trip, in which tokens that were granted for later use count
// as used.
func (t *ticket) fill(e *Lease, m *moment, v *view) {
	r, p := t.trip, e.params
	leg := r.leg(e)
	v.params, v.at, v.wall = p, p.unitsAt(r.mono), m.Wall-(m.Mono-r.mono)
	later := uint64((r.admitted-1-t.number)*leg.amount+leg.granted) * p.cost
	v.next = v.at + max(leg.word-v.at, later+v.units()) - later
	v.word = v.next - v.units()
}

// answerOf returns the answer about e of the trip by which the request was charged, or nil.
func (t *ticket) answerOf(e *Lease) *answer {
	for ; t != nil; t = t.paid {
		if t.isPaid() {
			if leg := t.trip.leg(e); leg != nil {
				return &leg.answer
			}
		}
	}
	return nil
}
