// Package tally generates load with requests of many kinds and counts the responses
// exactly, so that a server's reports can be compared with them. It uses a small
// HTTP/1.1 client of its own, and net/http for cleartext HTTP/2.
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

// Call is one kind of request, and how a report must count it.
type Call struct {
	Name   string
	Method string
	Host   string
	Target string // path and query
	Key    string // sent as a bearer token; "" sends none
	Body   []byte
	Want   []int // expected statuses

	// Gateway, Route and KeyID are the groups that a report counts the call in; "" is
	// none. A call without a gateway belongs to no account and is in no report.
	Gateway, Route, KeyID string
	// Upstream says that a 5xx response counts as an upstream error.
	Upstream bool
}

// Config describes a load.
type Config struct {
	Address string // host and port of the data plane
	Calls   []Call // each worker makes the calls in turn, starting at a different call
	Workers int    // number of HTTP/1.1 connections
	Streams int    // number of streams on one HTTP/2 connection
}

// Response is a kind of response: a status for a kind of request.
type Response struct {
	Call   int // index in Config.Calls
	Status int
}

// Count is a number of responses with the sizes of their bodies.
type Count struct{ Requests, BytesIn, BytesOut int64 }

func (c *Count) add(other Count) {
	c.Requests += other.Requests
	c.BytesIn += other.BytesIn
	c.BytesOut += other.BytesOut
}

// Result is what a run counted.
type Result struct {
	Counts map[Response]Count
	// NoResponse is how many requests received no byte of a response, because the
	// server had closed the connection or was down. They may be missing from its
	// report.
	NoResponse int64
}

// Total returns the number of responses.
func (r *Result) Total() (n int64) {
	for _, c := range r.Counts {
		n += c.Requests
	}
	return n
}

// loadRun is a run in progress.
type loadRun struct {
	cfg        Config
	noResponse atomic.Int64
	mu         sync.Mutex
	counts     map[Response]Count
	fail       func(error)
}

// Run generates load until ctx ends. Requests in progress are then finished and
// counted. It fails if a response breaks off or has an unexpected status.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	if cfg.Address == "" || len(cfg.Calls) == 0 || cfg.Workers+cfg.Streams < 1 {
		return nil, errors.New("tally: an address, calls and workers are required")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &loadRun{cfg: cfg, counts: map[Response]Count{}, fail: cancel}
	var group sync.WaitGroup
	for i := range cfg.Workers {
		group.Go(func() { r.work(ctx, i, newHTTP1Conn(cfg)) })
	}
	if cfg.Streams > 0 {
		streams := newHTTP2Streams(cfg)
		for i := range cfg.Streams {
			group.Go(func() { r.work(ctx, i, streams) })
		}
		defer streams.close()
	}
	group.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return nil, err
	}
	return &Result{Counts: r.counts, NoResponse: r.noResponse.Load()}, nil
}

// errNoResponse reports that a request received no byte of a response.
var errNoResponse = errors.New("no response")

// caller makes calls.
type caller interface {
	call(index int, c *Call) (status int, bytesOut int64, err error)
}

// retryInterval is how long a worker waits after a request without a response.
const retryInterval = 5 * time.Millisecond

// work makes calls until ctx ends.
func (r *loadRun) work(ctx context.Context, first int, by caller) {
	own := map[Response]Count{}
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		for o, c := range own {
			sum := r.counts[o]
			sum.add(c)
			r.counts[o] = sum
		}
		if l, ok := by.(*http1Conn); ok {
			l.close()
		}
	}()
	retry := time.NewTicker(retryInterval)
	defer retry.Stop()
	for i := first; ctx.Err() == nil; i++ {
		index := i % len(r.cfg.Calls)
		c := &r.cfg.Calls[index]
		status, bytesOut, err := by.call(index, c)
		switch {
		case errors.Is(err, errNoResponse):
			r.noResponse.Add(1)
			select {
			case <-ctx.Done():
			case <-retry.C:
			}
			continue
		case err != nil:
			r.fail(fmt.Errorf("%s: %w", c.Name, err))
			return
		case !c.wants(status):
			r.fail(fmt.Errorf("%s: status %d %s, want one of %v", c.Name, status, http.StatusText(status), c.Want))
			return
		}
		sum := own[Response{index, status}]
		sum.add(Count{1, int64(len(c.Body)), bytesOut})
		own[Response{index, status}] = sum
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
