package admit

import (
	"time"

	"github.com/keygate/keygate/internal/snapshot"
)

// maxSmall is the longest body of a request that may be the only one at a half-open target (targets.md, section 3).
const maxSmall = 64 << 10

// split sets where an admitted request goes, if its route or its gateway has a split.
func (d *decision) split(g *snapshot.Gateway, r *snapshot.Route) {
	split := g.SplitOf(r)
	if split == nil {
		return
	}
	v := d.verdict
	side := g.SideOf(split, r, &snapshot.SplitRequest{
		Caller: v.Caller, Client: d.req.Client, Header: d.req.Header, Now: time.Duration(d.now.Mono), Small: isSmall(d.req), Bound: d.req.Bound,
	})
	v.Upstream, v.SideReason = side.Upstream, side.Why
}

// isSmall reports whether a request may be the only one at a half-open target.
func isSmall(req *Request) bool {
	switch req.Method {
	case "GET", "HEAD", "OPTIONS", "PUT", "DELETE":
		return req.Length >= 0 && req.Length <= maxSmall
	}
	return false
}
