package balance

import (
	"sync"
	"sync/atomic"
	"time"
)

const never = time.Duration(-1 << 62)

// Address is the state of an origin's address on this node, which all upstreams of the account that name it share: requests
// in flight, failures in a row, ejection and warm-up (sections 2 and 3). It is safe for concurrent use.
//
// An address is in a phase: open, ejected or half-open. The end of an attempt counts only in the phase in which the attempt
// began, so requests that were in flight when an address was ejected neither lengthen the ejection nor end it.
type Address struct {
	key  Key
	hash uint64 // of the key, the same on every node
	sink Sink

	inFlight atomic.Int64
	failed   recent // attempts that failed in the last second
	_        [64]byte

	phase     atomic.Uint64 // a phase
	suspected atomic.Bool   // there is something that a success would clear: failures, or denied
	trying    atomic.Bool   // a request is in flight that tries a half-open address
	until     atomic.Int64  // when the ejection ends
	returned  atomic.Int64  // when it last came back: its weight grows from then on
	refused   atomic.Int64  // until when it counts as refused by the address rules

	mu        sync.Mutex
	upstreams map[*Upstream]int // that have it, with the number of their targets
	ejection  EjectionStatus    // the last one
	number    int               // ejections that count towards the duration of the next
	ejections uint64            // in all
	since     time.Duration     // of the phase
	run       run
	denied    bool // the address rules have refused it, and there was no success since
}

// EjectionStatus describes an ejection.
type EjectionStatus struct {
	Since, Until time.Duration
	Reason       Result // of the last failure before it
	Failures     int    // in a row, that led to it
	Number       int    // by which base was multiplied
	hard         bool   // failures to connect and resets were reason enough
}

// A phase is the state of an address in its two lowest bits, and a serial number.
type phase uint64

const (
	open phase = iota
	ejected
	halfOpen

	stateMask phase = 3
)

func (p phase) state() phase { return p & stateMask }

// run is the failures of an address in a row.
type run struct {
	hard   int    // failures to connect and resets
	soft   int    // timeouts and statuses
	caller uint64 // of the first soft one
	many   bool   // soft ones are of several callers
	torn   int    // hard ones after the head of a response: only a whole response clears them
}

// count returns how many failures count: soft ones only if they are of several callers.
func (r *run) count() int {
	if r.many {
		return r.hard + r.soft
	}
	return r.hard
}

// add adds a failure.
func (r *run) add(result Result, caller uint64, answered bool) {
	switch {
	case !result.soft():
		r.hard++
		if answered {
			r.torn++
		}
	case r.soft == 0:
		r.soft, r.caller = 1, caller
	default:
		r.soft++
		r.many = r.many || caller != r.caller
	}
}

// Key returns the name of the address.
func (a *Address) Key() Key { return a.key }

// load returns the requests in flight, and the attempts that failed in the last second.
func (a *Address) load(now time.Duration) int64 { return a.inFlight.Load() + a.failed.count(now) }

// stateAt returns the phase at a time. An ejection that is over has become half-open.
func (a *Address) stateAt(now time.Duration) phase {
	p := phase(a.phase.Load())
	if p.state() == ejected && now >= time.Duration(a.until.Load()) {
		return a.opensHalf(now)
	}
	return p
}

func (a *Address) opensHalf(now time.Duration) phase {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := phase(a.phase.Load())
	if p.state() == ejected && now >= a.ejection.Until {
		a.enter(halfOpen, a.ejection.Until)
		p = phase(a.phase.Load())
	}
	return p
}

// enter begins a phase. The caller holds the lock.
func (a *Address) enter(state phase, now time.Duration) {
	a.run = run{}
	a.suspect()
	a.since = now
	a.phase.Store(uint64((phase(a.phase.Load())&^stateMask + stateMask + 1) | state))
	a.markStale()
}

// suspect sets suspected. The caller holds the lock.
func (a *Address) suspect() { a.suspected.Store(a.denied || a.run != run{}) }

// markStale makes every upstream that has the address look again who takes part. The caller holds the lock.
func (a *Address) markStale() {
	for u := range a.upstreams {
		u.stale.Store(true)
	}
}

// succeeded notes a response, and with whole its end, of an attempt that began in the phase p. It ends the run of failures,
// and whatever kept the address out: only requests that found no better address begin while it is ejected.
func (a *Address) succeeded(now time.Duration, p phase, whole bool) {
	if p.state() == open && !a.suspected.Load() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.allow(now, "answered")
	switch {
	case phase(a.phase.Load()) != p:
	case p.state() != open:
		a.back(now, "answered")
	case whole:
		a.run = run{}
	default:
		a.run = run{hard: a.run.torn, torn: a.run.torn}
	}
	a.suspect()
}

// back ends an ejection, or the half-open phase after it. The caller holds the lock.
func (a *Address) back(now time.Duration, reason string) {
	a.returned.Store(int64(now))
	a.enter(open, now)
	a.report(Transition{At: now, State: Healthy, Reason: reason})
}

func (a *Address) report(t Transition) {
	if a.sink != nil {
		t.Address = a
		a.sink(t)
	}
}

