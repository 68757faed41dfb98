package telemetry

import (
	"net/http"
	"runtime"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Metrics are the server's figures. No label takes its values from a caller,
// so their number is bounded.
type Metrics struct {
	registry  *prometheus.Registry
	requests  *prometheus.CounterVec
	inFlight  *prometheus.GaugeVec
	decisions *prometheus.CounterVec
}

// NewMetrics returns the figures of a server of the given version.
func NewMetrics(version string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "keygate_http_requests_total",
			Help: "Requests answered over HTTP, by plane and class of status.",
		}, []string{"plane", "status"}),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "keygate_http_requests_in_flight",
			Help: "Requests being answered, by plane.",
		}, []string{"plane"}),
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "keygate_gateway_decisions_total",
			Help: "Requests decided on the data plane, by how the decision ended: forwarded, preflight, or the code of the refusal.",
		}, []string{"outcome"}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "keygate_build_info",
		Help:        "Always 1; its labels tell what runs.",
		ConstLabels: prometheus.Labels{"version": version, "go_version": runtime.Version()},
	})
	build.Set(1)
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		build, m.requests, m.inFlight, m.decisions)
	return m
}

// Gauge adds a figure that read gives whenever it is asked for.
func (m *Metrics) Gauge(name, help string, read func() float64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, read))
}

// Counter adds a figure that only grows, which read gives whenever it is asked
// for.
func (m *Metrics) Counter(name, help string, read func() float64) {
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, read))
}

// Count returns a handler that counts what next answers on the given plane.
func (m *Metrics) Count(plane string, next http.Handler) http.Handler {
	var classes [6]prometheus.Counter // by the first digit of the status
	for i := 1; i < len(classes); i++ {
		classes[i] = m.requests.WithLabelValues(plane, strconv.Itoa(i)+"xx")
	}
	inFlight := m.inFlight.WithLabelValues(plane)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inFlight.Inc()
		sw := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		defer func() {
			inFlight.Dec()
			if c := sw.status / 100; c >= 1 && c < len(classes) {
				classes[c].Inc()
			}
		}()
		next.ServeHTTP(sw, r)
	})
}

// statusWriter remembers the status of the final answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader passes on.
func (w *statusWriter) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap gives http.ResponseController the writer beneath.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Decisions returns the counter of the data plane's decisions that end in
// outcome, one of a few words.
func (m *Metrics) Decisions(outcome string) prometheus.Counter {
	return m.decisions.WithLabelValues(outcome)
}
