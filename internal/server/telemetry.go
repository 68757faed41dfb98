package server

import (
	"context"
	"math"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/keygate/keygate/internal/certificate"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/telemetry"
	"github.com/keygate/keygate/internal/telemetry/trace"
	"github.com/keygate/keygate/internal/webhook"
)

// places tells the metrics what stands in a snapshot.
type places struct{ *snapshot.Snapshot }

// Describe implements telemetry.Places.
func (p places) Describe(gatewayID, routeID string) (hostname, path, methods string, ok bool) {
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
	return g.Hostname(), r.Path, strings.Join(r.Methods, ","), true
}

// counted is the sink of the metrics. It works while it takes, and has nothing
// to start or stop.
type counted struct{ *telemetry.Requests }

// Start does nothing.
func (counted) Start(context.Context) error { return nil }

// Stop does nothing.
func (counted) Stop(context.Context) error { return nil }

// openCounts makes the sink of the metrics.
func (s *Server) openCounts() (_ sink, err error) {
	s.requests, err = telemetry.NewRequests(telemetry.RequestsConfig{
		Places: func() telemetry.Places { return places{s.live.Current()} },
		Sync:   func(ctx context.Context) error { return s.collector.Sync(ctx) },
	})
	return counted{s.requests}, err
}

// openLines makes the sink of the log.
func (s *Server) openLines() (sink, error) {
	l := telemetry.NewLines(s.log)
	s.metrics.Counter("keygate_log_lost_total", "Lines about requests that the log did not get, because who reads it is too slow.", func() float64 { return float64(l.Lost()) })
	return l, nil
}

// readTraces reads whether the environment asks for traces.
func (s *Server) readTraces(context.Context) (err error) {
	if s.cfg.Env == nil {
		return nil
	}
	s.traces, err = trace.FromEnvironment(s.cfg.Env)
	return err
}

// openTraces makes the sink of the traces.
func (s *Server) openTraces() (_ sink, err error) {
	s.tracer, err = trace.New(trace.Config{
		Settings: s.traces, Version: s.cfg.Version, Log: s.log,
		RoutePath: func(gatewayID, routeID string) string {
			_, path, _, _ := places{s.live.Current()}.Describe(gatewayID, routeID)
			return path
		},
	})
	if err != nil {
		return nil, err
	}
	t := s.tracer
	s.metrics.Counter("keygate_traces_lost_total", "Requests chosen for a trace that the collector of traces did not get.", func() float64 { return float64(t.Lost()) })
	s.metrics.Gauge("keygate_traces_waiting", "Requests that are still to be told to the collector of traces.", func() float64 { return float64(t.Waiting()) })
	return t, nil
}

// tellCounts shows what the sink of the metrics counts, and the figures of the
// house.
func (s *Server) tellCounts() {
	s.metrics.Register(s.requests)
	s.countHouse()
}

// countHouse shows the figures of the store, the snapshot and the certificates.
func (s *Server) countHouse() {
	m, store := s.metrics, s.db.Stats
	m.Gauge("keygate_snapshot_age_seconds", "Time since the data plane last read the store to its end: what is in force is no older.",
		func() float64 { return s.live.Age().Seconds() })
	m.Labelled("keygate_store_transactions_total", "Transactions of the store, by kind: write, read (management), follow (data plane).", "kind", true,
		func() map[string]float64 {
			t := store()
			return map[string]float64{"write": float64(t.Writes.Transactions), "read": float64(t.Reads.Transactions), "follow": float64(t.Follow.Transactions)}
		})
	m.Labelled("keygate_store_transaction_seconds_total", "Time that transactions of the store took, together.", "kind", true,
		func() map[string]float64 {
			t := store()
			return map[string]float64{"write": t.Writes.Held.Seconds(), "read": t.Reads.Held.Seconds(), "follow": t.Follow.Held.Seconds()}
		})
	m.Labelled("keygate_store_wait_seconds_total", "Time for which transactions of the store waited for others, together.", "kind", true,
		func() map[string]float64 {
			t := store()
			return map[string]float64{"write": t.Writes.Waited.Seconds(), "read": t.Reads.Waited.Seconds(), "follow": t.Follow.Waited.Seconds()}
		})
	m.Counter("keygate_store_failures_total", "Writing transactions that the store failed, as with a full disk.", func() float64 { return float64(store().Failures) })
	m.Labelled("keygate_store_size_bytes", "Size of the store's files: database, log (write-ahead).", "file", false,
		func() map[string]float64 {
			t := store()
			return map[string]float64{"database": float64(t.Database), "log": float64(t.Log)}
		})
	m.Gauge("keygate_data_dir_free_bytes", "Space left for the data directory.", func() float64 {
		var fs unix.Statfs_t
		if err := unix.Statfs(s.cfg.Settings.DataDir, &fs); err != nil {
			return math.NaN()
		}
		return float64(fs.Bavail) * float64(fs.Bsize)
	})
	m.Gauge("keygate_webhook_waiting", "Webhook deliveries to active endpoints that are still to be made, due or not.",
		func() float64 {
			return s.backlog(func(b webhook.Backlog, _ time.Time) float64 { return float64(b.Waiting) })
		})
	m.Gauge("keygate_webhook_overdue_seconds", "Time for which the webhook delivery that is due longest has waited to be sent.",
		func() float64 {
			return s.backlog(func(b webhook.Backlog, now time.Time) float64 {
				if b.Due.IsZero() {
					return 0
				}
				return max(0, now.Sub(b.Due).Seconds())
			})
		})
	s.countCertificates()
}

// backlog reads a figure of what waits to be delivered. It is no number if the
// store cannot tell.
func (s *Server) backlog(read func(b webhook.Backlog, now time.Time) float64) float64 {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	now := time.Now()
	b, err := s.db.DeliveryBacklog(ctx, now)
	if err != nil {
		return math.NaN()
	}
	return read(b, now)
}

func (s *Server) countCertificates() {
	pairs := map[string]*certificate.Pair{"gateway": s.certificates.gateway, "admin": s.certificates.admin}
	s.metrics.Labelled("keygate_certificate_expiry_timestamp_seconds", "When the certificate of a listener ends, in seconds since 1970.", "listener", false,
		func() map[string]float64 {
			out := map[string]float64{}
			for name, p := range pairs {
				if p != nil {
					out[name] = float64(p.NotAfter().UnixMilli()) / float64(time.Second/time.Millisecond)
				}
			}
			return out
		})
}
