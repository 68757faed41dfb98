package server

import (
	"github.com/keygate/keygate/internal/canary/count"
	"github.com/keygate/keygate/internal/canary/lead"
	"github.com/keygate/keygate/internal/control"
)

// openCanaryCounter returns the sink that counts requests of canaries.
func (s *Server) openCanaryCounter() (sink, error) {
	counter, err := count.New(count.Config{Store: s.db, Nodes: s.node.count, Now: s.clock.WallTime, Log: s.log})
	if err != nil {
		return nil, err
	}
	s.metrics.Counter("keygate_canary_requests_lost_total", "Requests of canaries that this node could not count, because too many canaries had some at once.",
		func() float64 { return float64(counter.Lost()) })
	return counter, nil
}

// buildLeader builds what judges canaries, while this node leads.
func (s *Server) buildLeader(ops *control.Service) (err error) {
	if s.leader, err = lead.New(lead.Config{Store: s.db, Control: ops, Process: s.process, Now: s.clock.WallTime, Log: s.log}); err != nil {
		return err
	}
	s.metrics.Gauge("keygate_canaries_judged", "Canaries that this node judges: all that run, on the one node that leads, and 0 on others.",
		func() float64 { return float64(s.leader.Running()) })
	return nil
}
