package telemetry

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	seldomLines = 10 // of one message of one gateway, in seldomTime
	seldomTime  = 10 * time.Second
	seldomKinds = 1024
)

// Seldom returns a logger whose lines do not pile up when every request fails:
// of one message about one gateway there are ten in ten seconds; the next after
// them tells with "left_out" how many there were not.
func Seldom(log *slog.Logger) *slog.Logger {
	return slog.New(&seldom{next: log.Handler(), counts: &seldomCounts{kinds: map[seldomKind]*seldomCount{}}})
}

type seldom struct {
	next   slog.Handler
	counts *seldomCounts
}

type seldomKind struct {
	message, gateway string
	level            slog.Level
}

type seldomCount struct {
	begun   time.Time
	lines   int
	leftOut int
}

type seldomCounts struct {
	mu    sync.Mutex
	kinds map[seldomKind]*seldomCount
}

// Enabled implements slog.Handler.
func (s *seldom) Enabled(ctx context.Context, level slog.Level) bool {
	return s.next.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (s *seldom) Handle(ctx context.Context, r slog.Record) error {
	kind := seldomKind{message: r.Message, level: r.Level}
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "gateway_id" {
			kind.gateway = a.Value.String()
		}
		return kind.gateway == ""
	})
	if r.Level >= slog.LevelInfo { // who asks for debug wants all of it
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
func (s *seldom) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &seldom{next: s.next.WithAttrs(attrs), counts: s.counts}
}

// WithGroup implements slog.Handler.
func (s *seldom) WithGroup(name string) slog.Handler {
	return &seldom{next: s.next.WithGroup(name), counts: s.counts}
}

func (c *seldomCounts) due(kind seldomKind, now time.Time) (leftOut int, due bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.kinds[kind]
	if n == nil {
		if len(c.kinds) >= seldomKinds {
			clear(c.kinds)
		}
		n = &seldomCount{begun: now}
		c.kinds[kind] = n
	}
	if now.Sub(n.begun) >= seldomTime {
		n.begun, n.lines = now, 0
	}
	if n.lines == seldomLines {
		n.leftOut++
		return 0, false
	}
	n.lines++
	leftOut, n.leftOut = n.leftOut, 0
	return leftOut, true
}
