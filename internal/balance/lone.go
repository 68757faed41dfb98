package balance

import (
	"sync/atomic"
	"time"
)

// Lone counts the requests to the only target of an upstream, where there is nothing to choose. It outlives snapshots, as
// targets do: what began before the upstream got a second target goes on to count. It is safe for concurrent use.
type Lone struct {
	url, address string
	begun, ended atomic.Uint64
	leaves       atomic.Bool              // it drains, or is one of several since
	next         atomic.Pointer[Upstream] // that chooses since there are several targets
	since        atomic.Int64             // of the present state
	ending       Ending
}

// keptLone is what the Fleet knows of a Lone that drains, or has left with requests in flight.
type keptLone struct {
	name Name
	gone bool // it is not the only target any more
}

// Begin begins a request, and reports whether it may go to the target. If it may, End must follow. If not, Next may have
// another one.
func (l *Lone) Begin() bool {
	l.begun.Add(1)
	if l.leaves.Load() { // both sides write before they read, as in Attempts.start
		l.ended.Add(1)
		return false
	}
	return true
}

// End ends a request.
func (l *Lone) End() { l.ended.Add(1) }

// Ending returns when requests in flight must end.
func (l *Lone) Ending() *Ending { return &l.ending }

// Next returns what chooses between the targets since there are several, or nil.
func (l *Lone) Next() *Upstream { return l.next.Load() }

// InFlight returns the requests in flight.
func (l *Lone) InFlight() int64 {
	ended := l.ended.Load() // first, so that the difference is never negative
	return int64(l.begun.Load() - ended)
}

// Alone returns what counts the requests to the only target of an upstream from now on. was is what counted before, or nil: it
// goes on if the target is the same. If it drains, what is in flight ends after timeout. The caller passes the result, or it, to
// the next call of Alone or EndAlone.
func (f *Fleet) Alone(now time.Duration, n Name, was *Lone, url, address string, drain bool, timeout time.Duration) *Lone {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := was
	if l == nil || l.url != url || l.next.Load() != nil {
		f.leave(n, was)
		l = &Lone{url: url, address: address}
		l.since.Store(int64(now))
	}
	if l.leaves.Swap(drain) != drain {
		l.since.Store(int64(now))
	}
	delete(f.lones, l)
	if l.ending.at.Store(0); drain {
		f.lones[l] = keptLone{name: n}
		l.ending.after(time.Duration(l.since.Load()), timeout)
	}
	return l
}

// EndAlone notes that the target is not the only one of its upstream any more. next is what chooses from now on: requests that are
// to begin at the target go there instead, and what is in flight ends when the target is taken away from next. next is nil if the
// upstream is gone: then what is in flight ends after timeout.
func (f *Fleet) EndAlone(now time.Duration, n Name, was *Lone, next *Upstream, timeout time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if next == nil {
		was.ending.after(now, timeout)
	} else {
		was.next.Store(next)
		was.leaves.Store(true)
		next.adopt(now, was)
	}
	f.leave(n, was)
}

// leave keeps l while it has requests in flight. The caller holds the lock.
func (f *Fleet) leave(n Name, l *Lone) {
	if l == nil {
		return
	}
	delete(f.lones, l)
	if l.InFlight() > 0 {
		f.lones[l] = keptLone{name: n, gone: true}
	}
}

// sweepLones forgets those that are gone and have nothing in flight. The caller holds the lock.
func (f *Fleet) sweepLones() {
	for l, kept := range f.lones {
		if kept.gone && l.InFlight() == 0 {
			delete(f.lones, l)
		}
	}
}

// endsLone reports whether requests of a Lone must end by the given time. The caller holds the lock.
func (f *Fleet) endsLone(by time.Duration) bool {
	for l := range f.lones {
		if l.ending.Ends(by) && l.InFlight() > 0 {
			return true
		}
	}
	return false
}

// Status returns the state of the target, of which only the requests are known. It has no Target.
func (l *Lone) Status() Status {
	n := l.InFlight()
	return Status{URL: l.url, Address: l.address, Weight: 1, Draining: l.leaves.Load(), Since: time.Duration(l.since.Load()), InFlight: n, Own: n, Requests: l.begun.Load()}
}
