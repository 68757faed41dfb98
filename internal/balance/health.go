package balance

import (
	"sync/atomic"
	"time"
)

// Health is what the checks with certain settings find at an address (section 3). All upstreams of the account with an equal
// Check share it. It is safe for concurrent use.
type Health struct {
	address *Address
	check   Check

	state    atomic.Int32 // a verdict
	known    atomic.Int64 // when the first result came
	returned atomic.Int64 // when the address last became healthy again

	// The rest is guarded by the lock of the address.
	row    int // results in a row that contradict the state
	since  time.Duration
	reason string // of the last bad result
	last   CheckResult
	uses   int // targets that have it; guarded by the lock of the Fleet
}

// CheckResult is the last result of a check.
type CheckResult struct {
	At   time.Duration
	Good bool
	// Reason says why the check failed. It is "" after a good one.
	Reason string
	Known  bool // there was a check
}

type verdict int32

const (
	unknown verdict = iota // no check has ended
	good
	bad
)

// Address returns the address that the checks are of.
func (h *Health) Address() *Address { return h.address }

// Last returns the result of the last check.
func (h *Health) Last() CheckResult {
	h.address.mu.Lock()
	defer h.address.mu.Unlock()
	return h.last
}

// Report notes the result of a check. The first one decides alone; later ones change the state when as many in a row as
// the settings say contradict it.
func (h *Health) Report(now time.Duration, isGood bool, reason string) {
	a := h.address
	a.mu.Lock()
	defer a.mu.Unlock()
	h.last = CheckResult{At: now, Good: isGood, Reason: reason, Known: true}
	if isGood {
		a.checked(now)
	} else {
		h.reason = reason
	}
	before, found, needed := verdict(h.state.Load()), bad, h.check.Unhealthy
	if isGood {
		found, needed = good, h.check.Healthy
	}
	if before == found {
		h.row = 0
		return
	}
	if h.row++; before != unknown && h.row < needed {
		return
	}
	count := h.row
	h.row, h.since = 0, now
	h.state.Store(int32(found))
	a.markStale()
	switch {
	case before == unknown:
		h.known.Store(int64(now))
		if isGood {
			return
		}
	case isGood:
		h.returned.Store(int64(now))
	}
	t := Transition{At: now, Check: h.check.ID, State: Healthy, Reason: "check", Count: count}
	if !isGood {
		t.State, t.Reason = Unhealthy, reason
	}
	a.report(t)
}
