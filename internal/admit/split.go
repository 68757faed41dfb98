package admit

import (
	"time"

	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/snapshot"
)

// split sets where an admitted request goes, if its route or its gateway has a split, or the route has a canary.
func (d *decision) split(g *snapshot.Gateway, r *snapshot.Route) {
	split, canary := g.SplitOf(r), g.CanaryOf(r)
	if split == nil && canary == nil {
		return
	}
	v := d.verdict
	req := snapshot.SplitRequest{
		Caller: v.Caller, Client: d.req.Client, Header: d.req.Header, Now: time.Duration(d.now.Mono), Small: balance.IsSmall(d.req.Method, d.req.Length), Bound: d.req.Bound,
	}
	if canary == nil {
		side := g.SideOf(split, r, &req)
		v.Upstream, v.SideReason = side.Upstream, side.Why
		return
	}
	side := g.CanarySideOf(canary, r, &req)
	v.Upstream, v.SideReason = side.Upstream, side.Why
	v.Canary, v.CanaryNext, v.CanaryCaller = canary, side.Next, side.Caller
}
