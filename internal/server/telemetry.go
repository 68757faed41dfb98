package server

import (
	"context"
	"math"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keygate/keygate/internal/certificate"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/store"
	"github.com/keygate/keygate/internal/store/state"
	"github.com/keygate/keygate/internal/telemetry"
	"github.com/keygate/keygate/internal/telemetry/trace"
)

// routes looks up gateways and routes in a snapshot for the labels of metrics.
type routes struct{ *snapshot.Snapshot }

// Describe implements telemetry.Routes.
func (p routes) Describe(gatewayID, routeID string) (hostname, path, methods string, ok bool) {
	g := p.GatewayByID(gatewayID)
	if g == nil {
		return "", "", "", false
	}
	if routeID == "" {
		return g.Hostname(), "", "", true
	}
	r := g.RouteByID(routeID)
	if r == nil {
		return "", "", "", false
	}
	return g.Hostname(), r.Path, strings.Join(r.Methods(), ","), true
}

// metricsSink is the sink that counts metrics. It has no background work.
type metricsSink struct{ *telemetry.Requests }

// Start does nothing.
func (metricsSink) Start(context.Context) error { return nil }

// Stop does nothing.
func (metricsSink) Stop(context.Context) error { return nil }

// openMetrics returns the sink that counts metrics.
func (s *Server) openMetrics() (_ sink, err error) {
	targets, err := telemetry.NewTargets(telemetry.TargetsConfig{
		Upstreams: s.upstreams, Now: func() time.Duration { return time.Duration(s.clock.Mono()) }, MaxLines: s.cfg.Settings.MetricsMaxSeries,
	})
	if err != nil {
		return nil, err
	}
	s.metrics.Register(targets)
	s.requests, err = telemetry.NewRequests(telemetry.RequestsConfig{
		MaxLines: s.cfg.Settings.MetricsMaxSeries, Others: targets.Lines,
		Routes: func() telemetry.Routes { return routes{s.follower.Current()} },
		Sync:   func(ctx context.Context) error { return s.collector.Sync(ctx) },
	})
	return metricsSink{s.requests}, err
}

// openLines returns the sink that writes log lines.
func (s *Server) openLines() (sink, error) {
	l := telemetry.NewLines(s.log)
	s.metrics.Counter("keygate_log_lost_total", "Log lines that standard error did not accept, or not in time.", func() float64 {
		lost := float64(l.Lost())
		if s.cfg.LogLost != nil {
			lost += float64(s.cfg.LogLost())
		}
		return lost
	})
	return l, nil
}

// readTraces reads the settings of traces from the environment.
func (s *Server) readTraces(context.Context) (err error) {
	if s.cfg.Env == nil {
		return nil
	}
	s.traces, err = trace.FromEnvironment(s.cfg.Env)
	return err
}

// openTraces returns the sink that exports traces.
func (s *Server) openTraces() (_ sink, err error) {
	s.tracer, err = trace.New(trace.Config{
		Settings: s.traces, Version: s.cfg.Version, Log: s.log,
		RoutePath: s.follower.RoutePath,
	})
	if err != nil {
		return nil, err
	}
	t := s.tracer
	s.metrics.Counter("keygate_traces_lost_total", "Sampled requests that the trace collector did not receive.", func() float64 { return float64(t.Lost()) })
	s.metrics.Gauge("keygate_traces_waiting", "Sampled requests waiting to be sent to the trace collector.", func() float64 { return float64(t.Waiting()) })
	return t, nil
}

// statMetric is a metric that is made from the counters T of a part of the server. It is a counter if its name ends
// in _total, and otherwise a gauge.
type statMetric[T any] struct {
	name, help string
	read       func(T) int64
}

// registerStats registers metrics that are made from stats.
func registerStats[T any](m *telemetry.Metrics, stats func() T, metrics []statMetric[T]) {
	for _, one := range metrics {
		register := m.Gauge
		if strings.HasSuffix(one.name, "_total") {
			register = m.Counter
		}
		register(one.name, one.help, func() float64 { return float64(one.read(stats())) })
	}
}

