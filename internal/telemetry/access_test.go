package telemetry

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/id"
)

// Guarantee: at level debug each request is logged with its identifiers, at level info only
// server errors of the upstream.
func TestLines(t *testing.T) {
	good, bad, started := record(1, 2), record(1, 3), record(1, 4)
	good.Path, good.Method, good.Request = "/a", accesslog.GET, number(9)
	bad.Status, bad.UpstreamStatus = 503, 503
	started.Part = accesslog.Started
	batch := []accesslog.Entry{good, bad, started}
	var b bytes.Buffer
	write(t, NewLogger(&b, "info", "json"), batch)
	if got, route := b.String(), id.Format(id.Route, number(3)); strings.Count(got, "\n") != 1 || !strings.Contains(got, `"route_id":"`+route) {
		t.Errorf("at level info got\n%s\nwant one line, with the route %s", got, route)
	}
	b.Reset()
	write(t, NewLogger(&b, "debug", "json"), batch)
	first, _, _ := strings.Cut(b.String(), "\n")
	var line map[string]any
	if err := json.Unmarshal([]byte(first), &line); err != nil || strings.Count(b.String(), "\n") != 2 {
		t.Fatalf("at level debug got the error %v and\n%s\nwant two lines of JSON", err, b.String())
	}
	for name, want := range map[string]any{
		"request_id": id.Format(id.Request, number(9)), "gateway_id": id.Format(id.Gateway, number(1)), "route_id": id.Format(id.Route, number(2)),
		"method": "GET", "path": "/a", "status": 200.0, "ms": 3.0, "upstream_ms": 2.0, "outcome": "forwarded",
	} {
		if line[name] != want {
			t.Errorf("%s is %v, want %v", name, line[name], want)
		}
	}
}

// Guarantee: a log line contains no part of a key, even if the path is cut in the middle of one.
func TestLinesHaveNoKey(t *testing.T) {
	key, err := apikey.Generate(apikey.GatewayLevel, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for _, before := range []int{1, maxPath - 30, maxPath - 1} {
		e := record(1, 2)
		e.Path = "/" + strings.Repeat("x", before-1) + key + "/y"
		var b bytes.Buffer
		write(t, NewLogger(&b, "debug", "json"), []accesslog.Entry{e})
		if got := b.String(); strings.Count(got, "\n") != 1 || strings.Contains(got, key[9:15]) {
			t.Errorf("with a key after %d bytes of path got\n%s\nwant one line without the key", before, got)
		}
	}
}

// write logs batch through Lines and waits for it. On virtual time Stop has as long as it
// needs.
func write(t *testing.T, log *slog.Logger, batch []accesslog.Entry) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := NewLines(log)
		if err := l.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.Take(batch)
		if err := l.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// slowLog is a log handler that takes some time for each line.
type slowLog struct {
	slog.Handler
	perLine time.Duration
}

func (s slowLog) Handle(context.Context, slog.Record) error {
	<-time.After(s.perLine)
	return nil
}

func (s slowLog) WithAttrs([]slog.Attr) slog.Handler { return s }

// Guarantee: Stop does not wait long for a slow log, and counts the lines that were not
// written.
func TestLinesStopIsBounded(t *testing.T) {
	stop := func(t *testing.T, perLine time.Duration) (took time.Duration, lost int64, err error) {
		t.Helper()
		l := NewLines(slog.New(slowLog{slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelDebug}), perLine}))
		if err := l.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.Take(make([]accesslog.Entry, 5))
		start := time.Now()
		err = l.Stop(t.Context())
		took, lost = time.Since(start), l.Lost()
		if err != nil { // the goroutine must not outlive the test
			if err := l.group.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		}
		return took, lost, err
	}
	t.Run("lines not written after a second are lost", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			took, lost, err := stop(t, 600*time.Millisecond)
			if err != nil {
				t.Errorf("Stop returned %v, want nil", err)
			}
			if took != 1200*time.Millisecond {
				t.Errorf("Stop took %s, want 1.2s for two lines", took)
			}
			if lost != 3 {
				t.Errorf("%d lines were lost, want 3", lost)
			}
		})
	})
	t.Run("a log that blocks is an error", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			took, _, err := stop(t, time.Hour)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Stop returned %v, want context.DeadlineExceeded", err)
			}
			if took != 2*stopTime {
				t.Errorf("Stop took %s, want %s", took, 2*stopTime)
			}
		})
	})
}

// Guarantee: the number of waiting lines is bounded; Take does not block, and further lines
// are counted as lost.
func TestLinesAreBounded(t *testing.T) {
	l := NewLines(NewLogger(io.Discard, "debug", "json"))
	for range waitingLines/1000 + 1 {
		l.Take(make([]accesslog.Entry, 1000))
	}
	if l.Lost() != 5000-waitingLines {
		t.Errorf("%d lines were lost, want %d", l.Lost(), 5000-waitingLines)
	}
	if err := l.Stop(t.Context()); err != nil { // without Start
		t.Fatal(err)
	}
}

// Guarantee: a message about a gateway is logged at most ten times in ten seconds, and the next
// line has the number of lines left out. Other gateways and messages are not affected.
func TestThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		log := Throttle(slog.New(slog.NewTextHandler(&b, nil)))
		for range 25 {
			log.Warn("failed", "gateway_id", "gw_1")
		}
		log.Warn("failed", "gateway_id", "gw_2")
		log.Warn("other", "gateway_id", "gw_1")
		if n := strings.Count(b.String(), "\n"); n != 12 {
			t.Errorf("got %d lines, want 12:\n%s", n, b.String())
		}
		time.Sleep(throttlePeriod) //nolint:forbidigo // the clock of synctest
		b.Reset()
		log.Warn("failed", "gateway_id", "gw_1")
		log.Warn("failed", "gateway_id", "gw_1")
		if got := b.String(); strings.Count(got, "left_out=15") != 1 || strings.Count(got, "\n") != 2 {
			t.Errorf("ten seconds later got\n%s\nwant two lines, one of them with left_out=15", got)
		}
	})
}
