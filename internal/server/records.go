package server

import (
	"context"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/service"
)

// sink takes access records as a service. It is started before the collector and stopped
// after it, so that it has every record.
type sink interface {
	accesslog.Sink
	service.Service
}

// openSinks lists functions that return the sinks, in the order in which they get each
// batch.
func (s *Server) openSinks() []func() (sink, error) {
	open := []func() (sink, error){s.openAuditLog, s.openMeter, s.openRequestLog, s.openEvents, s.openMetrics, s.openLines, s.openCanaryCounter}
	if s.accessLog != nil {
		open = append(open, func() (sink, error) { return s.accessLog, nil })
	}
	if s.traces != nil {
		open = append(open, s.openTraces)
	}
	return open
}

// startSinks starts the sinks and the collector, which passes them the access records of
// the data plane. The data plane is built later. They stop in the reverse order: data
// plane, collector, sinks.
func (s *Server) startSinks(ctx context.Context) error {
	if err := s.openSpool(); err != nil {
		return err
	}
	var all []accesslog.Sink
	for _, open := range s.openSinks() {
		one, err := open()
		if err != nil {
			return err
		}
		if err := s.running.Start(ctx, one); err != nil {
			return err
		}
		all = append(all, one)
	}
	if s.spool != nil {
		if err := s.spool.Start(ctx); err != nil {
			return err
		}
	}
	var err error
	if s.collector, err = accesslog.NewCollector(accesslog.Config{Sinks: all, Log: s.log}); err != nil {
		return err
	}
	if err := s.running.Start(ctx, s.collector); err != nil {
		return err
	}
	s.metrics.Counter("keygate_outcome_lost_total", "Access records lost because too many were waiting for the sinks.",
		func() float64 { return float64(s.collector.Lost()) })
	s.metrics.Counter("keygate_outcome_defects_total", "Batches of access records at which a sink panicked.",
		func() float64 { return float64(s.collector.Panics()) })
	s.registerMetrics()
	return nil
}