// registerMetrics registers the metrics of requests, the store, the snapshot, the webhook
// backlog and the certificates.
func (s *Server) registerMetrics() {
	m, read := s.metrics, s.db.Stats
	m.Register(s.requests)
	m.Gauge("keygate_snapshot_age_seconds", "Time since the data plane last read all changes from the store.",
		func() float64 { return s.follower.Age().Seconds() })
	m.Labelled("keygate_store_transactions_total", "Store transactions, by kind: write, read (management), search (searches and reports of management), follow (data plane).", "kind", true,
		func() map[string]float64 {
			t := read()
			return map[string]float64{"write": float64(t.Writes.Transactions), "read": float64(t.Reads.Transactions), "search": float64(t.Search.Transactions), "follow": float64(t.Follow.Transactions)}
		})
	m.Labelled("keygate_store_transaction_seconds_total", "Total duration of store transactions.", "kind", true,
		func() map[string]float64 {
			t := read()
			return map[string]float64{"write": t.Writes.Held.Seconds(), "read": t.Reads.Held.Seconds(), "search": t.Search.Held.Seconds(), "follow": t.Follow.Held.Seconds()}
		})
	m.Labelled("keygate_store_wait_seconds_total", "Total time that store transactions waited for others.", "kind", true,
		func() map[string]float64 {
			t := read()
			return map[string]float64{"write": t.Writes.Waited.Seconds(), "read": t.Reads.Waited.Seconds(), "search": t.Search.Waited.Seconds(), "follow": t.Follow.Waited.Seconds()}
		})
	m.Counter("keygate_store_failures_total", "Write transactions that failed in the store, for example because the disk is full.", func() float64 { return float64(read().Failures) })
	m.Labelled("keygate_degraded", "1 while something is wrong that does not stop traffic, by reason, otherwise 0.", "reason", false,
		func() map[string]float64 {
			now := map[string]float64{state.DiskFull: 0, state.Unavailable: 0, ratelimit.StoreAway: 0, ratelimit.SlotsAlone: 0, noLease: 0, certificateExpired: 0}
			if reason := s.readiness.Degraded(); reason != "" {
				now[reason] = 1
			}
			return now
		})
	m.Labelled("keygate_store_size_bytes", "Size of the store's files: database, and log (the write-ahead log).", "file", false,
		func() map[string]float64 {
			t := read()
			return map[string]float64{"database": float64(t.Database), "log": float64(t.Log)}
		})
	m.Gauge("keygate_data_dir_free_bytes", "Free disk space for the data directory.", func() float64 {
		free, err := freeSpace(s.cfg.Settings.DataDir)
		if err != nil {
			return math.NaN()
		}
		return free
	})
	m.Register(newBacklogMetrics(s.db))
	s.registerCertificateMetrics()
	s.registerSharingMetrics()
}

// backlogTimeout bounds the wait of a scrape for the store.
const backlogTimeout = 250 * time.Millisecond

// backlogMetrics are the metrics of pending deliveries, and of events whose deliveries are to be written. One scrape
// reads each of them once.
type backlogMetrics struct {
	store                    store.Engine
	events, waiting, overdue *prometheus.Desc
}

func newBacklogMetrics(db store.Engine) *backlogMetrics {
	return &backlogMetrics{
		store:   db,
		events:  prometheus.NewDesc("keygate_webhook_events_waiting", "Events whose deliveries are not all written yet.", nil, nil),
		waiting: prometheus.NewDesc("keygate_webhook_waiting", "Pending webhook deliveries to active endpoints, due or not.", nil, nil),
		overdue: prometheus.NewDesc("keygate_webhook_overdue_seconds", "Time since the oldest pending webhook delivery became due.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (m *backlogMetrics) Describe(to chan<- *prometheus.Desc) {
	to <- m.events
	to <- m.waiting
	to <- m.overdue
}

// Collect implements prometheus.Collector. The values are NaN if the store cannot be read.
func (m *backlogMetrics) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), backlogTimeout)
	defer cancel()
	now := time.Now()
	events, waiting, overdue := math.NaN(), math.NaN(), math.NaN()
	if of, err := m.store.FanOutBacklog(ctx); err == nil {
		events = 0
		for _, n := range of {
			events += float64(n)
		}
	}
	if b, err := m.store.DeliveryBacklog(ctx, now); err == nil {
		waiting, overdue = float64(b.Waiting), 0
		if !b.Due.IsZero() {
			overdue = max(0, now.Sub(b.Due).Seconds())
		}
	}
	to <- prometheus.MustNewConstMetric(m.events, prometheus.GaugeValue, events)
	to <- prometheus.MustNewConstMetric(m.waiting, prometheus.GaugeValue, waiting)
	to <- prometheus.MustNewConstMetric(m.overdue, prometheus.GaugeValue, overdue)
}

func (s *Server) registerCertificateMetrics() {
	sets := map[string]*certificate.Set{"gateway": s.certificates.gateway, "admin": s.certificates.admin}
	s.metrics.Labelled("keygate_certificate_expiry_timestamp_seconds", "Expiry of a listener's certificate that expires first, in seconds since 1970.", "listener", false,
		func() map[string]float64 {
			out := map[string]float64{}
			for name, c := range sets {
				if c != nil && !c.NotAfter().IsZero() {
					out[name] = float64(c.NotAfter().UnixMilli()) / float64(time.Second/time.Millisecond)
				}
			}
			return out
		})
}
