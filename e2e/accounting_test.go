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

// metrics returns what /metrics shows.
func (s *server) metrics() []byte {
	s.t.Helper()
	resp, err := http.Get("http://" + s.ops + "/metrics")
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		s.t.Fatalf("/metrics: status %d, %v", resp.StatusCode, err)
	}
	return body
}

// nothingLost fails the test if a record was lost since the process began.
func (s *server) nothingLost() {
	s.t.Helper()
	counters := tally.Lost(s.metrics())
	for _, name := range []string{"keygate_outcome_lost_total", "keygate_audit_lost_total", "keygate_traffic_lost_total", "keygate_requestlog_lost_total", "keygate_event_lost_total"} {
		if _, shown := counters[name]; !shown {
			s.t.Errorf("no metric %s: %v", name, counters)
		}
	}
	for name, n := range counters {
		if n != 0 {
			s.t.Errorf("%s is %v", name, n)
		}
	}
}

// startLoad makes a scenario.
func startLoad(t *testing.T, s *server) *tally.Scenario {
	t.Helper()
	service := httptest.NewServer(tally.Service())
	t.Cleanup(service.Close)
	scenario, err := tally.NewScenario(t.Context(), s.adminAPI(), service.URL, "http://"+porttest.Reserve(t))
	if err != nil {
		t.Fatal(err)
	}
	return scenario
}

// load makes load in the background until the function that it returns is
// called, which gives what came of it.
func load(t *testing.T, s *server, calls []tally.Call) (stop func() *tally.Result) {
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

// report returns the sums of all requests of the last hour by each grouping.
func report(t *testing.T, s *server, interval string) map[string]tally.Sums {
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

// Guarantee: the traffic report counts what clients received, to the last
// request and byte, in every grouping and interval, over HTTP/1.1 and HTTP/2 and
// through a restart by SIGTERM under load; and no sink loses a record.
func TestExactAccounting(t *testing.T) {
	s := startServer(t, "--log-level", "error")
	scenario := startLoad(t, s)
	calls := slices.Concat(scenario.Calls, scenario.Calls, scenario.Calls, scenario.Calls, []tally.Call{scenario.Slow})
	before := report(t, s, "1m")

	stop := load(t, s, calls)
	awaitTraffic(t, s, before[""][""].Requests+2000)
	s.nothingLost()
	s.restart(syscall.SIGTERM)
	awaitTraffic(t, s, before[""][""].Requests+6000)
	result := stop()
	t.Logf("%d answers, %d requests without one", result.Total(), result.NoResponse)
	seen := map[int]bool{}
	for o := range result.Counts {
		seen[o.Call] = true
	}
	for i, c := range calls {
		if !seen[i] {
			t.Errorf("no answer to %s", c.Name)
		}
	}
	for _, interval := range []string{"1m", "1h", "1d"} {
		after := report(t, s, interval)
		for _, grouping := range tally.Groupings() {
			for _, line := range after[grouping].Less(before[grouping]).Differences(result.Expected(calls, grouping)) {
				t.Errorf("interval %s, grouped by %q: %s", interval, grouping, line)
			}
		}
	}
	s.nothingLost()
}

// awaitTraffic returns once the report has that many requests.
func awaitTraffic(t *testing.T, s *server, requests int64) {
	t.Helper()
	api := s.adminAPI()
	var sums tally.Sums
	var err error
	if !eventually(patience, func() bool {
		sums, err = tally.Report(context.Background(), api, time.Now().Add(-time.Hour), "1m", "")
		return err == nil && sums[""].Requests >= requests
	}) {
		t.Fatalf("the report never had %d requests: %v, %v", requests, sums[""], err)
	}
}
