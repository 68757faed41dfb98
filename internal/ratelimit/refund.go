package ratelimit

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"
)

// bucketState is what a token bucket has used, and what was given back to it. The zero value is a full
// bucket.
type bucketState struct {
	// state is the value of Params.unitsAt at which the bucket will be full again: GCRA's
	// theoretical arrival time. In the past, it means full.
	state   atomic.Uint64
	refunds atomic.Pointer[refunds] // nil if there were none
}

// refunds is what was given back to a bucket.
type refunds struct {
	total atomic.Uint64 // units that were ever taken off the state

	mu sync.Mutex
	// recent is the refunds of the latest charges since the bucket was last full, in the order of the charges.
	recent []refund
	excess uint64     // used units that a change to a smaller limit has left out of the state
	next   *successor // the bucket that has replaced this one; nil if none has
}

// refund is the units of a charge that were given back. order grows with every charge: it is the sum of the
// state after the charge and all refunds until then.
type refund struct{ order, units uint64 }

// maxRefunds bounds refunds.recent. If more concurrent requests are given back, in another order than they came
// in, less may be given back.
const maxRefunds = 64

// refunded returns the units that were ever given back.
func (b *bucketState) refunded() uint64 {
	if r := b.refunds.Load(); r != nil {
		return r.total.Load()
	}
	return 0
}

// refundBytes returns the memory that the refunds take.
func (b *bucketState) refundBytes() int64 {
	r := b.refunds.Load()
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return int64(unsafe.Sizeof(*r)) + int64(cap(r.recent))*int64(unsafe.Sizeof(refund{}))
}

// log returns the refunds of the bucket, to add some.
func (b *bucketState) log() *refunds {
	if b.refunds.Load() == nil {
		b.refunds.CompareAndSwap(nil, new(refunds))
	}
	return b.refunds.Load()
}

// since returns the units of earlier charges that were given back since the charge in v. It may count units
// of later charges too, if it cannot tell them apart.
func (r *refunds) since(v *view) uint64 {
	units := r.total.Load() - v.refunded
	for i := len(r.recent) - 1; i >= 0 && r.recent[i].order > v.next+v.refunded; i-- {
		units -= r.recent[i].units
	}
	return units
}

// add adds a refund of the charge in v.
func (r *refunds) add(v *view, units uint64) {
	r.total.Add(units)
	r.remember(refund{v.next + v.refunded, units})
}

// remember adds one to recent. If that is full, the refund of the earliest charge is forgotten.
func (r *refunds) remember(one refund) {
	if len(r.recent) == maxRefunds {
		if r.recent[0].order > one.order {
			return
		}
		r.recent = slices.Delete(r.recent, 0, 1)
	}
	i := len(r.recent)
	for i > 0 && r.recent[i-1].order > one.order {
		i--
	}
	r.recent = slices.Insert(r.recent, i, one)
}

// chargeKind says where the charge of a bucket that nodes share was made.
type chargeKind uint8

const (
	toShare         chargeKind = iota // to the node's share
	toShareAndStore                   // to the node's share, and owed to the limit store
	toStore                           // to the limit store, or to tokens that it has granted
)

// giveBack takes the charge in v back, as far as the bucket still lacks it, and reports false. If another bucket has
// replaced it, v becomes the charge of that one, and giveBack reports true: take it back there. At the time of the clock at,
// that is at most
//
//	v.next − time − what was given back since of charges before it
//
// Without the charge, the bucket would have been full at most, and everything that was charged since and not
// given back may have come at the end. With the charge, the bucket lacks this much more. So the requests that
// are admitted and not given back never exceed the limit.
//
// Other decisions must not charge the bucket between the changes of its state and of its refunds: the
// caller has locked its mark.
func (b *bucketState) giveBack(v *view, at func() int64) (replaced bool) {
	log := b.log()
	log.mu.Lock()
	defer log.mu.Unlock()
	for {
		word := b.state.Load()
		if word == closed {
			if log.next != nil {
				log.next.adopt(v)
			}
			return log.next != nil
		}
		now := v.params.unitsAt(at()) // after the word, so that no charge in between is overlooked
		if word <= now {
			log.recent, log.excess = nil, 0
			return false
		}
		others := log.since(v)
		if v.next <= now || v.next-now <= others {
			return false
		}
		back := min(v.units(), v.next-now-others)
		forgotten := min(back, log.excess)
		left := word - min(back-forgotten, word-now)
		if b.state.CompareAndSwap(word, left) {
			log.excess -= forgotten
			if log.add(v, forgotten+word-left); left <= now { // nothing is worth anything any more
				log.recent, log.excess = nil, 0
			}
			return false
		}
	}
}

