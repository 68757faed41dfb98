package sender

import (
	"time"

	"github.com/keygate/keygate/internal/webhook"
)

// The window: how many deliveries to one endpoint are in flight at a time (additive increase,
// multiplicative decrease). It is minWindow at first. A success adds one, up to maxWindow, or up to
// slowWindow if the attempt took longer than quickTime. A failure halves it, but to at least
// minWindow, or 1 after a timeout.
const (
	minWindow  = 4
	slowWindow = 16
	maxWindow  = 32
)

// maxHeldEach is how many deliveries to one endpoint are leased at a time. The limit of an endpoint
// follows the number of deliveries that it takes in about a second, so that a fast endpoint is
// served in large batches and a slow endpoint holds no leases that it cannot use.
const maxHeldEach = 512

// The circuit breaker of an endpoint opens after breakAfter failures in a row, or after
// breakAfterTimeouts without a success between them.
const (
	breakAfter         = 10
	breakAfterTimeouts = 3
)

// maxPause bounds how long a breaker stays open.
const maxPause = 5 * time.Minute

// endpoint is the state of one endpoint in a sender. The dispatcher's mutex guards it.
type endpoint struct {
	webhookID string
	tenant    *tenant
	class     class
	debt      int     // quick attempts until it is quick again
	queue     []*task // held, not started; only of quick endpoints
	held      int     // queued, in flight, or ended and not yet in the store
	inFlight  int
	window    int // most that may be in flight
	limit     int // most that may be held
	// due says that the store may have due deliveries without a lease: new ones, which an
	// open breaker postpones, and others.
	due    due
	full   bool // the last claim returned as many deliveries as it allowed
	listed bool // it is among its tenant's endpoints that wait for a claim
	gone   bool // it responded 410, which the store has not recorded yet
	// starved: it is in the dispatcher's list of endpoints that wait for a slot.
	starved bool
	usedAt  time.Time

	// successes counts those since limit was last measured, at measuredAt.
	successes  int
	measuredAt time.Time

	// The circuit breaker. It is closed while resumeAt is zero, open before resumeAt, and half open
	// from resumeAt until an attempt ends.
	failures int // in a row
	timeouts int // since the last success
	pauses   int // in a row
	resumeAt time.Time
	probe    *task // the one new delivery that is sent while half open
}

// due says which deliveries of an endpoint may be due, and when the oldest of them became due, as far
// as the sender knows.
type due struct {
	fresh, begun bool
	since        time.Time
}

func (d due) any() bool { return d.fresh || d.begun }

func (e *endpoint) add(d due) {
	if d.any() && (!e.due.any() || d.since.Before(e.due.since)) {
		e.due.since = d.since
	}
	e.due.fresh = e.due.fresh || d.fresh
	e.due.begun = e.due.begun || d.begun
}

// takeDue removes and returns what a claim will find.
func (e *endpoint) takeDue(skipNew bool) (taken due) {
	taken = e.due
	taken.fresh = taken.fresh && !skipNew
	e.due = due{fresh: e.due.fresh && skipNew, since: e.due.since}
	return taken
}

// paused reports whether the breaker is open.
func (e *endpoint) paused(now time.Time) bool { return now.Before(e.resumeAt) }

// allowance returns how many deliveries the endpoint's own state allows to be claimed, and whether
// only deliveries that a breaker does not postpone may be.
func (e *endpoint) allowance(now time.Time) (n int, skipNew bool) {
	n = e.limit - e.held
	switch e.class {
	case quick:
	case untried:
		n = min(n, 1-e.inFlight)
	default:
		n = min(n, e.window-e.inFlight)
	}
	switch {
	case e.gone || n <= 0:
		return 0, false
	case !e.due.any():
		return 0, false
	case e.resumeAt.IsZero():
		return n, false
	case e.paused(now) || e.probe != nil:
		if !e.due.begun {
			return 0, true
		}
		return n, true
	default: // half open: one delivery of any kind probes the endpoint
		return 1, false
	}
}

// wantsClaim reports whether deliveries should be claimed for the endpoint now: for a quick
// endpoint when its queue is empty or half of the deliveries that it may hold are done, for any
// other whenever a delivery could start.
func (e *endpoint) wantsClaim(now time.Time) bool {
	if n, _ := e.allowance(now); n <= 0 {
		return false
	}
	return len(e.queue) == 0 || e.held <= e.limit/2
}

