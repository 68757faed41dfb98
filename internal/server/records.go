package server

import (
	"context"

	"github.com/keygate/keygate/internal/accesslog"
)

// A sink keeps what the data plane tells of each request. It is started before
// the collector and stopped after it, with everything that it took.
type sink interface {
	accesslog.Sink
	Start(ctx context.Context) error
	Stop(ctx context.Context) error
}

// openSinks lists the sinks, in the order in which they get a batch. Each
// function makes one over the open store.
func (s *Server) openSinks() []func() (sink, error) {
	open := []func() (sink, error){s.openJournal, s.openMeter, s.openRecorder, s.openWatch, s.openCounts, s.openLines}
	if s.traces != nil {
		open = append(open, s.openTraces)
	}
	return open
}

// startRecords starts the sinks and the collector that gives them the records
// of the data plane, which is yet to be built. They end in the reverse order:
// data plane, collector, sinks.
func (s *Server) startRecords(ctx context.Context) error {
	var all []accesslog.Sink
	for _, open := range s.openSinks() {
		one, err := open()
		if err != nil {
			return err
		}
		if err := one.Start(ctx); err != nil {
			return err
		}
		s.started(one.Stop)
		all = append(all, one)
	}
	var err error
	if s.collector, err = accesslog.NewCollector(accesslog.Config{Sinks: all, Log: s.log}); err != nil {
		return err
	}
	if err := s.collector.Start(ctx); err != nil {
		return err
	}
	s.started(s.collector.Stop)
	s.metrics.Counter("keygate_outcome_lost_total", "Records of requests that no sink got, because there was no room for them.",
		func() float64 { return float64(s.collector.Lost()) })
	s.metrics.Counter("keygate_outcome_defects_total", "Batches of records at which a sink failed by a defect.",
		func() float64 { return float64(s.collector.Panics()) })
	s.tellCounts()
	return nil
}
