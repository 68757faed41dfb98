package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/keygatetest"
)

// Guarantee: targets.md, 9. Reports by target and by upstream have each request once, at the target to which its access record
// says that it was sent last, also if it was sent several times; those that were sent nowhere are in a group of their own. The
// sums of the groups are those of the report without groups, also after a restart, and the requests that are kept for their
// attempts name the same targets.
func TestTrafficByTargetAgreesWithAccessRecords(t *testing.T) {
	targets := map[string]string{} // urls, by address
	var urls []string
	for i := range 3 {
		var requests atomic.Int64
		up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			switch n := requests.Add(1); {
			case i == 0 && n%4 == 0: // the request is tried again
				panic(http.ErrAbortHandler)
			case i == 1 && n%5 == 0:
				w.WriteHeader(http.StatusInternalServerError)
			default:
				_, _ = w.Write(bytes.Repeat([]byte("x"), i+1))
			}
		}))
		t.Cleanup(up.Close)
		at, err := url.Parse(up.URL)
		if err != nil {
			t.Fatal(err)
		}
		targets[at.Host], urls = up.URL, append(urls, up.URL)
	}
	refuses := httptest.NewServer(http.NotFoundHandler())
	refuses.Close()

	log := filepath.Join(t.TempDir(), "access.log")
	s := keygatetest.StartWith(t, keygatetest.Options{Args: []string{"--access-log", log}})
	body := fmt.Sprintf(`{"name": "g", "upstreams": [
		{"name": "default", "ejection": false, "balance": "round_robin", "targets": [{"url": %q}, {"url": %q}]},
		{"name": "third", "targets": [{"url": %q}]},
		{"name": "dead", "targets": [{"url": %q}, {"url": "http://127.0.0.1:1"}]}]}`, urls[0], urls[1], urls[2], refuses.URL)
	r := s.Call("POST", "/v1/gateways", s.AdminKey, body)
	var g client.Gateway
	if err := json.Unmarshal([]byte(r.Body), &g); err != nil || r.Status != http.StatusCreated {
		t.Fatalf("got %d %s", r.Status, r.Body)
	}
	if _, err := s.Admin.PushConfig(t.Context(), g.GatewayID, []byte(`routes:
- {path: /a, methods: [GET], auth: none}
- {path: /b, methods: [GET], auth: none, upstream: third}
- {path: /dead, methods: [GET], auth: none, upstream: dead}
- {path: /key, methods: [GET]}
`), false); err != nil {
		t.Fatal(err)
	}
	for range 40 {
		for _, path := range []string{"/a", "/a", "/b", "/key", "/nowhere"} {
			s.Through("", "GET", path, "", "")
		}
	}
	s.Through("", "GET", "/dead", "", "")

	byGroup := func(query client.TrafficQuery) map[string]client.TopRow {
		t.Helper()
		rows, err := s.Admin.Top(t.Context(), query, "", 100)
		if err != nil {
			t.Fatal(err)
		}
		sums := map[string]client.TopRow{}
		for _, r := range rows {
			group := ""
			if r.Group != nil {
				group = *r.Group
			}
			r.Group, r.GatewayID = nil, nil
			sums[group] = r
		}
		return sums
	}
	all, byTarget := byGroup(client.TrafficQuery{GroupBy: "gateway"}), byGroup(client.TrafficQuery{GroupBy: "target"})
	byUpstream := byGroup(client.TrafficQuery{GroupBy: "upstream", GatewayID: g.GatewayID})
	s.Restart() // the access log is complete then

	lines, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	type sum struct{ requests, errors, bytes int64 }
	wantTargets, wantUpstreams, retried := map[string]sum{}, map[string]sum{}, map[string]string{}
	for line := range bytes.Lines(lines) {
		var e struct {
			RequestID string            `json:"request_id"`
			Upstream  string            `json:"upstream"`
			Target    string            `json:"target"`
			Status    int               `json:"status"`
			BytesOut  int64             `json:"bytes_out"`
			Attempts  []json.RawMessage `json:"attempts"`
		}
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		if len(e.Attempts) > 1 {
			retried[e.RequestID] = e.Target
		}
		for _, to := range []struct {
			sums  map[string]sum
			group string
		}{{wantTargets, e.Target}, {wantUpstreams, e.Upstream}} {
			one := to.sums[to.group]
			one.requests++
			one.bytes += e.BytesOut
			if e.Status >= 500 {
				one.errors++
			}
			to.sums[to.group] = one
		}
	}
	if len(wantTargets) != 4 || len(wantUpstreams) != 4 || len(retried) < 5 {
		t.Fatalf("got %v by target, %v by upstream and %d requests with several attempts; want three targets, three upstreams and requests without any", wantTargets, wantUpstreams, len(retried))
	}
	check := func(what string, want map[string]sum, rows map[string]client.TopRow) {
		t.Helper()
		got := map[string]sum{}
		for group, r := range rows {
			got[group] = sum{r.Requests, r.Status5Xx, r.BytesOut}
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: the report has %v, the access log %v", what, got, want)
		}
		total := client.TopRow{}
		for _, r := range rows {
			add(&total, &r)
		}
		whole := client.TopRow{}
		for _, r := range all {
			add(&whole, &r)
		}
		if fmt.Sprint(total) != fmt.Sprint(whole) {
			t.Errorf("%s: the sum is %+v, without groups it is %+v", what, total, whole)
		}
	}
	check("by target", wantTargets, byTarget)
	check("by upstream", wantUpstreams, byUpstream)
	check("by target after a restart", wantTargets, byGroup(client.TrafficQuery{GroupBy: "target"}))
	for target, want := range wantTargets {
		if target == "" {
			continue
		}
		rows, err := s.Admin.Traffic(t.Context(), client.TrafficQuery{GroupBy: "upstream", Target: target, Interval: "1d"})
		if err != nil {
			t.Fatal(err)
		}
		got := int64(0)
		for _, r := range rows {
			if got += r.Requests; r.Requests > 0 && (r.LatencyMs == nil || r.LatencyMs.P95 <= 0) {
				t.Errorf("%s: got the latencies %v, want some", target, r.LatencyMs)
			}
		}
		if got != want.requests || targets[target] == "" {
			t.Errorf("%s: got %d requests with a filter, want %d", target, got, want.requests)
		}
	}
	for r, err := range s.Admin.Requests(t.Context(), client.RequestFilter{Result: "retried"}) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Attempts == nil || len(*r.Attempts) < 2 {
			t.Errorf("request %s has the attempts %v, want several", r.RequestID, r.Attempts)
			continue
		}
		last := (*r.Attempts)[len(*r.Attempts)-1].Target
		if target := retried[r.RequestID]; target != "" && last != target {
			t.Errorf("request %s was sent last to %s by its attempts, to %s by its access record", r.RequestID, last, target)
		}
		delete(retried, r.RequestID)
	}
	if len(retried) > 0 {
		t.Errorf("%d requests with several attempts are not in the log", len(retried))
	}
}

// add adds the numbers of a row.
func add(to, r *client.TopRow) {
	to.Requests, to.UpstreamErrors = to.Requests+r.Requests, to.UpstreamErrors+r.UpstreamErrors
	to.Status2Xx, to.Status3Xx, to.Status4Xx, to.Status5Xx = to.Status2Xx+r.Status2Xx, to.Status3Xx+r.Status3Xx, to.Status4Xx+r.Status4Xx, to.Status5Xx+r.Status5Xx
	to.Limited, to.Unauthorized, to.Forbidden = to.Limited+r.Limited, to.Unauthorized+r.Unauthorized, to.Forbidden+r.Forbidden
	to.BytesIn, to.BytesOut = to.BytesIn+r.BytesIn, to.BytesOut+r.BytesOut
}