// claimed takes note of a claim of up to limit deliveries that returned the given tasks, which are
// held now.
func (e *endpoint) claimed(tasks []*task, limit int, skipNew bool, now time.Time) {
	e.full = len(tasks) >= limit
	if len(tasks) == 0 {
		return
	}
	if e.held == len(tasks) {
		e.successes, e.measuredAt = 0, now
	}
	if !e.resumeAt.IsZero() && !skipNew && e.probe == nil {
		e.probe = tasks[0]
	}
	e.usedAt = now
}

// pop removes and returns the first task of the queue.
func (e *endpoint) pop() *task {
	t := e.queue[0]
	e.queue[0] = nil
	e.queue = e.queue[1:]
	return t
}

// postponed reports whether an open breaker postpones the task: it has had no attempt and was
// not requested one by one.
func (t *task) postponed() bool {
	return t.Attempt == 1 && t.Trigger != webhook.ByHand && t.Trigger != webhook.ByTest
}

// takeNew removes and returns the queued tasks that an open breaker postpones.
func (e *endpoint) takeNew() (taken []*task) {
	kept := e.queue[:0]
	for _, t := range e.queue {
		if t.postponed() {
			taken = append(taken, t)
		} else {
			kept = append(kept, t)
		}
	}
	clear(e.queue[len(kept):])
	e.queue = kept
	return taken
}

// clearProbe ends the probe if t is it.
func (e *endpoint) clearProbe(t *task) {
	if e.probe == t {
		e.probe = nil
	}
}

// took updates the class with the duration of an attempt.
func (e *endpoint) took(d time.Duration, success bool) {
	switch {
	case d > quickTime && success:
		e.class, e.debt = unproven, trustAfter
	case d > quickTime:
		e.class, e.debt = hanging, trustAfter
	case e.debt > 1:
		e.class, e.debt = unproven, e.debt-1
	default:
		e.class, e.debt = quick, 0
	}
}

// succeeded records a success: it closes the breaker, widens the window, and adapts the limit once
// half of the limit has succeeded.
func (e *endpoint) succeeded(now time.Time) {
	e.failures, e.timeouts, e.pauses, e.resumeAt = 0, 0, 0, time.Time{}
	if e.debt < trustAfter {
		e.window = min(e.window+1, maxWindow)
	} else {
		e.window = min(e.window+1, slowWindow)
	}
	e.limit = max(e.limit, e.window)
	e.successes++
	if e.successes < e.limit/2 {
		return
	}
	// Half of the limit should take about half a second.
	switch took := now.Sub(e.measuredAt); {
	case took < time.Second/2 && e.full:
		e.limit = min(2*e.limit, maxHeldEach)
	case took > 2*time.Second:
		e.limit = max(e.limit/2, e.window)
	}
	e.successes, e.measuredAt = 0, now
}

// failed records a failure and reports whether it opened the breaker. The pauses of the
// breaker grow like the waits between attempts.
func (e *endpoint) failed(now time.Time, timeout bool, waits [webhook.MaxAttempts - 1]time.Duration) (opened bool) {
	e.failures++
	least := min(e.window, minWindow)
	if timeout {
		e.timeouts++
		least = 1
	}
	e.window = max(e.window/2, least)
	e.limit = e.window
	if e.failures < breakAfter && e.timeouts < breakAfterTimeouts || e.paused(now) {
		return false
	}
	e.pause(now.Add(waits[min(e.pauses, len(waits)-1)]), now)
	return true
}

// pause opens the breaker until the given time, but not for longer than maxPause.
func (e *endpoint) pause(at, now time.Time) {
	e.resumeAt = now.Add(min(at.Sub(now), maxPause))
	e.pauses++
}

// forgettable reports whether the endpoint can be forgotten without losing anything but its
// class.
func (e *endpoint) forgettable(now time.Time) bool {
	return e.held == 0 && !e.listed && !e.due.any() && now.Sub(e.usedAt) >= forgetAfter && now.Sub(e.resumeAt) >= forgetAfter
}
