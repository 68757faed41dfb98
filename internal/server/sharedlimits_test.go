package server_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/keygatetest"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/keygatetest/logtest"
	"github.com/keygate/keygate/internal/keygatetest/redistest"
	"github.com/keygate/keygate/internal/logpace"
)

// startPair starts two servers with the same configuration, which share a limit store. Their routes
// /{limit} are public and have that limit.
func startPair(t *testing.T, redis *redistest.Server, limits map[string]string, args ...string) [2]*keygatetest.Server {
	t.Helper()
	return [2]*keygatetest.Server(startShared(t, redis, limits, nil, 2, args...))
}

// startShared starts n servers as startPair does, with a log, or nil.
func startShared(t *testing.T, redis *redistest.Server, limits map[string]string, log io.Writer, n int, args ...string) []*keygatetest.Server {
	t.Helper()
	args = append([]string{"--redis-url", "redis://" + redis.Addr}, args...)
	first := keygatetest.Start(t)
	g, err := first.Admin.CreateGateway(t.Context(), client.CreateGatewayRequest{Name: "g", UpstreamURL: keygatetest.NewUpstream(t).URL})
	if err != nil {
		t.Fatal(err)
	}
	auth := client.CreateRouteRequestAuthNone
	for path, limit := range limits {
		if _, err := first.Admin.CreateRoute(t.Context(), g.GatewayID, client.CreateRouteRequest{
			Path: path, Methods: []string{"GET"}, Auth: &auth, RateLimit: &client.RateLimitInput{Sustained: &limit},
		}); err != nil {
			t.Fatal(err)
		}
	}
	first.Stop()
	var servers []*keygatetest.Server
	for range n {
		servers = append(servers, keygatetest.StartWith(t, keygatetest.Options{Args: args, From: first.DataDir, Log: log}))
	}
	return servers
}

