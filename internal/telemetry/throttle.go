package telemetry

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	throttleLines   = 10 // lines of one message about one gateway in throttlePeriod
	throttlePeriod  = 10 * time.Second
	maxMessageKinds = 1024
)

// Throttle returns a logger that writes at most 10 lines in 10 seconds of one message at
// one level about one gateway, so that the log stays readable when every request fails.
// The attribute left_out of the next line is the number of lines that were dropped
// before it. Debug lines are never dropped.
func Throttle(log *slog.Logger) *slog.Logger {
	return slog.New(&throttle{next: log.Handler(), counts: &messageCounts{kinds: map[messageKind]*messageCount{}}})
}

type throttle struct {
	next   slog.Handler
	counts *messageCounts
}

type messageKind struct {
	message, gateway string
	level            slog.Level
}

type messageCount struct {
	begun   time.Time
	lines   int
	leftOut int
}

type messageCounts struct {
	mu    sync.Mutex
	kinds map[messageKind]*messageCount
}

// Enabled implements slog.Handler.
func (s *throttle) Enabled(ctx context.Context, level slog.Level) bool {
	return s.next.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (s *throttle) Handle(ctx context.Context, r slog.Record) error {
	kind := messageKind{message: r.Message, level: r.Level}
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "gateway_id" {
			kind.gateway = a.Value.String()
		}
		return kind.gateway == ""
	})
	if r.Level >= slog.LevelInfo { // all debug lines are wanted at level debug
		leftOut, due := s.counts.due(kind, r.Time)
		if !due {
			return nil
		}
		if leftOut > 0 {
			r = r.Clone()
			r.AddAttrs(slog.Int("left_out", leftOut))
		}
	}
	return s.next.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (s *throttle) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &throttle{next: s.next.WithAttrs(attrs), counts: s.counts}
}

// WithGroup implements slog.Handler.
func (s *throttle) WithGroup(name string) slog.Handler {
	return &throttle{next: s.next.WithGroup(name), counts: s.counts}
}

// due counts a line and reports whether to write it, and if so how many lines of its
// kind were dropped before.
func (c *messageCounts) due(kind messageKind, now time.Time) (leftOut int, due bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.kinds[kind]
	if n == nil {
		if len(c.kinds) >= maxMessageKinds {
			clear(c.kinds)
		}
		n = &messageCount{begun: now}
		c.kinds[kind] = n
	}
	if now.Sub(n.begun) >= throttlePeriod {
		n.begun, n.lines = now, 0
	}
	if n.lines == throttleLines {
		n.leftOut++
		return 0, false
	}
	n.lines++
	leftOut, n.leftOut = n.leftOut, 0
	return leftOut, true
}
