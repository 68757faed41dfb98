package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/service"
)

// Lines is an accesslog.Sink that writes requests to the log. At level debug it writes a line for
// each request, otherwise only for requests whose upstream response has a 5xx status, throttled
// (Throttle). A line has neither an API key nor a query.
type Lines struct {
	log     *slog.Logger
	waiting chan accesslog.Entry
	lost    atomic.Int64
	group   service.Group
}

const (
	waitingLines = 4096
	maxPath      = 1 << 10 // bytes of a path in a line
	stopTime     = time.Second
)

// NewLines returns Lines that write to log after Start.
func NewLines(log *slog.Logger) *Lines {
	return &Lines{log: Throttle(log), waiting: make(chan accesslog.Entry, waitingLines)}
}

// Take implements accesslog.Sink. It never waits for the log.
func (l *Lines) Take(batch []accesslog.Entry) {
	all := l.log.Enabled(context.Background(), slog.LevelDebug)
	for i := range batch {
		e := &batch[i]
		if e.Part == accesslog.Started || !all && e.UpstreamStatus < 500 {
			continue
		}
		kept, path := *e, apikey.Redact(e.Path) // before it is cut, since a part of a key is not recognized
		kept.MethodText, kept.Path = strings.Clone(e.MethodText), strings.Clone(path[:min(len(path), maxPath)])
		select {
		case l.waiting <- kept:
		default: // the log is too slow
			l.lost.Add(1)
		}
	}
}

// Lost returns the number of lines that were dropped because the log was too slow.
func (l *Lines) Lost() int64 { return l.lost.Load() }

// Start begins to write, until Stop.
func (l *Lines) Start(context.Context) error {
	if err := l.group.Start(l.run); err != nil {
		return fmt.Errorf("start the request log lines: %w", err)
	}
	return nil
}

// Stop writes the waiting lines, for one second at most, so that a log that is read
// slowly leaves time for services that matter more. The lines that are left after
// that are lost, which is not an error. It returns an error only if the log has not
// accepted the line being written after another second, or if ctx ends first.
func (l *Lines) Stop(ctx context.Context) error {
	if l.stopWithin(ctx, stopTime) == nil {
		return nil
	}
	if err := l.stopWithin(ctx, stopTime); err != nil {
		return fmt.Errorf("stop the request log lines: %w", err)
	}
	return nil
}

func (l *Lines) stopWithin(ctx context.Context, d time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return l.group.Stop(ctx)
}

func (l *Lines) run(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case e := <-l.waiting:
			l.line(&e)
		case <-ctx.Done():
		}
	}
	l.finish(l.group.Grace())
}

// finish writes the waiting lines until ctx ends.
func (l *Lines) finish(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case e := <-l.waiting:
			l.line(&e)
		default:
			return
		}
	}
	l.lost.Add(int64(len(l.waiting)))
}

func (l *Lines) line(e *accesslog.Entry) {
	if e.UpstreamStatus >= 500 {
		l.write(slog.LevelWarn, "upstream responded with a server error", e)
		return
	}
	l.write(slog.LevelDebug, "request", e)
}

func (l *Lines) write(level slog.Level, message string, e *accesslog.Entry) {
	attrs := []slog.Attr{
		slog.String("request_id", id.Format(id.Request, e.Request)), slog.String("method", e.MethodName()), slog.String("path", e.Path),
		slog.Int("status", int(e.Status)), slog.String("outcome", resultName(e.Result)),
		slog.Float64("ms", milliseconds(e.Duration)),
	}
	if e.Upstream >= 0 {
		attrs = append(attrs, slog.Float64("upstream_ms", milliseconds(e.Upstream)))
	}
	for _, one := range []struct {
		name string
		kind id.Kind
		id   [16]byte
	}{{"gateway_id", id.Gateway, e.Gateway}, {"route_id", id.Route, e.Route}, {"key_id", id.Key, e.Key}} {
		if one.id != ([16]byte{}) {
			attrs = append(attrs, slog.String(one.name, id.Format(one.kind, one.id)))
		}
	}
	if e.Client != ([16]byte{}) {
		attrs = append(attrs, slog.String("client", netip.AddrFrom16(e.Client).Unmap().String()))
	}
	l.log.LogAttrs(context.Background(), level, message, attrs...)
}

// milliseconds converts nanoseconds to milliseconds with three decimals.
func milliseconds(ns int64) float64 { return float64(ns/int64(time.Microsecond)) / 1000 }
