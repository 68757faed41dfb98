package server

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/service"
	"github.com/keygate/keygate/internal/store"
)

// probePeriod is how often a store in trouble is tried.
const probePeriod = time.Second

// prober finds out when a store in trouble accepts writes again.
type prober struct {
	db    store.Engine
	group service.Group
}

// Start begins to try the store, until Stop.
func (p *prober) Start(context.Context) error {
	return p.group.Start(func(ctx context.Context) { service.Every(ctx, probePeriod, p.db.Probe) })
}

// Stop ends it.
func (p *prober) Stop(ctx context.Context) error { return p.group.Stop(ctx) }

// logLosses logs how many records were lost since the start, if any. It is called when all writers
// have stopped: records that they have not written by then are lost too.
func (s *Server) logLosses() {
	lost := map[string]uint64{
		"audit_log":   s.auditLog.Lost() + uint64(s.auditLog.Unwritten()),
		"traffic":     s.meter.Lost() + uint64(s.meter.Unwritten()),
		"request_log": s.requestLog.Lost() + uint64(s.requestLog.Unwritten()),
		"undelivered": s.collector.Lost(),
	}
	if s.accessLog != nil {
		lost["access_log"] = s.accessLog.Lost()
	}
	var args []any
	total := uint64(0)
	for _, name := range []string{"audit_log", "traffic", "request_log", "access_log", "undelivered"} {
		args, total = append(args, name, lost[name]), total+lost[name]
	}
	if total > 0 {
		s.log.Warn("records were lost since the start", args...)
	}
}
