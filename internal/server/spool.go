package server

import (
	"time"

	"github.com/keygate/keygate/internal/store/spooled"
)

// openSpool opens the spool of a database that several nodes can share. It ends after the sinks. SQLite
// has none: its file and the spool would be on the same disk.
func (s *Server) openSpool() (err error) {
	s.records = s.db
	s.metrics.Gauge("keygate_spool_bytes", "Size of the records that are kept on this node's disk until the PostgreSQL database takes them.", func() float64 {
		if s.spool == nil {
			return 0
		}
		return float64(s.spool.Bytes())
	})
	if !s.cfg.Settings.Shared() {
		return nil
	}
	s.spool, err = spooled.New(spooled.Config{
		Store: s.db, Dir: s.cfg.Settings.SpoolDir(), Installation: s.operatorID, MaxBytes: s.cfg.Settings.SpoolMaxBytes, Lost: s.lostInSpool, Log: s.log,
	})
	if err != nil {
		return err
	}
	s.records = s.spool
	s.running.Push(s.spool.Stop)
	return nil
}

// lostInSpool adds records that were lost from the spool to the counts of their sinks. Without sinks,
// the start of the server has failed.
func (s *Server) lostInSpool(k spooled.Kind, records int, at time.Time) {
	switch {
	case k == spooled.Audit && s.auditLog != nil:
		if at.IsZero() {
			at = time.Now()
		}
		s.auditLog.AddLost(records, at)
	case k == spooled.Traffic && s.meter != nil:
		s.meter.AddLost(records)
	case k == spooled.Requests && s.requestLog != nil:
		s.requestLog.AddLost(records)
	case k == spooled.Events && s.events != nil:
		s.events.AddLost(records)
	}
}
