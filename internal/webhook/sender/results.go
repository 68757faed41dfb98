package sender

import (
	"sync"
	"time"

	"github.com/keygate/keygate/internal/service"
)

// task is a job that this sender has leased.
type task struct {
	Job
	endpoint *endpoint
	until    time.Time // when the lease expires
	claimant string    // under which it was claimed
	slot     class     // whose slot it has while in flight
}

// finished is a task with the result of its attempt.
type finished struct {
	task   *task
	result Result
}

// results is a FIFO queue of what must be written to the store: the results of attempts, and leases
// to end without an attempt. Its methods may be called by several goroutines.
type results struct {
	// ready has a value when something was added since the last take. It is closed
	// by close.
	ready service.Signal

	mu       sync.Mutex
	finished []finished
	released []*task
}

func newResults() *results { return &results{ready: service.NewSignal()} }

// add appends one result.
func (r *results) add(f finished) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.finished = append(r.finished, f)
	r.ready.Notify()
}

// release appends tasks whose leases are to end without an attempt.
func (r *results) release(tasks ...*task) {
	if len(tasks) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.released = append(r.released, tasks...)
	r.ready.Notify()
}

// take removes and returns the oldest results and the oldest releases, at most n of each. Results
// come before the releases that were added after them.
func (r *results) take(n int) (batch []finished, released []*task) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := min(n, len(r.released))
	n = min(n, len(r.finished))
	batch, r.finished = r.finished[:n:n], r.finished[n:]
	if len(r.finished) == 0 {
		r.finished = nil
	}
	released, r.released = r.released[:m:m], r.released[m:]
	if len(r.released) == 0 {
		r.released = nil
	}
	return batch, released
}

// close ends the queue. Nothing may be added after it.
func (r *results) close() { close(r.ready) }
