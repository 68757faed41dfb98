package server_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/keygatetest"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
)

// checkedTarget is a target whose checks get a status, and whose other requests are counted.
type checkedTarget struct {
	*httptest.Server
	status   atomic.Int64
	checks   atomic.Int64
	requests atomic.Int64
}

func startCheckedTarget(t *testing.T) *checkedTarget {
	t.Helper()
	c := &checkedTarget{}
	c.status.Store(http.StatusOK)
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" {
			c.requests.Add(1)
			return
		}
		if r.Header.Get("X-Probe") != "s3cret" || !strings.HasPrefix(r.UserAgent(), "Keygate-Health/") {
			t.Errorf("got a check with %v, want the headers of checks", r.Header)
		}
		c.checks.Add(1)
		w.WriteHeader(int(c.status.Load()))
	}))
	t.Cleanup(c.Close)
	return c
}

// Guarantee: targets.md 3 and 10, a target whose checks fail gets no requests, is shown in metrics and makes an event of why; after so
// many good checks as the settings say, which take two intervals and a timeout, it gets requests again. Checks make no access records.
func TestTargetsAreChecked(t *testing.T) {
	s := keygatetest.Start(t)
	a, b := startCheckedTarget(t), startCheckedTarget(t)
	g := openGateway(t, s, a.URL)
	upstream := "/v1/gateways/" + g.GatewayID + "/upstreams/default"
	change := func(body string) {
		t.Helper()
		if r := s.Call("PATCH", upstream, s.AdminKey, body); r.Status != http.StatusOK {
			t.Fatalf("got %d %s, want 200", r.Status, r.Body)
		}
	}
	change(`{"targets": [{"url": "` + a.URL + `"}, {"url": "` + b.URL + `"}], "health": {"path": "/healthz", "interval": "1s", "headers": {"X-Probe": "s3cret"}}}`)
	awaittest.True(t, "both targets were checked", func() bool { return a.checks.Load() > 0 && b.checks.Load() > 0 })
	up := func(of *checkedTarget) bool {
		return strings.Contains(scrape(t, s), `keygate_target_up{gateway="`+g.GatewayID+`",target="`+strings.TrimPrefix(of.URL, "http://")+`",upstream="default"} 1`)
	}
	got := func(of *checkedTarget) int64 {
		t.Helper()
		before := of.requests.Load()
		for range 40 {
			if r := s.Through("", http.MethodGet, "/x", "", ""); r.Status != http.StatusOK {
				t.Fatalf("got %d %s, want 200", r.Status, r.Body)
			}
		}
		return of.requests.Load() - before
	}
	if got(a) == 0 || got(b) == 0 {
		t.Error("a healthy target got no request")
	}
	b.status.Store(http.StatusServiceUnavailable)
	awaittest.True(t, "the target is unhealthy", func() bool { return !up(b) })
	if n := got(b); n > 0 {
		t.Errorf("an unhealthy target got %d requests", n)
	}
	good := b.checks.Load()
	began := time.Now()
	b.status.Store(http.StatusNoContent)
	awaittest.True(t, "the target is healthy again", func() bool { return up(b) })
	if n, took := b.checks.Load()-good, time.Since(began); n < 2 || n > 3 {
		t.Errorf("the target was back after %d checks and %v, want two good checks", n, took)
	}
	awaittest.True(t, "the target gets requests", func() bool { return got(b) > 0 })

	reasons := map[event.Type]string{event.UpstreamTargetDown: "status 503", event.UpstreamTargetUp: "check"}
	awaittest.True(t, "both changes make events", func() bool {
		seen := map[string]bool{}
		for e, err := range s.Admin.Events(t.Context(), client.EventFilter{}) {
			if err != nil {
				t.Fatal(err)
			}
			raw, err := json.Marshal(e.Data)
			if err != nil {
				t.Fatal(err)
			}
			if want := reasons[event.Type(e.Type)]; want != "" && strings.Contains(string(raw), `"reason":"`+want+`"`) {
				seen[e.Type] = true
			}
		}
		return len(seen) == 2
	})
	for r, err := range s.Admin.Requests(t.Context(), client.RequestFilter{}) {
		if err != nil || r.Path != "/x" {
			t.Fatalf("got a request of %s, %v; want none of a check", r.Path, err)
		}
	}

}

// Guarantee: targets.md 2 and 3, the checks of an only target show its state, and keep no request from it. Without checks it is
// healthy.
func TestOnlyTargetIsChecked(t *testing.T) {
	s := keygatetest.Start(t)
	a := startCheckedTarget(t)
	a.status.Store(http.StatusServiceUnavailable)
	g := openGateway(t, s, a.URL)
	upstream := "/v1/gateways/" + g.GatewayID + "/upstreams/default"
	if r := s.Call("PATCH", upstream, s.AdminKey, `{"health": {"path": "/healthz", "interval": "1s", "headers": {"X-Probe": "s3cret"}}}`); r.Status != http.StatusOK {
		t.Fatalf("got %d %s, want 200", r.Status, r.Body)
	}
	awaittest.True(t, "the target is unhealthy", func() bool {
		text := scrape(t, s)
		return strings.Contains(text, `keygate_target_up{gateway="`+g.GatewayID+`",target="`+strings.TrimPrefix(a.URL, "http://")+`",upstream="default"} 0`) &&
			strings.Contains(text, `keygate_upstream_all_unhealthy{gateway="`+g.GatewayID+`",upstream="default"} 1`)
	})
	if r := s.Through("", http.MethodGet, "/x", "", ""); r.Status != http.StatusOK {
		t.Errorf("got %d %s, want 200", r.Status, r.Body)
	}
	if r := s.Call("PATCH", upstream, s.AdminKey, `{"health": null}`); r.Status != http.StatusOK {
		t.Fatalf("got %d %s, want 200", r.Status, r.Body)
	}
	awaittest.True(t, "the target is up again", func() bool {
		return strings.Contains(scrape(t, s), `target="`+strings.TrimPrefix(a.URL, "http://")+`",upstream="default"} 1`)
	})
}
