package tally_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/keygate/keygate/e2e/tally"
)

// Guarantee: every response is counted once, with its status and the bytes of both
// bodies, over both protocols.
func TestRunCountsEveryResponse(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	served := map[string]int64{}
	protocols := map[int]bool{}
	service := tally.Service()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		service.ServeHTTP(w, r)
		mu.Lock()
		defer mu.Unlock()
		protocols[r.ProtoMajor] = true
		if served[r.URL.Path]++; len(protocols) == 2 && served["/n/5"] > 100 && served["/status/503"] > 100 {
			cancel()
		}
	}))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	defer s.Close()
	calls := []tally.Call{
		{Name: "n", Method: "POST", Host: "a.example", Target: "/n/5", Body: []byte("abc"), Want: []int{200}, Gateway: "gw", Route: "r", KeyID: "k"},
		{Name: "status", Method: "GET", Host: "a.example", Target: "/status/503", Want: []int{503}, Gateway: "gw", Upstream: true},
		{Name: "no account", Method: "GET", Host: "a.example", Target: "/status/204", Want: []int{204}},
	}
	result, err := tally.Run(ctx, tally.Config{Address: strings.TrimPrefix(s.URL, "http://"), Calls: calls, Workers: 2, Streams: 2})
	if err != nil {
		t.Fatal(err)
	}
	s.Close() // waits for requests in progress
	for i, c := range calls {
		n := result.Counts[tally.Response{Call: i, Status: c.Want[0]}]
		if n.Requests != served[c.Target] || n.Requests == 0 || n.BytesIn != int64(len(c.Body))*n.Requests {
			t.Errorf("%s: counted %+v, want %d requests as served", c.Name, n, served[c.Target])
		}
	}
	n, status := served["/n/5"], served["/status/503"]
	all := result.Expected(calls, "")[""]
	if all.Requests != n+status || all.Status2Xx != n || all.Status5Xx != status || all.UpstreamErrors != status ||
		all.BytesIn != 3*n || all.BytesOut != 5*n+int64(len("status 503"))*status {
		t.Errorf("without grouping: %+v, want %d successes and %d upstream errors", all, n, status)
	}
	byKey := result.Expected(calls, "key")
	if byKey["k"].Requests != n || byKey[""].Requests != status || len(byKey) != 2 {
		t.Errorf("by key: %+v, want %d of k and %d without a key", byKey, n, status)
	}
	byStatus := result.Expected(calls, "status")
	if len(byStatus) != 2 || byStatus["503"].Requests != status {
		t.Errorf("by status: %+v, want two statuses with %d of 503", byStatus, status)
	}
	if lines := byStatus.Differences(byKey); len(lines) == 0 {
		t.Error("Differences found none between sums that differ")
	}
	if lines := byKey.Less(byStatus).Differences(byKey.Less(byStatus)); len(lines) > 0 {
		t.Errorf("Differences found %v between equal sums", lines)
	}
}

// Guarantee: an unexpected status fails the run.
func TestUnexpectedStatusFailsTheRun(t *testing.T) {
	s := httptest.NewServer(tally.Service())
	defer s.Close()
	_, err := tally.Run(t.Context(), tally.Config{
		Address: strings.TrimPrefix(s.URL, "http://"), Workers: 1,
		Calls: []tally.Call{{Name: "odd", Method: "GET", Host: "a", Target: "/status/404", Want: []int{200}}},
	})
	if err == nil || !strings.Contains(err.Error(), "odd: status 404") {
		t.Errorf("got error %v, want one that names the call and the status 404", err)
	}
}

// Guarantee: the counters of lost records are found by their names.
func TestLostFindsCountersByName(t *testing.T) {
	lost := tally.Lost([]byte("# HELP keygate_a_lost_total x\nkeygate_a_lost_total 0\nkeygate_b_lost_total{sink=\"x y\"} 3\nother_lost_total 1\nkeygate_c_total 2\n"))
	if len(lost) != 2 || lost["keygate_a_lost_total"] != 0 {
		t.Errorf("found %v, want keygate_a_lost_total at 0 and keygate_b_lost_total", lost)
	}
}
