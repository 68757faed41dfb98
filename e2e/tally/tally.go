// Package tally makes load of many kinds at once and counts exactly what came
// back, for what a server reports to be held against it. It speaks HTTP/1.1, by
// its own few lines, and HTTP/2 in the clear, by net/http.
package tally

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Call is one kind of request, and what a report is to tell of it.
type Call struct {
	Name   string
	Method string
	Host   string
	Target string // path and query
	Key    string // sent as a bearer; "" sends none
	Body   []byte
	Want   []int // statuses that may come back

	// Gateway, Route and KeyID are what the report has it under; "" is none. A
	// call without a gateway is nobody's, and no report has it.
	Gateway, Route, KeyID string
	// Upstream tells that its 5xx are an upstream's, or for want of one.
	Upstream bool
}

// Config is what load is made of.
type Config struct {
	Address string // host and port of the data plane
	Calls   []Call // made in turn by each worker, which begin at different ones
	Workers int    // each with one connection of HTTP/1.1
	Streams int    // of one connection of HTTP/2
}

// Outcome is a kind of request with what came back.
type Outcome struct {
	Call   int // index in Config.Calls
	Status int
}

// Count is how often something came back, and how large its bodies were.
type Count struct{ Requests, BytesIn, BytesOut int64 }

func (c *Count) add(other Count) {
	c.Requests += other.Requests
	c.BytesIn += other.BytesIn
	c.BytesOut += other.BytesOut
}

// Result is what came of it.
type Result struct {
	Counts map[Outcome]Count
	// Unanswered is how many requests got no byte of an answer, because the
	// server had closed the connection, or was not there. They may not be in
	// its report.
	Unanswered int64
}

// Total returns the number of answers.
func (r *Result) Total() (n int64) {
	for _, c := range r.Counts {
		n += c.Requests
	}
	return n
}

// run is one run on its way.
type run struct {
	cfg        Config
	unanswered atomic.Int64
	mu         sync.Mutex
	counts     map[Outcome]Count
	fail       func(error)
}

// Run makes load until ctx ends; what is on its way then is finished and
// counted. It fails at an answer that breaks off and at a status that was not
// to come.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	if cfg.Address == "" || len(cfg.Calls) == 0 || cfg.Workers+cfg.Streams < 1 {
		return nil, errors.New("tally: an address, calls and workers are required")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &run{cfg: cfg, counts: map[Outcome]Count{}, fail: cancel}
	var group sync.WaitGroup
	for i := range cfg.Workers {
		group.Go(func() { r.work(ctx, i, newLine(cfg)) })
	}
	if cfg.Streams > 0 {
		streams := newStreams(cfg)
		for i := range cfg.Streams {
			group.Go(func() { r.work(ctx, i, streams) })
		}
		defer streams.end()
	}
	group.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return nil, err
	}
	return &Result{Counts: r.counts, Unanswered: r.unanswered.Load()}, nil
}

// errUnanswered tells that a request got no byte of an answer.
var errUnanswered = errors.New("no answer")

// caller makes calls.
type caller interface {
	call(index int, c *Call) (status int, bytesOut int64, err error)
}

// pause is how long a worker waits before it tries again what got no answer.
const pause = 5 * time.Millisecond

// work makes calls until ctx ends.
func (r *run) work(ctx context.Context, first int, by caller) {
	own := map[Outcome]Count{}
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		for o, c := range own {
			sum := r.counts[o]
			sum.add(c)
			r.counts[o] = sum
		}
		if l, ok := by.(*line); ok {
			l.close()
		}
	}()
	again := time.NewTicker(pause)
	defer again.Stop()
	for i := first; ctx.Err() == nil; i++ {
		index := i % len(r.cfg.Calls)
		c := &r.cfg.Calls[index]
		status, bytesOut, err := by.call(index, c)
		switch {
		case errors.Is(err, errUnanswered):
			r.unanswered.Add(1)
			select {
			case <-ctx.Done():
			case <-again.C:
			}
			continue
		case err != nil:
			r.fail(fmt.Errorf("%s: %w", c.Name, err))
			return
		case !c.wants(status):
			r.fail(fmt.Errorf("%s: status %d %s, want one of %v", c.Name, status, http.StatusText(status), c.Want))
			return
		}
		sum := own[Outcome{index, status}]
		sum.add(Count{1, int64(len(c.Body)), bytesOut})
		own[Outcome{index, status}] = sum
	}
}

func (c *Call) wants(status int) bool {
	for _, w := range c.Want {
		if status == w {
			return true
		}
	}
	return false
}
