package trace

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/service"
)

// Config is what a Tracer is made of.
type Config struct {
	// Settings are from FromEnvironment. Required.
	Settings *Settings
	// RoutePath returns the path of a route as it was configured, or "". Nil
	// knows none.
	RoutePath func(gatewayID, routeID string) string
	// Version is told as service.version.
	Version string
	// Log receives trouble with the collector. It never sees its address, which
	// may hold a password. Nil discards.
	Log *slog.Logger
}

// Tracer chooses requests and tells of them. It is an outcome.Sink, and safe for
// concurrent use.
type Tracer struct {
	cfg      Config
	settings *Settings
	sender   *sender
	lost     atomic.Uint64

	mu     sync.Mutex
	queue  []finished
	closed bool

	hurry chan struct{}      // has room for one: a batch is full
	sync  chan chan struct{} // closed when what was taken before is sent or lost
	group service.Group
}

// finished is a request that is to be told of.
type finished struct {
	accesslog.Record
	method, path string
}

// New returns a Tracer that sends nothing until Start.
func New(cfg Config) (*Tracer, error) {
	if cfg.Settings == nil {
		return nil, errors.New("trace: Settings are required")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	t := &Tracer{
		cfg: cfg, settings: cfg.Settings,
		hurry: make(chan struct{}, 1), sync: make(chan chan struct{}),
	}
	t.sender = newSender(cfg.Settings)
	return t, nil
}

// Begin notes in a request's record which trace it is part of, if it is chosen.
// traceparent is the value of the caller's field, empty if there is none or more
// than one.
func (t *Tracer) Begin(r *accesslog.Record, traceparent []byte) {
	var p parent
	inbound := false
	if t.settings.propagate && len(traceparent) > 0 {
		p, inbound = parseParent(traceparent)
	}
	if !inbound {
		p = parent{trace: rootTrace(r.Request)}
	}
	r.Trace, r.Parent = [16]byte{}, [8]byte{}
	if t.settings.sampler.choose(p.trace, inbound, p.sampled) {
		r.Trace, r.Parent = p.trace, p.span
	}
}

// Append appends the traceparent that the upstream gets. It follows Begin, with
// the same arguments. That of a trace that is not chosen passes as it came.
func (t *Tracer) Append(dst []byte, r *accesslog.Record, traceparent []byte) []byte {
	if !t.settings.propagate {
		return append(dst, traceparent...)
	}
	ours := parent{trace: r.Trace, span: span(r.Request), sampled: true}
	if r.Trace == ([16]byte{}) {
		if _, ok := parseParent(traceparent); ok {
			return append(dst, traceparent...)
		}
		ours.trace, ours.sampled = rootTrace(r.Request), false
	}
	return appendParent(dst, ours)
}

// rootTrace makes a trace of a request's identifier: its two fixed bits give way
// to random ones, since samplers take the last 64 for random.
func rootTrace(request [16]byte) [16]byte {
	request[8] = request[7]
	return request
}

// span is the request's own in its trace.
func span(request [16]byte) [8]byte { return [8]byte(request[8:]) }

// maxPath is how much of a path a span tells: it bounds what callers can make the
// queue hold, and the size of a batch, which collectors bound.
const maxPath = 1 << 10

// Take queues what was chosen.
func (t *Tracer) Take(batch []accesslog.Entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range batch {
		e := &batch[i]
		if e.Trace == ([16]byte{}) || e.Part == accesslog.Started {
			continue
		}
		if t.closed || len(t.queue) >= t.settings.queue {
			t.lost.Add(1)
			continue
		}
		path := apikey.Redact(e.Path)
		t.queue = append(t.queue, finished{Record: e.Record, method: strings.Clone(e.MethodText), path: strings.Clone(path[:min(len(path), maxPath)])})
	}
	if len(t.queue) >= t.settings.batch {
		select {
		case t.hurry <- struct{}{}:
		default:
		}
	}
}

// Lost returns the number of requests that were chosen and not told of: the
// collector was too slow, or did not take them.
func (t *Tracer) Lost() uint64 { return t.lost.Load() }

// Waiting returns the number of requests that are still to be sent.
func (t *Tracer) Waiting() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.queue)
}

// next takes a batch off the queue.
func (t *Tracer) next() []finished {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := min(len(t.queue), t.settings.batch)
	if n == 0 {
		t.queue = nil
		return nil
	}
	batch := t.queue[:n:n]
	t.queue = t.queue[n:]
	return batch
}

func (t *Tracer) whole() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.queue) >= t.settings.batch
}
