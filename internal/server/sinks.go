package server

import (
	"context"

	auditwriter "github.com/keygate/keygate/internal/audit/writer"
	"github.com/keygate/keygate/internal/control"
	requestwriter "github.com/keygate/keygate/internal/requestlog/writer"
	"github.com/keygate/keygate/internal/traffic/meter"
)

// openJournal makes the sink of the audit log.
func (s *Server) openJournal() (_ sink, err error) {
	s.journal, err = auditwriter.New(auditwriter.Config{
		Store: s.db, Keeper: s.db, OperatorID: s.operatorID, MaxBytes: s.cfg.Settings.AuditMaxBytes, Log: s.log,
	})
	if err != nil {
		return nil, err
	}
	s.metrics.Counter("keygate_audit_lost_total", "Records of the audit log that were lost: the log shows where, as a gap.",
		func() float64 { return float64(s.journal.Lost()) })
	s.metrics.Gauge("keygate_audit_held_bytes", "Memory that records of the audit log take which are still to be written.",
		func() float64 { return float64(s.journal.Held()) })
	return s.journal, nil
}

// openMeter makes the sink of the traffic report.
func (s *Server) openMeter() (_ sink, err error) {
	if s.meter, err = meter.New(meter.Config{Store: s.db, Log: s.log}); err != nil {
		return nil, err
	}
	s.metrics.Counter("keygate_traffic_lost_total", "Requests that the traffic report could not count.",
		func() float64 { return float64(s.meter.Lost()) })
	return s.meter, nil
}

// openRecorder makes the sink that keeps what was refused or failed.
func (s *Server) openRecorder() (_ sink, err error) {
	if s.recorder, err = requestwriter.New(requestwriter.Config{Store: s.db, Log: s.log}); err != nil {
		return nil, err
	}
	s.metrics.Counter("keygate_requestlog_lost_total", "Refused and failed requests that could not be kept; those left out by sampling are none of them.",
		func() float64 { return float64(s.recorder.Lost()) })
	s.metrics.Counter("keygate_requestlog_left_out_total", "Refused and failed requests that were left out by sampling.",
		func() float64 { return float64(s.recorder.LeftOut()) })
	return s.recorder, nil
}

// inTurn brings several up to date, one after the other.
type inTurn []control.Syncer

// Sync implements control.Syncer.
func (all inTurn) Sync(ctx context.Context) error {
	for _, one := range all {
		if err := one.Sync(ctx); err != nil {
			return err
		}
	}
	return nil
}
