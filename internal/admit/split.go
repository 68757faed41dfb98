package admit

import (
	"time"

	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/snapshot"
)

// split sets where an admitted request goes, if its route or its gateway has a split.
func (d *decision) split(g *snapshot.Gateway, r *snapshot.Route) {
	split := g.SplitOf(r)
	if split == nil {
		return
	}
	v := d.verdict
	side := g.SideOf(split, r, &snapshot.SplitRequest{
		Caller: v.Caller, Client: d.req.Client, Header: d.req.Header, Now: time.Duration(d.now.Mono), Small: balance.IsSmall(d.req.Method, d.req.Length), Bound: d.req.Bound,
	})
	v.Upstream, v.SideReason = side.Upstream, side.Why
}
