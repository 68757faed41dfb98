package server

import (
	"context"
	"fmt"

	accesswriter "github.com/keygate/keygate/internal/accesslog/writer"
	auditwriter "github.com/keygate/keygate/internal/audit/writer"
	"github.com/keygate/keygate/internal/control"
	requestwriter "github.com/keygate/keygate/internal/requestlog/writer"
	"github.com/keygate/keygate/internal/traffic/meter"
	"github.com/keygate/keygate/internal/usage/closing"
)

// openAuditLog returns the sink that writes the audit log.
func (s *Server) openAuditLog() (_ sink, err error) {
	s.auditLog, err = auditwriter.New(auditwriter.Config{
		Store: s.records, Keeper: s.records, OperatorID: s.operatorID, MaxBytes: s.cfg.Settings.AuditMaxBytes, Retention: s.retention.Now, Log: s.log,
	})
	if err != nil {
		return nil, err
	}
	s.metrics.Counter("keygate_audit_lost_total", "Audit records that were lost. The audit log shows each loss as a gap.",
		func() float64 { return float64(s.auditLog.Lost()) })
	s.metrics.Gauge("keygate_audit_held_bytes", "Memory used by audit records that are not yet written.",
		func() float64 { return float64(s.auditLog.Held()) })
	return s.auditLog, nil
}

// openMeter returns the sink that counts traffic.
func (s *Server) openMeter() (_ sink, err error) {
	if s.meter, err = meter.New(meter.Config{Store: s.records, Retention: s.retention.Now, Settle: s.settleQuotas, Log: s.log}); err != nil {
		return nil, err
	}
	s.metrics.Counter("keygate_traffic_lost_total", "Requests missing from traffic reports.",
		func() float64 { return float64(s.meter.Lost()) })
	s.metrics.Counter("keygate_usage_lost_total", "Requests, at most, missing from usage records.",
		func() float64 { return float64(s.meter.LostUsage() + s.collector.Lost()) })
	return s.meter, nil
}

// settleQuotas returns when quotas have what requests have used until now.
func (s *Server) settleQuotas(ctx context.Context) error { return s.quotas.Sync(ctx) }

// startUsage starts what makes usage records final.
func (s *Server) startUsage(ctx context.Context) error {
	closer, err := closing.New(closing.Config{
		Store: s.db, Process: s.node.process(), Alone: s.node == nil, Now: s.clock.WallTime, Retention: s.retention.Now, Log: s.log,
		Flush: func(ctx context.Context) error { return s.syncers(s.collector, s.meter).Sync(ctx) },
	})
	if err != nil {
		return err
	}
	s.metrics.Gauge("keygate_usage_lag_seconds", "Time since the end of the newest hour whose usage records are not final yet; 0 if there is none.",
		func() float64 { return closer.Lag().Seconds() })
	return s.running.Start(ctx, closer)
}

// openRequestLog returns the sink that keeps refused and failed requests.
func (s *Server) openRequestLog() (_ sink, err error) {
	if s.requestLog, err = requestwriter.New(requestwriter.Config{
		Store: s.records, OperatorID: s.operatorID, MaxBytes: s.cfg.Settings.RequestsMaxBytes, Retention: s.retention.Now, Log: s.log,
	}); err != nil {
		return nil, err
	}
	s.metrics.Counter("keygate_requestlog_lost_total", "Refused and failed requests missing from the request log; excludes sampled-out requests.",
		func() float64 { return float64(s.requestLog.Lost()) })
	s.metrics.Counter("keygate_requestlog_left_out_total", "Refused and failed requests left out of the request log by sampling.",
		func() float64 { return float64(s.requestLog.LeftOut()) })
	s.metrics.Counter("keygate_requestlog_removed_early_total", "Requests that this node removed from the request log before their 24 hours were over, because the log was larger than --requests-max-bytes.",
		func() float64 { return float64(s.requestLog.RemovedEarly()) })
	return s.requestLog, nil
}

// openAccessLog opens the access log of --access-log, before anything else changes, so that
// a file that cannot be written to fails the start. startSinks starts it.
func (s *Server) openAccessLog(context.Context) (err error) {
	cfg := accesswriter.Config{Path: s.cfg.Settings.AccessLog, Log: s.log}
	switch cfg.Path {
	case "off":
		return nil
	case "stdout":
		cfg.Path, cfg.Stdout = "", s.cfg.Out
	}
	if s.accessLog, err = accesswriter.New(cfg); err != nil {
		return fmt.Errorf("--access-log=%s: %w: name a file that Keygate may create and write, or set stdout or off", s.cfg.Settings.AccessLog, err)
	}
	s.running.Push(s.accessLog.Stop) // closes the file if the start fails
	s.metrics.Counter("keygate_access_log_lost_total", "Lines of the access log that its file or standard output did not accept.",
		func() float64 { return float64(s.accessLog.Lost()) })
	return nil
}

// syncers combines several Syncers into one.
type syncers []control.Syncer

// syncers returns the given Syncers, and the spool as the last if there is one.
func (s *Server) syncers(all ...control.Syncer) syncers {
	if s.spool != nil {
		all = append(all, s.spool)
	}
	return all
}

// trafficSource is the meter, which the spool completes.
type trafficSource struct {
	*meter.Meter
	server *Server
}

// Sync implements control.Syncer.
func (t trafficSource) Sync(ctx context.Context) error { return t.server.syncers(t.Meter).Sync(ctx) }

// requestSource is the request log, which the spool completes.
type requestSource struct {
	*requestwriter.Writer
	server *Server
}

// Sync implements control.Syncer.
func (r requestSource) Sync(ctx context.Context) error { return r.server.syncers(r.Writer).Sync(ctx) }

// Sync implements control.Syncer: it syncs one after the other.
func (all syncers) Sync(ctx context.Context) error {
	for _, one := range all {
		if err := one.Sync(ctx); err != nil {
			return err
		}
	}
	return nil
}
