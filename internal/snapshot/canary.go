package snapshot

import (
	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
)

// Canary is the part of a gateway's traffic that a canary sends to its upstream (targets.md, section 8). It is immutable, and
// small: a canary has at most canary.MaxRoutes routes.
type Canary struct {
	ID     string
	UUID   [16]byte // of ID
	Step   int      // gateway.CanaryShare.Step
	Counts bool     // the requests of both sides are counted

	upstream string
	split    balance.Split
	routes   map[[16]byte]struct{}
	next     [2]string // why a request goes to the upstream, by the key and by the address of the caller
	other    [2]string // and why it does not
}

// CanarySide is where a request to a route of a canary goes.
type CanarySide struct {
	Side
	Next   bool   // to the upstream of the canary
	Caller uint64 // the Caller.PrincipalHash that has decided
}

// compileCanary returns the compiled form of a share; nil for nil.
func compileCanary(s *gateway.CanaryShare) *Canary {
	if s == nil {
		return nil
	}
	c := &Canary{
		ID: s.ID, Step: s.Step, Counts: s.Counts, upstream: s.Upstream, routes: make(map[[16]byte]struct{}, len(s.Routes)),
		split: balance.Split{Share: balance.Share(s.Weight), Sticky: true},
	}
	c.UUID, _ = id.Parse(id.Canary, s.ID)
	for _, routeID := range s.Routes {
		if u, ok := id.Parse(id.Route, routeID); ok {
			c.routes[u] = struct{}{}
		}
	}
	for by, of := range sharers {
		c.next[by], c.other[by] = sharesOf(of+", of canary "+s.ID, s.Weight)
	}
	return c
}

// CanaryOf returns the canary of a route, which has no split; nil for none.
func (s *Settings) CanaryOf(r *Route) *Canary {
	if s.canary == nil {
		return nil
	}
	if _, is := s.canary.routes[r.UUID]; !is || s.SplitOf(r) != nil {
		return nil
	}
	return s.canary
}

// CanarySideOf returns where a request to a route of a canary goes. It does not allocate.
func (s *Settings) CanarySideOf(c *Canary, r *Route, req *SplitRequest) CanarySide {
	caller, by := req.sharer()
	if c.split.Weighted(caller, 0) {
		return CanarySide{Side{s.named(c.upstream), c.next[by]}, true, caller}
	}
	return CanarySide{Side{s.UpstreamOf(r), c.other[by]}, false, caller}
}