// Return ends an ejection by hand (section 3). It reports whether there was one.
func (a *Address) Return(now time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if phase(a.phase.Load()).state() == open {
		return false
	}
	a.back(now, "returned")
	return true
}

// checked notes a good check, which ends an ejection for failures to connect and resets. The caller holds the lock.
func (a *Address) checked(now time.Duration) {
	a.allow(now, "check")
	a.suspect()
	if phase(a.phase.Load()).state() != open && a.ejection.hard {
		a.back(now, "check")
	}
}

// refusal is for how long an address that the rules have refused counts as unhealthy. Later requests try it again, since
// its name may have moved.
const refusal = 10 * time.Second

// refuse notes that the address rules do not allow the address.
func (a *Address) refuse(now time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refused.Store(int64(now + refusal))
	if !a.denied {
		a.denied = true
		a.report(Transition{At: now, State: Unhealthy, Reason: NotAllowed.String(), Count: 1})
	}
	a.suspect()
	a.markStale()
}

// allow notes that there was a connection to the address, which the rules may have refused before. The caller holds the lock.
func (a *Address) allow(now time.Duration, reason string) {
	if !a.denied {
		return
	}
	a.denied = false
	if a.refused.Load() > int64(now) {
		a.refused.Store(int64(now))
		a.markStale()
	}
	a.report(Transition{At: now, State: Healthy, Reason: reason})
}

// fail notes a failure that counts under e, of an attempt that began in the phase p. It returns whether the address should be
// ejected for it, and whether max_percent bounds that.
func (a *Address) fail(e *Ejection, p phase, r Result, caller uint64, answered bool) (ejects, bounded bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if phase(a.phase.Load()) != p || p.state() == ejected {
		return false, false
	}
	a.run.add(r, caller, answered)
	a.suspect()
	return a.exceeds(e, p)
}

// exceeds returns what fail does. A half-open address is ejected for its first failure, or for a timeout or status when a
// second caller has met one. The caller holds the lock.
func (a *Address) exceeds(e *Ejection, p phase) (ejects, bounded bool) {
	failures := e.Failures
	if p.state() == halfOpen {
		failures = 1
	}
	return a.run.count() >= failures, a.run.hard < failures
}

// eject ejects the address for the failures in the phase p, unless that has changed since.
func (a *Address) eject(now time.Duration, e *Ejection, p phase, r Result) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if phase(a.phase.Load()) != p {
		return
	}
	ejects, bounded := a.exceeds(e, p)
	if !ejects {
		return
	}
	if p.state() == open && a.number > 0 && e.Base > 0 {
		a.number = max(0, a.number-int(min(int64(a.number), int64((now-a.since)/e.Base))))
	}
	a.number++
	a.ejections++
	a.ejection = EjectionStatus{Since: now, Until: now + e.duration(a.number), Reason: r, Failures: a.run.hard + a.run.soft, Number: a.number, hard: !bounded}
	a.until.Store(int64(a.ejection.Until))
	a.enter(ejected, now)
	a.report(Transition{At: now, State: Ejected, Reason: r.String(), Count: a.ejection.Failures, Until: a.ejection.Until})
}

// Ejection returns the ejection that keeps the address out at a time, or kept it out before it became half-open.
func (a *Address) Ejection(now time.Duration) (e EjectionStatus, out bool) {
	p := a.stateAt(now)
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ejection, p.state() != open
}

// Upstreams calls f for upstreams that have the address until f returns false.
func (a *Address) Upstreams(f func(Name) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for u := range a.upstreams {
		if !f(u.name) {
			return
		}
	}
}

// recent counts what happened in the last second, in tenths of it: each counts for 1 to 1.1 s.
type recent struct {
	last  atomic.Int64      // the latest tenth in which something happened
	slots [11]atomic.Uint64 // the number of the tenth, and how often in the lowest 24 bits
}

const (
	tenth      = 100 * time.Millisecond
	recentBits = 24
	recentMax  = 1<<recentBits - 1
)

func (r *recent) add(now time.Duration) {
	at := uint64(now/tenth) + 1 // a slot of 0 is empty
	s := &r.slots[at%uint64(len(r.slots))]
	for {
		word := s.Load()
		next := at<<recentBits | 1
		switch held := word >> recentBits; {
		case held > at: // a later time was there first
			return
		case held == at && word&recentMax == recentMax:
			return
		case held == at:
			next = word + 1
		}
		if s.CompareAndSwap(word, next) {
			break
		}
	}
	for {
		last := r.last.Load()
		if last >= int64(at) || r.last.CompareAndSwap(last, int64(at)) {
			return
		}
	}
}

func (r *recent) count(now time.Duration) (n int64) {
	at := int64(now/tenth) + 1
	last := r.last.Load()
	if last == 0 || at-last >= int64(len(r.slots)) {
		return 0
	}
	for i := range r.slots {
		word := r.slots[i].Load()
		if held := int64(word >> recentBits); held > at-int64(len(r.slots)) {
			n += int64(word & recentMax)
		}
	}
	return n
}
