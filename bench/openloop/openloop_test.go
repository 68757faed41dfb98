//go:build linux

package openloop_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keygate/keygate/bench/openloop"
)

func run(t *testing.T, connections int, rate float64, d time.Duration, h http.HandlerFunc) *openloop.Result {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	r, err := openloop.Run(t.Context(), openloop.Config{
		Address: netip.MustParseAddrPort(s.Listener.Addr().String()), Request: []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		Connections: connections, Rate: rate, Duration: d,
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Guarantee: as many requests go out as rate and duration say, and none before
// its time.
func TestRate(t *testing.T) {
	var served atomic.Int64
	r := run(t, 8, 400, 250*time.Millisecond, func(w http.ResponseWriter, _ *http.Request) {
		served.Add(1)
		w.Header().Set("Content-Length", "40960")
		_, _ = io.WriteString(w, strings.Repeat("x", 40<<10)) // more than one read
	})
	if len(r.Latencies) != 100 || served.Load() != 100 || r.Failures != 0 {
		t.Errorf("%d answers, %d served, %d failures; want 100", len(r.Latencies), served.Load(), r.Failures)
	}
	if r.Elapsed < 247*time.Millisecond {
		t.Errorf("it took %v; the last request was due at 247.5 ms", r.Elapsed)
	}
}

// Guarantee: a stall counts for all the requests that were due while it lasted,
// not for the one that met it.
func TestStall(t *testing.T) {
	const stall = 200 * time.Millisecond
	var first atomic.Bool
	r := run(t, 1, 1000, 100*time.Millisecond, func(w http.ResponseWriter, _ *http.Request) {
		if !first.Swap(true) {
			<-time.After(stall)
		}
		_, _ = io.WriteString(w, "done")
	})
	if len(r.Latencies) != 100 {
		t.Fatalf("%d answers", len(r.Latencies))
	}
	if least := slices.Min(r.Latencies); least < stall/2 {
		t.Errorf("a request that was due during the stall took %v", least)
	}
}

// Guarantee: an answer of another status is a failure, not a fast answer.
func TestStatus(t *testing.T) {
	r := run(t, 4, 1000, 20*time.Millisecond, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = io.WriteString(w, "no")
	})
	if r.Failures != 20 || len(r.Latencies) != 0 {
		t.Errorf("%d failures and %d answers; want 20 and 0", r.Failures, len(r.Latencies))
	}
}
