package telemetry

import (
	"net/http"
	"runtime"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Metrics is the server's metrics. No label has values that a client chooses, so the
// number of series is bounded.
type Metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	inFlight *prometheus.GaugeVec
}

// NewMetrics returns the metrics of a server of the given version.
func NewMetrics(version string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "keygate_http_requests_total",
			Help: "HTTP requests completed, by plane and status class.",
		}, []string{"plane", "status"}),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "keygate_http_requests_in_flight",
			Help: "HTTP requests in progress, by plane.",
		}, []string{"plane"}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "keygate_build_info",
		Help:        "Always 1. The labels are the versions of Keygate and Go.",
		ConstLabels: prometheus.Labels{"version": version, "go_version": runtime.Version()},
	})
	build.Set(1)
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		build, m.requests, m.inFlight)
	return m
}

// Gauge adds a gauge whose value is read at each scrape. It panics if name is taken.
func (m *Metrics) Gauge(name, help string, read func() float64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, read))
}

// Counter adds a counter whose value is read at each scrape. It panics if name is taken.
func (m *Metrics) Counter(name, help string, read func() float64) {
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, read))
}

// Register adds the metrics of c. It panics if a name is taken.
func (m *Metrics) Register(c prometheus.Collector) { m.registry.MustRegister(c) }

// Labelled adds a gauge with one label, or a counter if counter is true. read returns the
// values by the value of the label. It panics if name is taken.
func (m *Metrics) Labelled(name, help, label string, counter bool, read func() map[string]float64) {
	kind := prometheus.GaugeValue
	if counter {
		kind = prometheus.CounterValue
	}
	m.registry.MustRegister(&labelled{desc: prometheus.NewDesc(name, help, []string{label}, nil), kind: kind, read: read})
}

type labelled struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	read func() map[string]float64
}

// Describe implements prometheus.Collector.
func (l *labelled) Describe(to chan<- *prometheus.Desc) { to <- l.desc }

// Collect implements prometheus.Collector.
func (l *labelled) Collect(to chan<- prometheus.Metric) {
	for value, n := range l.read() {
		to <- prometheus.MustNewConstMetric(l.desc, l.kind, n, value)
	}
}

// Count returns a handler that counts the requests of next on the given plane.
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

// statusWriter remembers the status of the final response.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap returns the underlying writer, for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
