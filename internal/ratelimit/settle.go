package ratelimit

import (
	"math/bits"
	"slices"
)

// Settle makes what was taken of c what the request has used, once it has ended: more is taken even beyond the limits,
// and less is given back (plans.md, section 5). A bucket goes at most one capacity below empty. The request is not in
// flight any more.
func (l *Limiter) Settle(c *Charge, used *Used) {
	c.land()
	if c.IsMetered() {
		l.Extend(c, used)
		entries := c.entries()
		for i := range entries {
			if e := &entries[i]; e.use != UseRequest {
				e.end(l, e.amount-e.amountOf(used[e.use]))
			}
		}
	}
	c.settle()
}

// land gives back the slots of a request that ends, if they were taken and not given back yet. It comes first, so that
// nothing that fails at the end of a request can keep them.
func (c *Charge) land() {
	if !c.slots || !c.taken {
		return
	}
	c.slots = false
	entries := c.entries()
	for i := range entries {
		if s := entries[i].Slots; s != nil {
			s.release()
		}
	}
}

// Extend takes what the request has used beyond what was taken, while it goes on. It gives nothing back.
func (l *Limiter) Extend(c *Charge, used *Used) {
	if !c.IsMetered() {
		return
	}
	entries := c.entries()
	for i := range entries {
		e := &entries[i]
		if e.use == UseRequest {
			continue
		}
		if more := e.amountOf(used[e.use]) - e.amount; more > 0 {
			e.raise(l, more)
			e.amount += more
		}
	}
}

// IsMetered reports whether some limit counts more than the request itself, so that Settle changes what was taken.
func (c *Charge) IsMetered() bool { return c.meter && c.taken }

// IsHeld reports whether what was taken depends on when and how the request ends: it is in flight in some limit, or IsMetered.
func (c *Charge) IsHeld() bool { return (c.meter || c.slots) && c.taken }

// Detach returns a charge that has taken what c has, for a request that outlives c. c then counts as settled.
func (c *Charge) Detach() *Charge {
	d := *c
	if c.count > fewLimits {
		d.many = slices.Clone(c.many)
	}
	c.settle()
	return &d
}

// raise takes more of the limit, whatever is left.
func (e *entry) raise(l *Limiter, more int64) {
	switch {
	case e.Quota != nil:
		e.Quota.settle(e.Terms, &e.view, more)
	case e.isLocal():
		e.bucket.overdraw(e.params, more, l.mono)
	default:
		e.Bucket.lease.raise(&e.view, more, l)
	}
}

// end gives back a part of what was taken, which may be 0. Nothing is taken or given back later.
func (e *entry) end(l *Limiter, back int64) {
	e.amount -= back
	v := e.view
	v.amount = back
	switch {
	case e.Quota != nil:
		e.Quota.settle(e.Terms, &e.view, -back)
		e.Quota.end(&e.view)
	case back == 0:
	case e.isLocal():
		l.giveBack(&v)
	default:
		e.Bucket.lease.giveBack(&v, l)
	}
}

// overdraw takes an amount of the bucket, or of what has replaced it, which may then be up to one capacity below empty.
func (b *bucketState) overdraw(p *Params, amount int64, mono func() int64) {
	hi, units := bits.Mul64(uint64(amount), p.cost)
	if hi > 0 {
		units = maxWord
	}
	for {
		word := b.state.Load()
		if word == closed {
			if h := b.successor(); h != nil {
				h.state.overdraw(h.to, ceilDiv(amount*p.grain, h.to.grain), mono)
			}
			return
		}
		at := p.unitsAt(mono())
		start, most := max(word, at), at+2*p.span
		if start >= most || b.state.CompareAndSwap(word, start+min(units, most-start)) {
			return
		}
	}
}

// raise takes more of a bucket that nodes share: of the tokens that this node holds, or of its share, and the rest as a
// debt, which the limit store takes as the bucket regains it.
func (e *Lease) raise(v *view, more int64, l *Limiter) {
	if v.kind != toStore {
		if s := e.shadow.Load(); s != nil {
			s.overdraw(s.params, more, l.mono)
		}
		if v.kind == toShareAndStore {
			e.overdraw(more, l.mono())
		}
		return
	}
	for {
		w := e.tokens.Load()
		n := min(more, tokensAt(w, l.mono()))
		if w == closed || n <= 0 {
			break
		}
		if e.tokens.CompareAndSwap(w, w-uint64(n)) {
			more -= n
			break
		}
	}
	if more > 0 {
		e.bucket.overdraw(e.params, more, l.mono)
		e.overdraw(more, l.mono())
	}
}

// overdraw adds to the debt of the lease, up to one capacity.
func (e *Lease) overdraw(amount, mono int64) {
	e.mu.Lock()
	amount = min(amount, e.params.capacity-e.debt.sum()-e.debt.reported)
	e.mu.Unlock()
	if amount > 0 && e.tokens.Load() != closed {
		e.sharing.owe(e, amount, mono)
	}
}
