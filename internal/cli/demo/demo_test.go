package demo

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/receiver"
)

// rows returns how many rows text takes on a terminal of 80 columns.
func rows(text string) int {
	n := 0
	for line := range strings.Lines(text) {
		n += 1 + max(len(strings.TrimSuffix(line, "\n"))-1, 0)/80
	}
	return n
}

// sampleTour returns a tour with values of the usual lengths.
func sampleTour() *tour {
	return &tour{
		program: "./bin/keygate", gateway: "http://127.0.0.1:8080", host: "gw-01jz8y5c3te9b8r2m6q4v7x0aa.localhost", admin: "http://127.0.0.1:8081",
		ops: "http://127.0.0.1:8082", adminKey: "/tmp/keygate-demo-1234567890/data/admin.key", gatewayID: "gw_01jz8y5c3te9b8r2m6q4v7x0aa", keyPrefix: "kg_xxxxxx",
		key: "kg_" + strings.Repeat("x", 36), spec: "/tmp/keygate-demo-1234567890/data/sample-openapi.yaml", upstream: "http://127.0.0.1:41755",
	}
}

// tourText returns what demo --tour prints.
func tourText(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	if err := sampleTour().printAll(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Guarantee: the output of the demo, with the two events of its start, fits a terminal of 24 lines
// and 80 columns, and has no formatting mistakes; --tour prints more.
func TestDemoFitsATerminal(t *testing.T) {
	demo := sampleTour()
	var short bytes.Buffer
	if err := demo.print(&short); err != nil {
		t.Fatal(err)
	}
	events := newDemoEvents(&short, false)
	events.begin()
	for _, name := range []string{"key.created", "gateway.upstream_error"} { // the longest name
		events.handle(context.Background(), &receiver.Delivery{Event: client.Event{
			Type: name, ID: "evt_01jz8y5c3te9b8r2m6q4v7x0aa", CreatedAt: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
		}})
	}
	if n := rows(short.String()); n > 24 {
		t.Errorf("the demo's output takes %d rows, want at most 24:\n%s", n, &short)
	}
	all := tourText(t)
	for _, out := range []string{short.String(), all} {
		for line := range strings.Lines(out) {
			if len(line) > 81 {
				t.Errorf("a line has %d columns, want at most 80: %s", len(line)-1, line)
			}
		}
		if strings.Contains(out, "%!") {
			t.Errorf("a value is missing:\n%s", out)
		}
	}
	if rows(all) < 60 || !strings.Contains(all, "keys rotate kg_") {
		t.Errorf("the tour lacks commands:\n%s", all)
	}
}
