package control

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// GatewayFilter selects gateways; "" does not filter.
type GatewayFilter struct {
	Query string // a part of the name, the hostname or a target's URL, whatever its case
}

// matches reports whether f selects g, which has its hostname.
func (f *GatewayFilter) matches(g *gateway.Gateway) bool {
	query := strings.ToLower(f.Query)
	texts := []string{g.Name, g.Hostname}
	for u := range g.AllUpstreams {
		for _, t := range u.AllTargets() {
			texts = append(texts, t.URL)
		}
	}
	return slices.ContainsFunc(texts, func(s string) bool {
		return strings.Contains(strings.ToLower(s), query)
	})
}

// Gateways lists the gateways of the account that f selects, newest first. With a filter, its time grows
// with the number of gateways.
func (s *Service) Gateways(ctx context.Context, actor *Actor, f GatewayFilter, p Page) ([]gateway.Gateway, error) {
	list := func(tx ReadTx, p Page) ([]gateway.Gateway, error) {
		all, err := tx.Gateways(ctx, actor.Account.ID, p)
		if err != nil {
			return nil, err
		}
		names := namesOfPlans(tx, actor)
		for i := range all {
			s.setHostname(&all[i])
			if err := names.put(ctx, all[i].DefaultPlanID, &all[i].DefaultPlan); err != nil {
				return nil, err
			}
		}
		return all, nil
	}
	if f == (GatewayFilter{}) {
		return read(ctx, s, actor, func(tx ReadTx) ([]gateway.Gateway, error) { return list(tx, p) })
	}
	return search(ctx, s, actor, func(tx ReadTx) ([]gateway.Gateway, error) {
		return selectPage(p, func(p Page) ([]gateway.Gateway, error) { return list(tx, p) },
			f.matches, func(g *gateway.Gateway) string { return g.ID })
	})
}

// Gateway returns one gateway.
func (s *Service) Gateway(ctx context.Context, actor *Actor, gatewayID string) (*gateway.Gateway, error) {
	return read(ctx, s, actor, func(tx ReadTx) (*gateway.Gateway, error) {
		return s.gateway(ctx, tx, actor, gatewayID)
	})
}

func (s *Service) gateway(ctx context.Context, tx ReadTx, actor *Actor, gatewayID string) (*gateway.Gateway, error) {
	g, err := tx.Gateway(ctx, actor.Account.ID, gatewayID)
	if err != nil {
		return nil, err
	}
	s.setHostname(g)
	return g, namesOfPlans(tx, actor).put(ctx, g.DefaultPlanID, &g.DefaultPlan)
}

// setDefaultPlan sets the identifier of the plan that g names as its default, if it did not have that plan before. If
// there is no such plan, the error is a validation error of default_plan.
func setDefaultPlan(ctx context.Context, tx PlanReader, before string, g *gateway.Gateway) error {
	switch g.DefaultPlan {
	case before:
		return nil
	case "":
		g.DefaultPlanID = ""
		return nil
	}
	p, err := planNamed(ctx, tx, g.AccountID, g.DefaultPlan, "default_plan")
	if err != nil {
		return err
	}
	g.DefaultPlanID = p.ID
	return nil
}

// setHostname sets the default hostname of a gateway without a hostname of its own. The stored
// default may be outdated, because the gateway domain may have changed.
func (s *Service) setHostname(g *gateway.Gateway) {
	if !g.HostGiven {
		g.Hostname = gateway.DefaultHostname(g.ID, s.cfg.GatewayDomain)
	}
}

// roomForGateway checks that the actor's account may have one more gateway. Otherwise the error is
// fault.Conflict.
func (s *Service) roomForGateway(ctx context.Context, tx GatewayReader, actor *Actor) error {
	most := cmp.Or(s.cfg.MaxAccountGateways, gateway.MaxAccountGateways)
	full, err := tx.HasGateways(ctx, actor.Account.ID, most)
	if err != nil || !full {
		return err
	}
	return fault.New(fault.Conflict, "the account has %d gateways, which is the most that it may have: delete one first", most)
}

// GatewayUpdate is what an update changes.
type GatewayUpdate struct {
	gateway.Patch
	// DefaultPlanID is the identifier of a plan, in place of DefaultPlan.
	DefaultPlanID Optional[string]
	// AllowDuplicate allows a name that another gateway of the account has.
	AllowDuplicate bool
}

// UpdateGateway changes the settings in p. If the origin of the upstream URL changes, the
// upstream headers and the client certificate with its key are dropped, unless p gives new ones.
func (s *Service) UpdateGateway(ctx context.Context, actor *Actor, gatewayID string, p GatewayUpdate, m Match) (*gateway.Gateway, error) {
	edit, err := s.readPatchOf(ctx, actor, p.DefaultPlanID, &p.Patch, false)
	if err != nil {
		return nil, err
	}
	unlock, err := s.lockTable(ctx, actor, gatewayID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if p.Patch.UpstreamHeaders.Present || p.Patch.KeyHeaders.Present || p.Patch.Upstreams.Present {
		if err := s.mayProtect(ctx, actor, gatewayID, edit.apply); err != nil {
			return nil, err
		}
	}
	return inTx(ctx, s, actor, func(w *work) (*gateway.Gateway, error) {
		before, err := s.gateway(ctx, w, actor, gatewayID)
		if err != nil {
			return nil, err
		}
		g := *before
		if err := edit.apply(&g); fault.CodeOf(err) == fault.Conflict {
			return nil, cmp.Or(require(m, before.Version), err)
		} else if err != nil {
			return nil, err
		}
		if err := setDefaultPlan(ctx, w, before.DefaultPlan, &g); err != nil {
			return nil, err
		}
		if err := checkIssuers(ctx, w, before, &g); err != nil {
			return nil, err
		}
		s.setHostname(&g)
		if err := checkCanary(before, &g); err != nil {
			return nil, err
		}
		if err := require(m, before.Version); err != nil {
			return nil, err
		}
		if before.Canary != nil && len(g.Requests.Split) > 0 && !g.Requests.Split.Equal(before.Requests.Split) {
			return nil, refuseSplit(before.Canary)
		}
		diff := gatewayDiff(before, &g)
		if len(diff) == 0 {
			return &g, nil
		}
		if g.Name != before.Name {
			g.SharesName = p.AllowDuplicate
		}
		if err := checkName(ctx, w, before.Name, &g, "name"); err != nil {
			return nil, err
		}
		if err := w.roomForUpstreams(ctx, before, &g); err != nil {
			return nil, err
		}
		if err := w.mayGrow(ctx); err != nil {
			return nil, err
		}
		g.Version = before.Version + 1
		if g.Default && !before.Default {
			if err := w.clearDefault(ctx); err != nil {
				return nil, err
			}
		}
		if err := w.UpdateGateway(ctx, &g); err != nil {
			return nil, err
		}
		if err := w.meetCertificate(ctx, before, &g); err != nil {
			return nil, err
		}
		if err := w.audit(ctx, audit.GatewayUpdate, g.ID, g.ID, diff); err != nil {
			return nil, err
		}
		if err := w.settingsChanged(ctx, &g); err != nil {
			return nil, err
		}
		return &g, w.canaryMeetsSettings(ctx, before, &g)
	})
}