// count sends n requests to each server in turn, and returns how many had the status.
func count(t *testing.T, pair [2]*keygatetest.Server, n int, path string, status int) (found int, last http.Header) {
	t.Helper()
	for i := range n {
		r, err := http.Get(pair[i%2].GatewayURL() + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
		if r.StatusCode == status {
			found++
		}
		last = r.Header
	}
	return found, last
}

// Guarantee: over two servers with one limit store, a limit admits what it says, its headers show the
// level of both, and a restart refills nothing. If the machine is so busy that the store is late, at most one
// more capacity passes.
func TestServersShareLimits(t *testing.T) {
	redis := redistest.Start(t)
	for _, mode := range []string{"leased", "exact"} {
		t.Run(mode, func(t *testing.T) {
			const attempts = 3
			for range attempts {
				pair := startPair(t, redis, map[string]string{"/small": "40/day", "/large": "200000/day"}, "--shared-limits", mode)
				problem, admitted, late := shareLimits(t, pair, mode)
				switch {
				case problem == "":
					return
				case !late:
					t.Fatal(problem)
				case admitted > 2*smallLimit:
					t.Fatalf("%d requests passed although the limit store was only late, want at most %d (%s)", admitted, 2*smallLimit, problem)
				}
			}
			awaittest.Late(t, "the limit store was late in %d attempts, and only the looser bound was checked", attempts)
		})
	}
}

// smallLimit is what the limit of /small admits in a day.
const smallLimit = 40

// shareLimits sends requests to both servers, and returns what is wrong, with the number of requests that
// /small admitted before a server restarted, and whether a server has decided without the limit store.
func shareLimits(t *testing.T, pair [2]*keygatetest.Server, mode string) (problem string, admitted int, late bool) {
	admitted, h := count(t, pair, 7, "/small", http.StatusOK)
	if h.Get("X-RateLimit-Limit") != "40" || h.Get("X-RateLimit-Remaining") != "33" {
		problem = fmt.Sprintf("after 7 requests over both servers: limit %s with %s remaining, want 40 with 33", h.Get("X-RateLimit-Limit"), h.Get("X-RateLimit-Remaining"))
	}
	passed, _ := count(t, pair, 150, "/small", http.StatusOK)
	admitted += passed
	if passed != 33 && problem == "" {
		problem = fmt.Sprintf("then %d more passed, want 33", passed)
	}
	late = wasLate(t, pair)
	if problem != "" {
		return problem, admitted, late
	}
	pair[0].Restart()
	if passed, _ := count(t, pair, 10, "/small", http.StatusOK); passed != 0 {
		problem = fmt.Sprintf("after a restart of one server %d more passed, want 0", passed)
	} else if passed, _ := count(t, pair, 100, "/large", http.StatusOK); passed != 100 {
		problem = fmt.Sprintf("%d of 100 passed, want all", passed)
	} else if metrics := scrape(t, pair[1]); !strings.Contains(metrics, `keygate_shared_limits{mode="`+mode+`"} 1`) {
		problem = "the metrics do not name the mode"
	}
	return problem, admitted, wasLate(t, pair) || late
}

// wasLate reports whether a server has decided without the limit store.
func wasLate(t *testing.T, pair [2]*keygatetest.Server) bool {
	t.Helper()
	for _, s := range pair {
		metrics := scrape(t, s)
		if !strings.Contains(metrics, "keygate_limit_store_late_total 0\n") || !strings.Contains(metrics, "keygate_limit_store_losses_total 0\n") {
			return true
		}
	}
	return false
}

// Guarantee: while the limit store is lost, requests are decided as --on-limit-store-loss says, never
// with a 500, and /readyz says so. When the store is there again, limits are shared again.
func TestLossOfTheLimitStore(t *testing.T) {
	for onLoss, want := range map[string]int{"divide": http.StatusOK, "allow": http.StatusOK, "refuse": http.StatusServiceUnavailable} {
		t.Run(onLoss, func(t *testing.T) {
			redis := redistest.Start(t)
			pair := startPair(t, redis, map[string]string{"/one": "1000/day"}, "--on-limit-store-loss", onLoss)
			count(t, pair, 10, "/one", http.StatusOK)
			redis.Kill()
			if got, _ := count(t, pair, 20, "/one", want); got != 20 {
				t.Errorf("%d of 20 requests got the status %d without the limit store, want all", got, want)
			}
			for _, s := range pair {
				awaitReady(t, s, "limit_store_away", true)
			}
			redis.Restart()
			for _, s := range pair {
				awaitReady(t, s, "limit_store_away", false)
			}
			awaittest.True(t, "10 of 10 pass after the return", func() bool {
				passed, _ := count(t, pair, 10, "/one", http.StatusOK)
				return passed == 10
			})
		})
	}
}

// Guarantee: a limit store that answers and refuses writes, because it is out of memory or has become a replica, is
// lost: requests are decided as --on-limit-store-loss says, /readyz says that the server is degraded for as long as
// it lasts, and the log has few lines about it.
func TestLimitStoreThatRefusesWrites(t *testing.T) {
	for name, commands := range map[string][2]string{
		"out of memory": {"CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"},
		"demoted":       {"REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"},
	} {
		t.Run(name, func(t *testing.T) {
			redis := redistest.Start(t)
			log := &logtest.Recorder{}
			s := startShared(t, redis, map[string]string{"/one": "1000/day"}, log, 1)[0]
			pair := [2]*keygatetest.Server{s, s}
			count(t, pair, 10, "/one", http.StatusOK)
			redis.Do(commands[0])
			if got, _ := count(t, pair, 20, "/one", http.StatusOK); got != 20 {
				t.Errorf("%d of 20 requests passed, want all: the limit is divided", got)
			}
			awaitReady(t, s, "degraded: limit_store_away", true)
			for range 20 { // it is tried again ten times a second
				count(t, pair, 2, "/one", http.StatusOK)
				if _, body := fetch(t, s.OpsURL()+"/readyz"); !strings.Contains(body, "degraded: limit_store_away") {
					t.Fatalf("while writes are refused, /readyz says %q", body)
				}
				<-time.After(20 * time.Millisecond)
			}
			redis.Do(commands[1])
			awaitReady(t, s, "degraded", false)
			// How often an inspection fails, which the deadline of a busy machine also does, has a bound of its own.
			if lines := log.Count(`"msg":"the limit store `); lines == 0 || lines > logpace.Burst {
				t.Errorf("%d lines about the loss of the limit store, want %d at most:\n%s", lines, logpace.Burst, log.String())
			}
		})
	}
}

// awaitReady waits until /readyz, which must be 200, says the word or does not say it.
func awaitReady(t *testing.T, s *keygatetest.Server, word string, says bool) {
	t.Helper()
	awaittest.True(t, fmt.Sprintf("whether /readyz says %q is %v", word, says), func() bool {
		status, body := fetch(t, s.OpsURL()+"/readyz")
		if status != http.StatusOK {
			t.Fatalf("/readyz has the status %d, want 200", status)
		}
		return strings.Contains(body, word) == says
	})
}
