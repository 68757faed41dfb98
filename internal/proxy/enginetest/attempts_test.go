package enginetest_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/keygatetest/porttest"
)

// attemptsOf returns the attempts of a record without their times, which must be plausible.
func attemptsOf(t *testing.T, e *accesslog.Entry) (all []accesslog.Attempt) {
	t.Helper()
	for a := range accesslog.Attempts(e.AttemptList) {
		if a.Took < 0 || a.Took > time.Duration(e.Duration)+time.Millisecond {
			t.Errorf("got an attempt of %v, want at most the %v of the request", a.Took, time.Duration(e.Duration))
		}
		a.Took = 0
		all = append(all, a)
	}
	return all
}

func hostOf(url string) string { return strings.TrimPrefix(url, "http://") }

// Guarantee: targets.md, section 9: the record of a request has the upstream and the target, and each of its attempts if there
// were several or the only one failed: with its result, its reason, its status, and the ejection that its failure led to.
func TestRecordsHaveAttempts(t *testing.T) {
	overBoth(t, func(t *testing.T, client http.RoundTripper) {
		service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/busy" {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			_, _ = io.WriteString(w, "fine")
		}))
		t.Cleanup(service.Close)
		refused, alive := "http://"+closedPort(t), service.URL
		g := start(t, setup{adjust: func(u *gateway.Upstream) {
			u.Targets = []gateway.Target{{URL: refused}, {URL: alive, Backup: true}}
			u.URL = u.Targets[0].URL
			u.Ejection = &gateway.Ejection{Failures: 2, On: []string{gateway.OnConnect}, Base: "10m", Max: "10m"}
		}})
		dead := accesslog.Attempt{Target: hostOf(refused), Result: "connect", Reason: accesslog.ConnectionRefused}
		good := accesslog.Attempt{Target: hostOf(alive), Result: "ok", Status: 200}
		call := func(method, path string) (accesslog.Entry, []accesslog.Attempt) {
			t.Helper()
			req, err := http.NewRequestWithContext(t.Context(), method, "http://"+g.addr+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+g.key)
			resp, err := client.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			records := g.records()
			if len(records) != 1 {
				t.Fatalf("got %d records, want 1", len(records))
			}
			e := records[0]
			if e.UpstreamName != gateway.DefaultUpstream || e.Target != hostOf(alive) {
				t.Errorf("got the upstream %q and the target %q, want default and %q", e.UpstreamName, e.Target, hostOf(alive))
			}
			return e, attemptsOf(t, &e)
		}

		if _, got := call("GET", "/"); !slices.Equal(got, []accesslog.Attempt{dead, good}) {
			t.Errorf("got %+v, want a refused connection and a response", got)
		}
		e, got := call("POST", "/")
		if len(got) != 2 || got[1] != good {
			t.Fatalf("got %+v, want two attempts, the second good", got)
		}
		ejected := got[0]
		if until := time.Duration(ejected.EjectedUntil-ejected.Ejected) * time.Millisecond; ejected.Failures != 2 || until != 10*time.Minute ||
			ejected.Ejected < e.Start/1000-1 || ejected.Ejected > (e.Start+e.Duration/1000)/1000+1 {
			t.Errorf("got %+v for a request at %d, want an ejection for 10 minutes within the request, after 2 failures", ejected, e.Start/1000)
		}
		if _, got := call("GET", "/"); got != nil {
			t.Errorf("got %+v for a request whose only attempt succeeded, want none", got)
		}
		busy := accesslog.Attempt{Target: hostOf(alive), Result: "503", Status: 503}
		if _, got := call("GET", "/busy"); !slices.Equal(got, []accesslog.Attempt{busy}) {
			t.Errorf("got %+v for a request whose only attempt failed, want that attempt", got)
		}
	})
}

// Guarantee: the record of an upstream with one target has no attempts, whatever the end.
func TestRecordsOfOneTargetHaveNoAttempts(t *testing.T) {
	overBoth(t, func(t *testing.T, client http.RoundTripper) {
		g := start(t, setup{upstream: "http://" + closedPort(t)})
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+g.addr+"/public/", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		for _, e := range g.records() {
			if e.AttemptList != "" || e.Target != "" || e.UpstreamName != "" || resp.StatusCode != http.StatusBadGateway {
				t.Errorf("got status %d and %q, %q, %q, want 502 and none", resp.StatusCode, e.UpstreamName, e.Target, e.AttemptList)
			}
		}
	})
}

// Guarantee: targets.md, section 3: a target that was ejected gets a request again when the ejection is over, one without a body,
// and serves from then on.
func TestEjectedTargetComesBack(t *testing.T) {
	overBoth(t, func(t *testing.T, client http.RoundTripper) {
		service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "spare") }))
		t.Cleanup(service.Close)
		addr := porttest.Reserve(t)
		g := start(t, setup{adjust: func(u *gateway.Upstream) {
			u.Targets = []gateway.Target{{URL: "http://" + addr}, {URL: service.URL, Backup: true}}
			u.URL = u.Targets[0].URL
			u.Ejection = &gateway.Ejection{Failures: 1, On: []string{gateway.OnConnect}, Base: "20ms", Max: "20ms"}
		}})
		get := func() string {
			t.Helper()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+g.addr+"/public/", nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := client.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			return string(body)
		}
		if got := get(); got != "spare" {
			t.Fatalf("got %q, want the response of the spare target", got)
		}
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		back := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "back") })}
		go func() { _ = back.Serve(l) }()
		t.Cleanup(func() { _ = back.Close() })
		awaittest.True(t, "the target serves again", func() bool { return get() == "back" })
	})
}

// Guarantee: targets.md, section 3: statuses of one caller alone eject no target, however many there are, and those of a second one
// with them do.
func TestStatusesOfSeveralCallersEject(t *testing.T) {
	overBoth(t, func(t *testing.T, client http.RoundTripper) {
		busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
		t.Cleanup(busy.Close)
		spare := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "spare") }))
		t.Cleanup(spare.Close)
		g := start(t, setup{trusted: true, adjust: func(u *gateway.Upstream) {
			u.Targets = []gateway.Target{{URL: busy.URL}, {URL: spare.URL, Backup: true}}
			u.URL = u.Targets[0].URL
			u.Ejection = &gateway.Ejection{Failures: 2, On: []string{gateway.On503}, Base: "10m", Max: "10m", MaxPercent: 100}
		}})
		status := func(name, value string) int {
			t.Helper()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+g.addr+"/public/", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set(name, value)
			resp, err := client.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			return resp.StatusCode
		}
		for range 5 {
			if got := status("X-Forwarded-For", "203.0.113.1"); got != http.StatusServiceUnavailable {
				t.Fatalf("got %d, want 503: one caller must not eject a target", got)
			}
		}
		if got := status("X-Forwarded-For", "203.0.113.2"); got != http.StatusServiceUnavailable {
			t.Fatalf("got %d, want 503", got)
		}
		if got := status("X-Forwarded-For", "203.0.113.2"); got != http.StatusOK {
			t.Errorf("got %d, want 200 of the spare target: two callers had a 503", got)
		}
	})
}
