package sender

import (
	"time"

	"github.com/keygate/keygate/internal/webhook"
)

// How many deliveries to one endpoint are in flight at a time: minWindow, and
// one more for each success up to maxWindow, until one fails.
const (
	minWindow = 16
	maxWindow = 32
)

// maxHeld is how many deliveries to one endpoint are leased at a time: as many
// as it takes in a second, so that a fast one is served in large batches and a
// slow one holds no leases that it cannot use.
const maxHeld = 512

// breakAfter is how many failures in a row open the breaker of an endpoint.
const breakAfter = 10

// maxPause bounds a pause of the breaker.
const maxPause = 5 * time.Minute

// endpoint is what a sender knows of one endpoint. The sender's mutex guards it.
type endpoint struct {
	webhookID string
	queue     []*task // held, not begun
	held      int     // queue, in flight, and what the store was not told of yet
	flying    int
	window    int
	limit     int       // of held
	more      bool      // the last claim brought all that it could: more may wait
	gone      bool      // it answered 410, and the store was not told of that yet
	starved   bool      // in the sender's list of those that wait for a free place
	good      int       // successes since
	since     time.Time // the limit was looked at

	failures int       // in a row
	pauses   int       // in a row
	resume   time.Time // the end of the pause; zero if the breaker is closed
	probe    *task     // the one delivery that may be new after a pause
	usedAt   time.Time
}

func newEndpoint(webhookID string) *endpoint {
	return &endpoint{webhookID: webhookID, window: minWindow, limit: minWindow}
}

// paused reports whether the breaker is open.
func (e *endpoint) paused(now time.Time) bool { return now.Before(e.resume) }

// room returns what may be claimed for the endpoint.
func (e *endpoint) room(now time.Time) Room {
	free := max(0, e.limit-e.held)
	switch {
	case e.gone:
		return Room{}
	case e.resume.IsZero():
		return Room{Any: free}
	case e.paused(now), e.probe != nil:
		return Room{Any: free, Begun: true}
	default: // half open: whatever comes first tells how the endpoint fares
		return Room{Any: min(free, 1)}
	}
}

// take adds what a claim brought of what was asked for.
func (e *endpoint) take(tasks []*task, asked Room, now time.Time) {
	if asked.Any > 0 {
		e.more = len(tasks) >= asked.Any
	}
	if len(tasks) == 0 {
		return
	}
	if e.held == 0 {
		e.good, e.since = 0, now
	}
	if !e.resume.IsZero() && !asked.Begun {
		e.probe = tasks[0]
	}
	e.queue = append(e.queue, tasks...)
	e.held += len(tasks)
	e.usedAt = now
}

// wants reports whether a claim should look after the endpoint: more may wait in
// the store, and what is held is on the way or half done.
func (e *endpoint) wants() bool {
	return e.more && e.held < e.limit && (len(e.queue) == 0 || e.held <= e.limit/2)
}

// next takes the first task out of the queue.
func (e *endpoint) next() *task {
	t := e.queue[0]
	e.queue[0] = nil
	e.queue = e.queue[1:]
	return t
}

// cut takes what a pause postpones out of the queue: deliveries that had no
// attempt yet, unless somebody asked for them one by one.
func (e *endpoint) cut() (back []*task) {
	kept := e.queue[:0]
	for _, t := range e.queue {
		if t.Attempt == 1 && t.Trigger != webhook.ByHand && t.Trigger != webhook.ByTest {
			back = append(back, t)
		} else {
			kept = append(kept, t)
		}
	}
	clear(e.queue[len(kept):])
	e.queue = kept
	return back
}

// succeeded takes a success into account.
func (e *endpoint) succeeded(now time.Time) {
	e.failures, e.pauses, e.resume = 0, 0, time.Time{}
	e.window = min(e.window+1, maxWindow)
	e.limit = max(e.limit, e.window)
	e.good++
	if e.good < e.limit/2 {
		return
	}
	// Half of what may be held is done: it should take half a second.
	switch took := now.Sub(e.since); {
	case took < time.Second/2 && e.more:
		e.limit = min(2*e.limit, maxHeld)
	case took > 2*time.Second:
		e.limit = max(e.limit/2, e.window)
	}
	e.good, e.since = 0, now
}

// failed takes a failure into account and reports whether the breaker opened,
// for a pause that grows as the waits between attempts do.
func (e *endpoint) failed(now time.Time, waits [webhook.MaxAttempts - 1]time.Duration) (opened bool) {
	e.failures++
	e.window = max(e.window/2, minWindow)
	e.limit = e.window
	if e.failures < breakAfter || e.paused(now) {
		return false
	}
	e.resume = now.Add(min(waits[min(e.pauses, len(waits)-1)], maxPause))
	e.pauses++
	return true
}

// forgettable reports whether nothing is lost if the endpoint is forgotten.
func (e *endpoint) forgettable(now time.Time) bool {
	return e.held == 0 && now.Sub(e.usedAt) >= sweepEvery && now.Sub(e.resume) >= sweepEvery
}