// giveBack is bucketState.giveBack with the lock that it needs, for the bucket and those that have replaced it.
func (l *Limiter) giveBack(v *view) {
	for l.giveBackOnce(v) {
	}
}

func (l *Limiter) giveBackOnce(v *view) (replaced bool) {
	if l.marks == nil {
		return v.bucket.giveBack(v, l.mono)
	}
	m := l.markOf(&v.bucket.state)
	for {
		if before := m.Load(); !isLocked(before) && m.CompareAndSwap(before, before+1) {
			break
		}
		runtime.Gosched()
	}
	defer m.Add(1)
	return v.bucket.giveBack(v, l.mono)
}

// successor is the bucket that replaces another one when a limit changes.
type successor struct {
	state    *bucketState
	from, to *Params // before and after the change
	since    int64   // the time of the change, in nanoseconds of Instant.Mono
}

// replaceBy does what handOver does. If b is closed already, all of next is used.
func (b *bucketState) replaceBy(next *bucketState, from, to *Params, since int64) {
	if !b.handOver(next, from, to, since) {
		next.state.Store(to.unitsAt(since) + to.span)
	}
}

// handOver closes b and makes next, which is new, its successor, in which as much is used. The parameters change from from
// to to at the time since. Later refunds and charges of b go to next. handOver reports false if b is closed already.
func (b *bucketState) handOver(next *bucketState, from, to *Params, since int64) bool {
	log := b.log()
	log.mu.Lock()
	defer log.mu.Unlock()
	word := b.state.Swap(closed)
	if word == closed {
		return false
	}
	used, at := from.scaleUp(from.used(word, since), to), to.unitsAt(since)
	next.state.Store(at + min(used, to.most()))
	log.next = log.succeed(&successor{next, from, to, since}, used, at)
	return true
}

// succeed copies the refunds to the successor s, in its units, and returns s. used units are used at the time of the
// change, which is at in units. If the numbers do not fit a word, succeed returns nil: nothing is given back later.
func (r *refunds) succeed(s *successor, used, at uint64) *successor {
	total, excess := s.from.scaleUp(r.total.Load(), s.to), s.from.scaleUp(r.excess, s.to)
	beyond := used - min(used, s.to.most())
	if at/8+used/8+total/8+excess/8+beyond/8+s.to.cost/8 >= maxWord/8-8 {
		return nil
	}
	if beyond == 0 && total == 0 && excess == 0 {
		return s
	}
	next := &refunds{excess: excess + beyond}
	for _, one := range r.recent {
		units, _ := s.from.scale(one.units, s.to)
		next.recent = append(next.recent, refund{s.moved(one.order), units})
	}
	if beyond > 0 { // as if it had been given back after all charges until now
		next.remember(refund{at + used + total + s.to.cost - 1, beyond})
	}
	next.total.Store(total + beyond)
	s.state.refunds.Store(next)
	return s
}

// moved converts a state of the replaced bucket, or the order of a charge, to units of s, rounded down.
func (s *successor) moved(word uint64) uint64 {
	units, _ := s.from.scale(word-min(word, s.from.unitsAt(s.since)), s.to)
	return s.to.unitsAt(s.since) + units
}

// adopt turns v, a charge of the replaced bucket, into one of s.
func (s *successor) adopt(v *view) {
	v.next = s.moved(v.next)
	v.refunded, _ = s.from.scale(v.refunded, s.to)
	v.amount = v.amount * s.from.grain / s.to.grain
	v.bucket, v.params = s.state, s.to
}

// successor returns what has replaced a closed bucket, or nil.
func (b *bucketState) successor() *successor {
	r := b.refunds.Load()
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.next
}

// Release gives back what was taken of c, because nothing of the request has reached its upstream: the request
// then counts as if it had never come. The requests that are admitted and not given back never exceed a limit: if
// a bucket has regained a part of the charge that it could not have gained without it, because it would have been
// full, this part is not given back. For a request that was not admitted after all, Release gives back what the
// limit store has charged already.
func (l *Limiter) Release(c *Charge) {
	c.slot = slotWaiting{}
	if c.ticket != nil {
		c.ticket.giveBack(l.mono())
		c.ticket = nil
	}
	if !c.taken {
		return
	}
	c.land()
	c.taken = false
	entries := c.entries()
	for i := range entries {
		switch e := &entries[i]; {
		case e.use != UseRequest:
			e.end(l, e.amount)
		case e.Daily != nil:
			e.Daily.refund(dayOf(c.came.Wall))
		case e.Quota != nil:
			e.Quota.refund(&e.view)
		case e.Slots != nil:
		case e.isLocal():
			l.giveBack(&e.view)
		default:
			e.Bucket.lease.giveBack(&e.view, l)
		}
	}
}
