package ratelimit

import (
	"runtime"
	"sync/atomic"
	"unsafe"
)

// Limiter decides requests by a clock that it reads itself, so that concurrent decisions are exact:
// none is refused while a request is left, and no two find the same number left. It is safe for
// concurrent use.
//
// If another request has just charged a bucket, the instant at which this request came is older
// than the bucket's state. At that instant the bucket would lack what it has gained since, and one
// request fewer would fit. So a state that is not full is always read before the clock.
type Limiter struct {
	mono  func() int64     // the monotonic clock, as Instant.Mono; nil means that time stands still
	marks *[markCount]mark // nil if decisions do not come together
}

// NewLimiter returns a Limiter whose monotonic clock is mono. The instants at which it decides must
// be read from the same clock.
func NewLimiter(mono func() int64) *Limiter {
	return &Limiter{mono: mono, marks: new([markCount]mark)}
}

// moment is the present of one decision, which advances.
type moment struct {
	Instant
	day    int64 // the UTC day in which the request came
	mono   func() int64
	ticket *ticket      // question to the limit store for the request; usually nil
	full   *sharedSlots // slotWaiting.full
}

// advance reads the monotonic clock.
func (m *moment) advance() {
	if m.mono == nil {
		return
	}
	if passed := m.mono() - m.Mono; passed > 0 {
		m.Mono += passed
		m.Wall += passed
	}
}

// wallOf returns the wall clock at which v is true.
func (m *moment) wallOf(v *view) int64 {
	if v.wall != 0 {
		return v.wall
	}
	return m.Wall
}

// load reads the state of a bucket with the parameters p into v, and then the clock unless the bucket
// has been full since before m. It reads no clock for a full bucket, which stays full.
func (m *moment) load(v *view, b *bucketState, p *Params) {
	v.bucket, v.params, v.word = b, p, b.state.Load()
	if v.at = p.unitsAt(m.Mono); v.word > v.at {
		m.advance()
		v.at = p.unitsAt(m.Mono)
	}
	v.wall = m.Wall
}

// A mark is a lock on limits, for the nanoseconds in which a decision has charged them and may yet undo
// this, because another limit refuses. Otherwise other decisions could refuse or count a request
// because of a request that is not charged in the end. A decision whose charges are all certain to
// stand takes no lock, and only looks at the marks of its limits.
//
//	bit  0     it is locked
//	bits 1–63  how often it has been
//
// Limits share a mark by the address of their state.
type mark = atomic.Uint64

const markCount = 4096

// scarce is the number of requests left at which a limit may be used up between the check of a
// decision and its charge.
const scarce = 1 << 16

func (l *Limiter) markOf(state *atomic.Uint64) *mark {
	address := uint64(uintptr(unsafe.Pointer(state))) //nolint:gosec // hashed, and never made a pointer again
	return &l.marks[address*0x9e3779b97f4a7c15>>52]
}

func isLocked(mark uint64) bool { return mark&1 != 0 }

// isScarce reports whether few requests are left of a limit that v lets pass.
func (v *view) isScarce() bool {
	switch {
	case v.charges() == nil:
		return false
	case v.params != nil:
		return (v.params.span-v.units()-(max(v.word, v.at)-v.at))>>16 < v.params.cost
	default: // a daily cap with what is reserved of it, or the tokens of a lease
		return v.few
	}
}

// hold locks the limits whose charge is not certain to stand: the limits before the last limit that may
// be used up. If another decision has locked any of the limits, hold locks none and reports false. The
// limiter must have marks.
func (d *decision) hold() bool {
	last := len(d.entries) - 1
	for last >= 0 && !d.entries[last].isScarce() {
		last--
	}
	for i := range d.entries {
		state := d.entries[i].charges()
		if state == nil {
			continue
		}
		m := d.limiter.markOf(state)
		before := m.Load()
		switch {
		case isLocked(before):
			if d.holds(m) {
				continue
			}
		case i >= last:
			continue
		case m.CompareAndSwap(before, before+1):
			d.held |= 1 << i
			continue
		}
		d.release()
		return false
	}
	return true
}

// holds reports whether the decision has locked m.
func (d *decision) holds(m *mark) bool {
	for i := range d.entries {
		if d.held>>i&1 != 0 && d.limiter.markOf(d.entries[i].charges()) == m {
			return true
		}
	}
	return false
}

// release unlocks what hold has locked.
func (d *decision) release() {
	for i := range d.entries {
		if d.held>>i&1 != 0 {
			d.limiter.markOf(d.entries[i].charges()).Add(1)
		}
	}
	d.held = 0
}

// isFree waits until no other decision has locked the limit of v. If this decision has locked other
// limits, isFree does not wait, so that no two decisions wait for each other, and reports false.
func (d *decision) isFree(v *view) bool {
	state := v.charges()
	if d.limiter.marks == nil || state == nil {
		return true
	}
	m := d.limiter.markOf(state)
	for isLocked(m.Load()) && !d.holds(m) {
		if d.held != 0 {
			return false
		}
		runtime.Gosched()
	}
	return true
}
