package telemetry_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/telemetry"
)

// get returns the response of h to a GET.
func get(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
	return w
}

// Guarantee: /readyz responds 200 only in the phase Ready, /livez in every phase.
func TestReadiness(t *testing.T) {
	var r telemetry.Readiness
	h := telemetry.OpsHandler(&r, telemetry.NewMetrics("test"), false)
	for _, tc := range []struct {
		phase telemetry.Phase
		want  int
	}{{telemetry.Starting, 503}, {telemetry.Ready, 200}, {telemetry.Draining, 503}} {
		r.Set(tc.phase)
		if got := get(h, "/readyz").Code; got != tc.want {
			t.Errorf("phase %d: got status %d from /readyz, want %d", tc.phase, got, tc.want)
		}
		if got := get(h, "/livez").Code; got != http.StatusOK {
			t.Errorf("phase %d: got status %d from /livez, want 200", tc.phase, got)
		}
	}
}

// Guarantee: a problem that does not stop traffic is in the body of /readyz, which stays 200.
func TestDegraded(t *testing.T) {
	var r telemetry.Readiness
	r.Set(telemetry.Ready)
	reason := ""
	r.SetDegraded(func() string { return reason })
	h := telemetry.OpsHandler(&r, telemetry.NewMetrics("test"), false)
	for _, tc := range []struct{ reason, want string }{{"", "ready\n"}, {"disk_full", "ready\ndegraded: disk_full\n"}} {
		reason = tc.reason
		if got := get(h, "/readyz"); got.Code != http.StatusOK || got.Body.String() != tc.want {
			t.Errorf("got status %d and %q, want 200 and %q", got.Code, got.Body, tc.want)
		}
	}
}

// Guarantee: profiles are served only if they are enabled.
func TestPprof(t *testing.T) {
	m := telemetry.NewMetrics("test")
	if got := get(telemetry.OpsHandler(&telemetry.Readiness{}, m, false), "/debug/pprof/").Code; got != http.StatusNotFound {
		t.Errorf("disabled: got status %d, want 404", got)
	}
	if got := get(telemetry.OpsHandler(&telemetry.Readiness{}, m, true), "/debug/pprof/").Code; got != http.StatusOK {
		t.Errorf("enabled: got status %d, want 200", got)
	}
}

// Guarantee: /metrics has the version, the metrics of the runtime, and the number of
// responses by status class, without interim (1xx) responses.
func TestMetrics(t *testing.T) {
	m := telemetry.NewMetrics("v1.2.3")
	counted := m.Count("admin", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusNotFound)
	}))
	get(counted, "/")
	m.Gauge("keygate_test", "For the test.", func() float64 { return 7 })
	body := get(telemetry.OpsHandler(&telemetry.Readiness{}, m, false), "/metrics").Body.String()
	for _, want := range []string{
		`version="v1.2.3"`, "go_goroutines", "process_cpu_seconds_total", "keygate_test 7",
		`keygate_http_requests_total{plane="admin",status="4xx"} 1`, `keygate_http_requests_in_flight{plane="admin"} 0`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
}

// Guarantee: a logger writes only lines of its level or above, in its format; auto is JSON
// unless the output is a terminal.
func TestLogger(t *testing.T) {
	var b bytes.Buffer
	log := telemetry.NewLogger(&b, "warn", "json")
	log.Info("hidden")
	log.Warn("shown", "n", 1)
	first := b.String()
	b.Reset()
	telemetry.NewLogger(&b, "info", "auto").Info("shown")
	if got := b.String(); !strings.HasPrefix(got, "{") {
		t.Errorf("auto without a terminal logged %q, want JSON", got)
	}
	if got := first; strings.Contains(got, "hidden") || !strings.HasPrefix(got, "{") || !strings.Contains(got, `"n":1`) {
		t.Errorf("got %q, want JSON with n=1 and without the line of level info", got)
	}
}
