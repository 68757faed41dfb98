package telemetry_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/telemetry"
)

func get(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
	return w
}

// Guarantee: /readyz answers 200 in the phase Ready alone; /livez always.
func TestReadiness(t *testing.T) {
	var r telemetry.Readiness
	h := telemetry.OpsHandler(&r, telemetry.NewMetrics("test"), false)
	for _, tc := range []struct {
		phase telemetry.Phase
		want  int
	}{{telemetry.Starting, 503}, {telemetry.Ready, 200}, {telemetry.Draining, 503}} {
		r.Set(tc.phase)
		if got := get(h, "/readyz").Code; got != tc.want {
			t.Errorf("phase %d: /readyz = %d, want %d", tc.phase, got, tc.want)
		}
		if got := get(h, "/livez").Code; got != http.StatusOK {
			t.Errorf("phase %d: /livez = %d, want 200", tc.phase, got)
		}
	}
}

// Guarantee: profiles are there only when asked for.
func TestPprof(t *testing.T) {
	m := telemetry.NewMetrics("test")
	if got := get(telemetry.OpsHandler(&telemetry.Readiness{}, m, false), "/debug/pprof/").Code; got != http.StatusNotFound {
		t.Errorf("without: %d, want 404", got)
	}
	if got := get(telemetry.OpsHandler(&telemetry.Readiness{}, m, true), "/debug/pprof/").Code; got != http.StatusOK {
		t.Errorf("with: %d, want 200", got)
	}
}

// Guarantee: /metrics tells the version, the runtime's figures and what was
// answered, by class of status; a 1xx is not an answer.
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

// Guarantee: the logger holds to its level and format.
func TestLogger(t *testing.T) {
	var b bytes.Buffer
	log := telemetry.NewLogger(&b, "warn", "json")
	log.Info("hidden")
	log.Warn("shown", "n", 1)
	first := b.String()
	b.Reset()
	telemetry.NewLogger(&b, "info", "auto").Info("shown")
	if got := b.String(); !strings.HasPrefix(got, "{") {
		t.Errorf("to what is no terminal, auto logged %q", got)
	}
	if got := first; strings.Contains(got, "hidden") || !strings.HasPrefix(got, "{") || !strings.Contains(got, `"n":1`) {
		t.Errorf("logged %q", got)
	}
}
