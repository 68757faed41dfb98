package e2e

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/e2e/tally"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/keygatetest/porttest"
)

// adminAPI returns a client of the server's management API with the admin key.
func (s *server) adminAPI() *client.Client {
	s.t.Helper()
	api, err := client.New(client.Config{URL: "http://" + s.admin, Key: s.key})
	if err != nil {
		s.t.Fatal(err)
	}
	return api
}

// metrics returns the response to /metrics.
func (s *server) metrics() []byte {
	s.t.Helper()
	resp, err := http.Get("http://" + s.ops + "/metrics")
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		s.t.Fatalf("/metrics: got status %d, error %v, want 200", resp.StatusCode, err)
	}
	return body
}

// checkNothingLost fails the test if a record was lost since the process started.
func (s *server) checkNothingLost() {
	s.t.Helper()
	counters := tally.Lost(s.metrics())
	for _, name := range []string{"keygate_outcome_lost_total", "keygate_audit_lost_total", "keygate_traffic_lost_total", "keygate_requestlog_lost_total", "keygate_event_lost_total"} {
		if _, shown := counters[name]; !shown {
			s.t.Errorf("there is no metric %s: %v", name, counters)
		}
	}
	for name, n := range counters {
		if n != 0 {
			s.t.Errorf("got %s = %v, want 0", name, n)
		}
	}
}

// newScenario creates the gateways, routes and keys of a scenario.
func newScenario(t *testing.T, s *server) *tally.Scenario {
	t.Helper()
	service := httptest.NewServer(tally.Service())
	t.Cleanup(service.Close)
	scenario, err := tally.NewScenario(t.Context(), s.adminAPI(), service.URL, "http://"+porttest.Reserve(t))
	if err != nil {
		t.Fatal(err)
	}
	return scenario
}

// startCalls makes calls in the background until stop is called, which returns the
// counts of what the clients received.
func startCalls(t *testing.T, s *server, calls []tally.Call) (stop func() *tally.Result) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	var result *tally.Result
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		result, err = tally.Run(ctx, tally.Config{Address: s.gateway, Calls: calls, Workers: 12, Streams: 6})
	}()
	return func() *tally.Result {
		t.Helper()
		cancel()
		<-done
		if err != nil {
			t.Fatalf("%v\n%s", err, s.output)
		}
		return result
	}
}

// trafficSums returns the traffic reports of the last hour, summed up, for each
// grouping.
func trafficSums(t *testing.T, s *server, interval string) map[string]tally.Sums {
	t.Helper()
	out := map[string]tally.Sums{}
	for _, grouping := range tally.Groupings() {
		sums, err := tally.Report(t.Context(), s.adminAPI(), time.Now().Add(-time.Hour), interval, grouping)
		if err != nil {
			t.Fatal(err)
		}
		out[grouping] = sums
	}
	return out
}

// Guarantee: the traffic report equals what clients received, to the last request
// and byte, in every grouping and interval, over HTTP/1.1 and HTTP/2, and across a
// restart by SIGTERM under load. No sink loses a record.
func TestTrafficReportIsExact(t *testing.T) {
	s := startServer(t, "--log-level", "error")
	scenario := newScenario(t, s)
	calls := slices.Concat(scenario.Calls, scenario.Calls, scenario.Calls, scenario.Calls, []tally.Call{scenario.Slow})
	before := trafficSums(t, s, "1m")

	stop := startCalls(t, s, calls)
	awaitTraffic(t, s, before[""][""].Requests+2000)
	s.checkNothingLost()
	s.restart(syscall.SIGTERM)
	awaitTraffic(t, s, before[""][""].Requests+6000)
	result := stop()
	t.Logf("%d responses, %d requests without one", result.Total(), result.NoResponse)
	seen := map[int]bool{}
	for o := range result.Counts {
		seen[o.Call] = true
	}
	for i, c := range calls {
		if !seen[i] {
			t.Errorf("no response to %s", c.Name)
		}
	}
	for _, interval := range []string{"1m", "1h", "1d"} {
		after := trafficSums(t, s, interval)
		for _, grouping := range tally.Groupings() {
			for _, line := range after[grouping].Less(before[grouping]).Differences(result.Expected(calls, grouping)) {
				t.Errorf("interval %s, grouped by %q: %s", interval, grouping, line)
			}
		}
	}
	s.checkNothingLost()
}

// awaitTraffic waits until the traffic report counts at least this many requests.
func awaitTraffic(t *testing.T, s *server, requests int64) {
	t.Helper()
	api := s.adminAPI()
	var sums tally.Sums
	var err error
	if !awaittest.Holds(func() bool {
		sums, err = tally.Report(context.Background(), api, time.Now().Add(-time.Hour), "1m", "")
		return err == nil && sums[""].Requests >= requests
	}) {
		t.Fatalf("the report has %v, error %v, want at least %d requests", sums[""], err, requests)
	}
}
