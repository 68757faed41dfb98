package trace

import (
	"cmp"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/service"
)

// Config configures a Tracer.
type Config struct {
	// Settings are from FromEnvironment. Required.
	Settings *Settings
	// RoutePath returns the path that was configured for a route at a time
	// (microseconds since 1970), or "" if it is unknown. If it is nil, spans have no
	// route.
	RoutePath func(gatewayID, routeID string, micros int64) string
	// Version is exported as service.version.
	Version string
	// Log receives errors of the export. They never contain the URL of the
	// collector, which may contain a password. Nil discards them.
	Log *slog.Logger
}

// Tracer samples requests and exports them as spans. It is an accesslog.Sink, and safe
// for concurrent use.
type Tracer struct {
	cfg      Config
	settings *Settings
	sender   *sender
	lost     atomic.Uint64

	mu     sync.Mutex
	queue  []finished
	closed bool

	batchReady service.Signal     // holds a token if a batch is full
	sync       chan chan struct{} // each is closed when everything queued before is exported or lost
	group      service.Group
}

// finished is a request to export.
type finished struct {
	accesslog.Record
	method, path, cost string
}

// New returns a Tracer that exports nothing before Start.
func New(cfg Config) (*Tracer, error) {
	if cfg.Settings == nil {
		return nil, errors.New("telemetry/trace: Config.Settings is required")
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	t := &Tracer{
		cfg: cfg, settings: cfg.Settings,
		batchReady: service.NewSignal(), sync: make(chan chan struct{}),
	}
	t.sender = newSender(cfg.Settings)
	return t, nil
}

// Begin sets the trace and the parent span in the access record of a request, if it is
// sampled. traceparent is the value of the request's header, or empty if there is none or
// more than one.
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
	if t.settings.sampler.sampled(p.trace, inbound, p.sampled) {
		r.Trace, r.Parent = p.trace, p.span
	}
}

// Append appends the traceparent header for the upstream to dst. It is called after
// Begin, with the same arguments. The header of a trace that is not sampled is passed on
// unchanged.
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

// rootTrace derives a trace ID from the identifier of a request. It replaces the two
// fixed bits, because samplers expect the last 64 bits to be random.
func rootTrace(request [16]byte) [16]byte {
	request[8] = request[7]
	return request
}

// span derives the ID of a request's span from its identifier.
func span(request [16]byte) [8]byte { return [8]byte(request[8:]) }

// maxPath is the maximum length of a path in a span, in bytes. It bounds the memory of
// the queue, and the size of a batch, which collectors limit.
const maxPath = 1 << 10

// Take implements accesslog.Sink: it queues the sampled requests.
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
		t.queue = append(t.queue, finished{Record: e.Record, method: strings.Clone(e.MethodText), path: strings.Clone(path[:min(len(path), maxPath)]), cost: strings.Clone(e.Cost)})
	}
	if len(t.queue) >= t.settings.batch {
		t.batchReady.Notify()
	}
}

// Lost returns the number of sampled requests that were not exported because the
// collector was too slow or refused them.
func (t *Tracer) Lost() uint64 { return t.lost.Load() }

// Waiting returns the number of requests that wait to be exported.
func (t *Tracer) Waiting() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.queue)
}

// next removes a batch from the queue.
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

// hasBatch reports whether a full batch is waiting.
func (t *Tracer) hasBatch() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.queue) >= t.settings.batch
}
