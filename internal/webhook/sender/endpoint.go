package sender

import (
	"time"

	"github.com/keygate/keygate/internal/webhook"
)

// How many deliveries to one endpoint are in flight at a time: minWindow at first, one
// more after each success up to maxWindow, and half as many after a failure, but at
// least minWindow (additive increase, multiplicative decrease).
const (
	minWindow = 16
	maxWindow = 32
)

// maxHeldEach is how many deliveries to one endpoint are leased at a time. The limit of
// an endpoint follows what it takes in about a second, so that a fast endpoint is served
// in large batches and a slow one holds no leases that it cannot use.
const maxHeldEach = 512

// breakAfter is how many failures in a row open the circuit breaker of an endpoint.
const breakAfter = 10

// maxPause bounds how long a breaker stays open.
const maxPause = 5 * time.Minute

// endpoint is the state of one endpoint in a sender. The dispatcher's mutex guards it.
type endpoint struct {
	webhookID string
	queue     []*task // held, not started
	held      int     // queued, in flight, or ended and not yet in the store
	inFlight  int
	window    int // most that may be in flight
	limit     int // most that may be held
	// mayHaveMore is set if the last claim returned as many deliveries as it allowed.
	mayHaveMore bool
	gone        bool // it responded 410, which the store has not recorded yet
	starved     bool // it is in the dispatcher's list of starved endpoints
	usedAt      time.Time

	// successes counts those since limit was last measured, at measuredAt.
	successes  int
	measuredAt time.Time

	// The circuit breaker. It is closed while resumeAt is zero, open before resumeAt,
	// and half open after it, until an attempt ends.
	failures int // in a row
	pauses   int // in a row
	resumeAt time.Time
	probe    *task // the one new delivery that is sent while half open
}

func newEndpoint(webhookID string) *endpoint {
	return &endpoint{webhookID: webhookID, window: minWindow, limit: minWindow}
}

// paused reports whether the breaker is open.
func (e *endpoint) paused(now time.Time) bool { return now.Before(e.resumeAt) }

// allowance returns what may be claimed for the endpoint.
func (e *endpoint) allowance(now time.Time) Allowance {
	free := max(0, e.limit-e.held)
	switch {
	case e.gone:
		return Allowance{}
	case e.resumeAt.IsZero():
		return Allowance{Limit: free}
	case e.paused(now), e.probe != nil:
		return Allowance{Limit: free, SkipNew: true}
	default: // half open: one delivery of any kind probes the endpoint
		return Allowance{Limit: min(free, 1)}
	}
}

// claimed queues the tasks that a claim with allowance a returned.
func (e *endpoint) claimed(tasks []*task, a Allowance, now time.Time) {
	if a.Limit > 0 {
		e.mayHaveMore = len(tasks) >= a.Limit
	}
	if len(tasks) == 0 {
		return
	}
	if e.held == 0 {
		e.successes, e.measuredAt = 0, now
	}
	if !e.resumeAt.IsZero() && !a.SkipNew {
		e.probe = tasks[0]
	}
	e.queue = append(e.queue, tasks...)
	e.held += len(tasks)
	e.usedAt = now
}

// wantsMore reports whether another claim should be made for the endpoint: the store may
// have more, and the queue is empty or half of what may be held is done.
func (e *endpoint) wantsMore() bool {
	return e.mayHaveMore && e.held < e.limit && (len(e.queue) == 0 || e.held <= e.limit/2)
}

// pop removes and returns the first task of the queue.
func (e *endpoint) pop() *task {
	t := e.queue[0]
	e.queue[0] = nil
	e.queue = e.queue[1:]
	return t
}

// takeNew removes and returns the queued tasks that an open breaker postpones: those
// without an attempt, except deliveries that were requested one by one.
func (e *endpoint) takeNew() (taken []*task) {
	kept := e.queue[:0]
	for _, t := range e.queue {
		if t.Attempt == 1 && t.Trigger != webhook.ByHand && t.Trigger != webhook.ByTest {
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

// succeeded records a success: it closes the breaker, widens the window, and adapts the
// limit once half of it has succeeded.
func (e *endpoint) succeeded(now time.Time) {
	e.failures, e.pauses, e.resumeAt = 0, 0, time.Time{}
	e.window = min(e.window+1, maxWindow)
	e.limit = max(e.limit, e.window)
	e.successes++
	if e.successes < e.limit/2 {
		return
	}
	// Half of the limit should take about half a second.
	switch took := now.Sub(e.measuredAt); {
	case took < time.Second/2 && e.mayHaveMore:
		e.limit = min(2*e.limit, maxHeldEach)
	case took > 2*time.Second:
		e.limit = max(e.limit/2, e.window)
	}
	e.successes, e.measuredAt = 0, now
}

// failed records a failure and reports whether it opened the breaker. The pauses of the
// breaker grow like the waits between attempts.
func (e *endpoint) failed(now time.Time, waits [webhook.MaxAttempts - 1]time.Duration) (opened bool) {
	e.failures++
	e.window = max(e.window/2, minWindow)
	e.limit = e.window
	if e.failures < breakAfter || e.paused(now) {
		return false
	}
	e.resumeAt = now.Add(min(waits[min(e.pauses, len(waits)-1)], maxPause))
	e.pauses++
	return true
}

// forgettable reports whether the endpoint can be forgotten without losing anything.
func (e *endpoint) forgettable(now time.Time) bool {
	return e.held == 0 && now.Sub(e.usedAt) >= forgetAfter && now.Sub(e.resumeAt) >= forgetAfter
}
