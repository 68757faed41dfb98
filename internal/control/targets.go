package control

import (
	"cmp"
	"context"
	"time"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/service"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/targetreport"
)

// Targets is what is known of the targets of upstreams at present.
type Targets interface {
	// Status returns the state of the targets of an upstream, node by node, and whether none of them is healthy on this node.
	Status(ctx context.Context, n balance.Name) (list []targetreport.NodeReport, allUnhealthy bool, err error)
	// InFlight returns what may be in flight at a target, by node, once the change with the number has taken it away: the number of
	// requests, or nil for a node that has not reported since that change.
	InFlight(ctx context.Context, n balance.Name, url string, number int64) (map[string]*int64, error)
	// TakesPart reports whether a target of an upstream does not drain, by the configuration in force on this node.
	TakesPart(n balance.Name, url string) bool
}

// UpstreamStatus is the state of the targets of an upstream (targets.md, section 3).
type UpstreamStatus struct {
	// AllUnhealthy is set if requests go to all targets, because none of them is healthy on this node.
	AllUnhealthy bool
	// Targets are in the order of the upstream's, by address and node.
	Targets []targetreport.NodeReport
}

func (u *NamedUpstream) balanceName() balance.Name {
	return balance.Name{Account: u.Gateway.AccountID, Gateway: u.Gateway.ID, Upstream: u.FullName()}
}

// upstreamStatus returns the state of the targets of u. It is nil if this server does not know it.
func (s *Service) upstreamStatus(ctx context.Context, u *NamedUpstream) (*UpstreamStatus, error) {
	if s.cfg.Targets == nil {
		return nil, nil
	}
	list, allUnhealthy, err := s.cfg.Targets.Status(ctx, u.balanceName())
	if err != nil {
		return nil, err
	}
	var urls []string
	for _, t := range u.AllTargets() {
		urls = append(urls, t.URL)
	}
	targetreport.ByTarget(list, urls)
	return &UpstreamStatus{allUnhealthy, list}, nil
}

// drainPoll is how often AwaitDrained looks what is in flight.
const drainPoll = 500 * time.Millisecond

// AwaitDrained waits until nothing is in flight any more, on any node, at the target that an operation has taken away: PatchTarget
// or DeleteTarget, which has returned u. Its Receipt is in ctx. If that is not so within the given time, it returns the nodes
// on which requests may be in flight: how many, or nil if the node has not reported since. It ends with an error if check returns
// one, which is called about twice a second, with ctx, and with fault.Conflict if the target takes part again.
func (s *Service) AwaitDrained(ctx context.Context, u *NamedUpstream, within time.Duration, check func() error) (open map[string]*int64, err error) {
	if s.cfg.Targets == nil {
		return nil, nil
	}
	var number int64
	if receipt, _ := ctx.Value(receiptKey{}).(*Receipt); receipt != nil {
		number = receipt.at.Number
	}
	n, url := u.balanceName(), u.Target
	waiting, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		if err := check(); err != nil {
			return nil, err
		}
		if s.cfg.Targets.TakesPart(n, url) {
			return nil, fault.New(fault.Conflict, "the target takes part again: another call has ended the drain or added the target anew")
		}
		now, failed := s.cfg.Targets.InFlight(waiting, n, url, number)
		switch {
		case failed == nil && len(now) == 0:
			return nil, nil
		case failed == nil:
			open, err = now, nil
		case open == nil: // else what was read before stands
			err = &fault.Error{Code: fault.Unavailable, Message: "the change is in force, but this server could not learn what is in flight at the target: repeat the call to wait again", Err: failed}
		}
		if !service.Wait(waiting, drainPoll) {
			return open, cmp.Or(ctx.Err(), err)
		}
	}
}

// ReturnTarget ends the ejections of a target on every node (targets.md, section 3), and returns its upstream. If it is ejected
// nowhere, nothing else happens.
func (s *Service) ReturnTarget(ctx context.Context, actor *Actor, gatewayID, name, url string) (*NamedUpstream, error) {
	return inTx(ctx, s, actor, func(w *work) (*NamedUpstream, error) {
		g, err := s.gateway(ctx, w, actor, gatewayID)
		if err != nil {
			return nil, err
		}
		u, err := upstreamOf(g, name)
		if err != nil {
			return nil, err
		}
		at, err := u.targetAt(url)
		if err != nil {
			return nil, err
		}
		given := u.AllTargets()[at].URL
		if err := w.changed(ctx, snapshot.ReturnChange, snapshot.ReturnChangeID(u.balanceName(), given)); err != nil {
			return nil, err
		}
		return u, w.audit(ctx, audit.TargetReturn, g.ID, g.ID, audit.Diff{"upstream": {nil, name}, "target": {nil, given}})
	})
}

// targetAt returns the index of the target with a URL. If there is none, the error is fault.NotFound.
func (u *NamedUpstream) targetAt(url string) (int, error) {
	at := u.FindTarget(url)
	if at < 0 {
		return 0, fault.New(fault.NotFound, "the upstream %s has no target with this URL: list its targets", u.FullName())
	}
	return at, nil
}
