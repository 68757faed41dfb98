package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/edge/h2"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/telemetry"
)

// countedDecider counts decisions by how they end. It allocates nothing.
type countedDecider struct {
	h2.Decider
	outcomes [admit.Wait + 1]prometheus.Counter
	refusals map[fault.Code]prometheus.Counter // never written after New
}

func countDecisions(d h2.Decider, m *telemetry.Metrics) *countedDecider {
	c := &countedDecider{Decider: d, refusals: map[fault.Code]prometheus.Counter{}}
	c.outcomes[admit.Refuse] = m.Decisions("other")
	c.outcomes[admit.Forward] = m.Decisions("forwarded")
	c.outcomes[admit.Preflight] = m.Decisions("preflight")
	for _, code := range []fault.Code{
		fault.InvalidRequest, fault.Unauthorized, fault.Forbidden, fault.GatewayNotFound, fault.RouteNotFound,
		fault.MethodNotAllowed, fault.RateLimitExceeded,
	} {
		c.refusals[code] = m.Decisions(string(code))
	}
	return c
}

// Decide decides and counts. A decision that must wait is counted when it is
// made.
func (c *countedDecider) Decide(req *admit.Request, v *admit.Verdict) {
	c.Decider.Decide(req, v)
	counter := c.outcomes[v.Outcome]
	if v.Outcome == admit.Refuse {
		if known, ok := c.refusals[v.Code]; ok {
			counter = known
		}
	}
	if counter != nil {
		counter.Inc()
	}
}
