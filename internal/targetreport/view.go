package targetreport

import (
	"cmp"
	"context"
	"slices"

	"github.com/keygate/keygate/internal/balance"
)

// MaxStatus is how many entries a View has of an upstream at most.
const MaxStatus = 2560

// ViewConfig configures a View. Node, Fleet and Clock are required.
type ViewConfig struct {
	Node  string // name of this node
	Fleet *balance.Fleet
	Clock Clock
	// Serves is set if this node has a data plane.
	Serves bool
	// Lone returns what counts the only target of an upstream, or nil. Nil means that no upstream has one.
	Lone func(balance.Name) *balance.Lone
	// Store has the reports of other nodes, and Claimant names the present lease of this one. A nil Store means that there are no
	// others.
	Store    Store
	Claimant func() string
}

// View is what is known of targets at present, on all nodes. It is safe for concurrent use.
type View struct{ cfg ViewConfig }

// NewView returns a View.
func NewView(cfg ViewConfig) *View { return &View{cfg} }

// Status returns the state of the targets of an upstream: on this node as it is now, and on the others what they have reported.
// At most MaxStatus entries are returned, those of this node first. allUnhealthy is what balance.Upstream.AllUnhealthy returns here.
func (v *View) Status(ctx context.Context, n balance.Name) (list []NodeReport, allUnhealthy bool, err error) {
	if v.cfg.Serves {
		now := v.cfg.Clock.now()
		for _, s := range v.own(&now, n) {
			list = append(list, NodeReport{v.cfg.Node, now.of(n, &s)})
		}
		allUnhealthy = v.cfg.Fleet.AllUnhealthy(now.mono, n)
	}
	list = list[:min(len(list), MaxStatus)]
	if v.cfg.Store == nil {
		return list, allUnhealthy, nil
	}
	others, err := v.cfg.Store.TargetReports(ctx, n, v.cfg.Claimant(), MaxStatus-len(list))
	return append(list, others...), allUnhealthy, err
}

// own returns the state of the targets on this node, the only one of an upstream included.
func (v *View) own(now *reporting, n balance.Name) []balance.Status {
	list := v.cfg.Fleet.ObserveOne(now.mono, n)
	if v.cfg.Lone == nil {
		return list
	}
	lone := v.cfg.Lone(n)
	if lone == nil {
		return list
	}
	s := lone.Status()
	at := slices.IndexFunc(list, func(of balance.Status) bool { return of.URL == s.URL && of.Target == nil })
	switch {
	case at >= 0 && s.Draining: // it is in the list
		return list
	case at >= 0: // the same target was the only one before, and has requests in flight since then
		s.InFlight += list[at].InFlight
		s.Own += list[at].Own
		s.Requests += list[at].Requests
		list = slices.Delete(list, at, at+1)
	}
	return slices.Insert(list, 0, s)
}

// InFlight returns what may be in flight at a target of an upstream, by node, once the change with the number has taken it away: the
// number of requests, or nil for a node that has not reported since that change.
func (v *View) InFlight(ctx context.Context, n balance.Name, url string, number int64) (map[string]*int64, error) {
	open := map[string]*int64{}
	if v.cfg.Serves {
		if own := v.cfg.Fleet.InFlight(v.cfg.Clock.Mono(), n, url); own > 0 {
			open[v.cfg.Node] = &own
		}
	}
	if v.cfg.Store == nil {
		return open, nil
	}
	self := v.cfg.Claimant()
	flights, err := v.cfg.Store.TargetFlights(ctx, n, url)
	if err != nil {
		return nil, err
	}
	for i := range flights {
		switch f := &flights[i]; {
		case f.Claimant == self:
		case f.Number < number, f.LeftOut && f.InFlight == 0:
			open[f.Node] = nil
		case f.InFlight > 0:
			open[f.Node] = &f.InFlight
		}
	}
	return open, nil
}

// ByTarget orders reports by the order of the targets of an upstream, then by address and node. Targets that it does not have
// any more come last.
func ByTarget(list []NodeReport, urls []string) {
	index := map[string]int{}
	for i, url := range urls {
		index[url] = i + 1
	}
	at := func(r *NodeReport) int { return cmp.Or(index[r.URL], len(urls)+1) }
	slices.SortStableFunc(list, func(a, b NodeReport) int {
		return cmp.Or(cmp.Compare(at(&a), at(&b)), cmp.Compare(a.URL, b.URL), cmp.Compare(a.Address, b.Address), cmp.Compare(a.Node, b.Node))
	})
}
