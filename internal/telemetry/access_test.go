package telemetry

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
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

// Guarantee: at level debug each request is a line with its identifiers, at info
// only what the upstream failed at.
func TestLines(t *testing.T) {
	good, bad, begun := record(1, 2), record(1, 3), record(1, 4)
	good.Path, good.Method, good.Request = "/a", accesslog.GET, number(9)
	bad.Status, bad.UpstreamStatus = 503, 503
	begun.Part = accesslog.Started
	batch := []accesslog.Entry{good, bad, begun}
	var b bytes.Buffer
	write(t, NewLines(NewLogger(&b, "info", "json")), batch)
	if got := b.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, `"route_id":"`+id.Format(id.Route, number(3))) {
		t.Errorf("at info: %s", got)
	}
	b.Reset()
	write(t, NewLines(NewLogger(&b, "debug", "json")), batch)
	first, _, _ := strings.Cut(b.String(), "\n")
	var line map[string]any
	if err := json.Unmarshal([]byte(first), &line); err != nil || strings.Count(b.String(), "\n") != 2 {
		t.Fatalf("at debug: %v\n%s", err, b.String())
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

// Guarantee: no part of a key stands in a line, where its path is cut either.
func TestLinesHaveNoKey(t *testing.T) {
	key, err := apikey.Generate(apikey.GatewayLevel, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for _, before := range []int{1, maxPath - 30, maxPath - 1} {
		e := record(1, 2)
		e.Path = "/" + strings.Repeat("x", before-1) + key + "/y"
		var b bytes.Buffer
		write(t, NewLines(NewLogger(&b, "debug", "json")), []accesslog.Entry{e})
		if got := b.String(); strings.Count(got, "\n") != 1 || strings.Contains(got, key[9:15]) {
			t.Errorf("behind %d bytes: %s", before, got)
		}
	}
}

func write(t *testing.T, l *Lines, batch []accesslog.Entry) {
	t.Helper()
	if err := l.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.Take(batch)
	if err := l.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-l.ended // Stop does not wait for long
}

// Guarantee: lines that nobody takes are lost and counted; a sink never waits for
// them.
func TestLinesAreBounded(t *testing.T) {
	l := NewLines(NewLogger(io.Discard, "debug", "json"))
	for range waitingLines/1000 + 1 {
		l.Take(make([]accesslog.Entry, 1000))
	}
	if l.Lost() != 5000-waitingLines {
		t.Errorf("%d lost, want %d", l.Lost(), 5000-waitingLines)
	}
	if err := l.Stop(t.Context()); err != nil { // it never began
		t.Fatal(err)
	}
}

// Guarantee: of one message about one gateway there are ten lines in ten seconds,
// and the next tells how many were left out; other gateways have their own.
func TestSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		log := Seldom(slog.New(slog.NewTextHandler(&b, nil)))
		for range 25 {
			log.Warn("failed", "gateway_id", "gw_1")
		}
		log.Warn("failed", "gateway_id", "gw_2")
		log.Warn("other", "gateway_id", "gw_1")
		if n := strings.Count(b.String(), "\n"); n != 12 {
			t.Errorf("%d lines, want 12:\n%s", n, b.String())
		}
		time.Sleep(seldomTime) //nolint:forbidigo // the clock of synctest
		b.Reset()
		log.Warn("failed", "gateway_id", "gw_1")
		log.Warn("failed", "gateway_id", "gw_1")
		if got := b.String(); strings.Count(got, "left_out=15") != 1 || strings.Count(got, "\n") != 2 {
			t.Errorf("ten seconds later: %s", got)
		}
	})
}
