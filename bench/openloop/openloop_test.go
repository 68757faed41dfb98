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

// Guarantee: the number of requests is rate times duration, and none is sent before it
// is due.
func TestRequestsAreSentAtTheRate(t *testing.T) {
	var served atomic.Int64
	r := run(t, 8, 400, 250*time.Millisecond, func(w http.ResponseWriter, _ *http.Request) {
		served.Add(1)
		w.Header().Set("Content-Length", "40960")
		_, _ = io.WriteString(w, strings.Repeat("x", 40<<10)) // more than one read
	})
	if len(r.Latencies) != 100 || served.Load() != 100 || r.Failures != 0 {
		t.Errorf("%d responses, %d served, %d failures; want 100, 100 and 0", len(r.Latencies), served.Load(), r.Failures)
	}
	if r.Elapsed < 247*time.Millisecond {
		t.Errorf("it took %v, want at least 247 ms: the last request was due at 247.5 ms", r.Elapsed)
	}
}

// Guarantee: a stall counts for all requests that were due during it, not only for the request that
// it delayed.
func TestStallCountsForEveryRequestDue(t *testing.T) {
	const stall = 200 * time.Millisecond
	var first atomic.Bool
	r := run(t, 1, 1000, 100*time.Millisecond, func(w http.ResponseWriter, _ *http.Request) {
		if !first.Swap(true) {
			<-time.After(stall)
		}
		_, _ = io.WriteString(w, "done")
	})
	if len(r.Latencies) != 100 {
		t.Fatalf("%d responses, want 100", len(r.Latencies))
	}
	if least := slices.Min(r.Latencies); least < stall/2 {
		t.Errorf("a request that was due during the stall took %v, want at least half of the stall", least)
	}
}

// Guarantee: a response with another status is a failure, not a fast response.
func TestOtherStatusIsAFailure(t *testing.T) {
	r := run(t, 4, 1000, 20*time.Millisecond, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = io.WriteString(w, "no")
	})
	if r.Failures != 20 || len(r.Latencies) != 0 {
		t.Errorf("%d failures and %d responses, want 20 and 0", r.Failures, len(r.Latencies))
	}
}
