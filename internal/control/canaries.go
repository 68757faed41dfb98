package control

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/canary"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// Canaries lists the canaries of a gateway, newest first.
func (s *Service) Canaries(ctx context.Context, actor *Actor, gatewayID string, p Page) ([]canary.Canary, error) {
	return readOf(ctx, s, actor, gatewayID, func(tx ReadTx, _ *gateway.Gateway) ([]canary.Canary, error) {
		return tx.Canaries(ctx, gatewayID, p)
	})
}

// Canary returns one canary.
func (s *Service) Canary(ctx context.Context, actor *Actor, gatewayID, canaryID string) (*canary.Canary, error) {
	return readOf(ctx, s, actor, gatewayID, func(tx ReadTx, _ *gateway.Gateway) (*canary.Canary, error) {
		return tx.Canary(ctx, actor.Account.ID, gatewayID, canaryID)
	})
}

// PauseCanary pauses a canary that runs: its callers stay on their sides, and nothing is counted. Another state is
// fault.Conflict.
func (s *Service) PauseCanary(ctx context.Context, actor *Actor, gatewayID, canaryID string, m Match) (*canary.Canary, error) {
	return s.changeCanary(ctx, actor, gatewayID, canaryID, m, func(w *work, g *gateway.Gateway, c *canary.Canary) error {
		if c.State != canary.Running {
			return notIn(c, canary.Running)
		}
		return w.pauseCanary(ctx, g, c, "paused by hand")
	})
}

// ResumeCanary goes on with the step of a paused canary; one that has all callers is held again, with the lines to commit. Routes of
// it that are gone, or that have a split or another upstream now, are left out. If none is left, or the canary is in another state,
// the error is fault.Conflict.
func (s *Service) ResumeCanary(ctx context.Context, actor *Actor, gatewayID, canaryID string, m Match) (*canary.Canary, error) {
	return s.changeCanary(ctx, actor, gatewayID, canaryID, m, func(w *work, g *gateway.Gateway, c *canary.Canary) error {
		if c.State != canary.Paused {
			return notIn(c, canary.Paused)
		}
		if !c.Whole() {
			if err := w.roomToRun(ctx); err != nil {
				return err
			}
		}
		routes, err := w.routesOfCanary(ctx, g, c)
		if err != nil {
			return err
		}
		before := *c
		why := "resumed"
		if gone := len(c.Plan.Routes) - len(routes); gone > 0 {
			why += fmt.Sprintf(", without %d of its routes, which are deleted or have a split or another upstream now", gone)
		}
		c.Plan.Routes = nil
		for i := range routes {
			c.Plan.Routes = append(c.Plan.Routes, routes[i].ID)
		}
		slices.Sort(c.Plan.Routes)
		if c.Whole() {
			if err := w.awaitCommit(ctx, g, c, routes, why); err != nil {
				return err
			}
		} else {
			c.Explanation = why
			c.Resume(w.now)
		}
		return w.storeCanary(ctx, g, &before, c, audit.CanaryResume)
	})
}

// AbortCanary aborts a canary: all callers go to the upstream of the routes again. One that has ended is fault.Conflict.
func (s *Service) AbortCanary(ctx context.Context, actor *Actor, gatewayID, canaryID string, m Match) (*canary.Canary, error) {
	return s.changeCanary(Urgent(ctx), actor, gatewayID, canaryID, m, func(w *work, g *gateway.Gateway, c *canary.Canary) error {
		if c.State.Done() {
			return notIn(c, canary.Running, canary.Paused, canary.Held)
		}
		return w.abortCanary(ctx, g, c, "aborted by hand")
	})
}

// PromoteCanary gives the routes of a canary its upstream, before its last step has ended. If the routes come from a repository or a
// file, which would take that back, the canary is held at 100 % with the lines to commit instead. One that has ended, or is held
// for that reason, is fault.Conflict.
func (s *Service) PromoteCanary(ctx context.Context, actor *Actor, gatewayID, canaryID string, m Match) (*canary.Canary, error) {
	unlock, err := s.lockTable(ctx, actor, gatewayID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return s.changeCanary(ctx, actor, gatewayID, canaryID, m, func(w *work, g *gateway.Gateway, c *canary.Canary) error {
		if c.State.Done() {
			return notIn(c, canary.Running, canary.Paused, canary.Held)
		}
		held := c.State == canary.Held && c.Whole()
		if err := w.promoteCanary(ctx, g, c, "by hand"); err != nil {
			return err
		}
		if held && c.State == canary.Held {
			return fault.New(fault.Conflict, "the canary waits at 100 %% for a push of its lines, because its routes come from a repository or a file: commit them, or abort it")
		}
		return nil
	})
}

// changeCanary changes a canary as change does.
func (s *Service) changeCanary(ctx context.Context, actor *Actor, gatewayID, canaryID string, m Match, change func(w *work, g *gateway.Gateway, c *canary.Canary) error) (*canary.Canary, error) {
	return inTx(ctx, s, actor, func(w *work) (*canary.Canary, error) {
		g, err := w.Gateway(ctx, actor.Account.ID, gatewayID)
		if err != nil {
			return nil, err
		}
		c, err := w.Canary(ctx, actor.Account.ID, gatewayID, canaryID)
		if err != nil {
			return nil, err
		}
		if err := require(m, c.Version); err != nil {
			return nil, err
		}
		return c, change(w, g, c)
	})
}

// notIn returns fault.Conflict for a canary that is in none of the states that a call needs.
func notIn(c *canary.Canary, needed ...canary.State) error {
	names := make([]string, len(needed))
	for i, s := range needed {
		names[i] = string(s)
	}
	return fault.New(fault.Conflict, "the canary is %s: the call needs one that is %s", c.State, strings.Join(names, " or "))
}

// storeCanary stores c in place of before, with its share and an audit record.
func (w *work) storeCanary(ctx context.Context, g *gateway.Gateway, before, c *canary.Canary, a audit.Action) error {
	c.Version = before.Version + 1
	if c.State.Done() {
		c.EndedAt = w.now
	}
	if err := w.UpdateCanary(ctx, c); err != nil {
		return err
	}
	diff := differ(canaryFields(before), canaryFields(c))
	if w.actor.Kind == CanaryActor {
		diff["actor"] = [2]any{nil, string(CanaryActor)}
	}
	if err := w.audit(ctx, a, c.ID, g.ID, diff); err != nil {
		return err
	}
	return w.setShare(ctx, g, c)
}

// setShare puts the share of a canary in force. The ETag of the gateway stays.
func (w *work) setShare(ctx context.Context, g *gateway.Gateway, c *canary.Canary) error {
	if err := w.SetCanaryShare(ctx, c.AccountID, c.GatewayID, c.Share()); err != nil {
		return err
	}
	return w.settingsChanged(ctx, g)
}

// canaryFields returns a canary as the audit log shows it.
func canaryFields(c *canary.Canary) fields {
	f := fields{"upstream": c.Plan.Upstream, "routes": len(c.Plan.Routes), "state": string(c.State), "step": c.Step + 1, "weight": nil, "explanation": c.Explanation}
	if !c.State.Done() {
		f["weight"] = c.Weight()
	}
	return f
}

// raiseCanary raises an event of a canary. weight is that of before for one that has ended.
func (w *work) raiseCanary(ctx context.Context, t event.Type, c *canary.Canary, weight gateway.Percent) error {
	return w.raise(ctx, t, event.Canary{CanaryID: c.ID, GatewayID: c.GatewayID, Upstream: c.Plan.Upstream, Step: c.Step + 1, Weight: float64(weight) / 100, Explanation: c.Explanation})
}

// pauseCanary pauses a canary that runs.
func (w *work) pauseCanary(ctx context.Context, g *gateway.Gateway, c *canary.Canary, why string) error {
	before := *c
	c.Pause(w.now)
	c.Explanation = why
	if err := w.storeCanary(ctx, g, &before, c, audit.CanaryPause); err != nil {
		return err
	}
	return w.raiseCanary(ctx, event.CanaryPaused, c, c.Weight())
}

// abortCanary aborts a canary that has not ended.
func (w *work) abortCanary(ctx context.Context, g *gateway.Gateway, c *canary.Canary, why string) error {
	before := *c
	c.State, c.Explanation, c.Lines = canary.Aborted, why, nil
	if err := w.storeCanary(ctx, g, &before, c, audit.CanaryAbort); err != nil {
		return err
	}
	return w.raiseCanary(ctx, event.CanaryAborted, c, before.Weight())
}

// fewRoutes is up to how many routes are read, and are recorded, one by one.
const fewRoutes = 50

// routesOfCanary returns the routes of a canary that are still there, have no split, and have the upstream that they had. If there
// are none, the error is fault.Conflict.
func (w *work) routesOfCanary(ctx context.Context, g *gateway.Gateway, c *canary.Canary) (routes []gateway.Route, err error) {
	keep := func(r *gateway.Route) {
		if upstreamName(r) == c.Plan.Other && len(g.SplitOf(r.Split)) == 0 {
			routes = append(routes, *r)
		}
	}
	if len(c.Plan.Routes) > fewRoutes {
		table, err := w.RouteTable(ctx, g.ID)
		if err != nil {
			return nil, err
		}
		for i := range table {
			if _, is := slices.BinarySearch(c.Plan.Routes, table[i].ID); is {
				keep(&table[i])
			}
		}
	} else {
		for _, routeID := range c.Plan.Routes {
			r, err := w.Route(ctx, g.ID, routeID)
			if fault.CodeOf(err) == fault.NotFound {
				continue
			}
			if err != nil {
				return nil, err
			}
			keep(r)
		}
	}
	if len(routes) == 0 {
		return nil, fault.New(fault.Conflict, "no route of the canary is left that has the upstream %s and no split: abort it", c.Plan.Other)
	}
	return routes, nil
}

// promoteCanary gives the routes of a canary its upstream, or holds it at 100 % if its routes come from a repository or a file.
func (w *work) promoteCanary(ctx context.Context, g *gateway.Gateway, c *canary.Canary, why string) error {
	routes, err := w.routesOfCanary(ctx, g, c)
	if err != nil {
		return err
	}
	switch kind, err := w.committedAs(ctx, g, routes); {
	case err != nil:
		return err
	case kind != "":
		return w.holdForCommit(ctx, g, c, routes, why)
	}
	before := *c
	c.State, c.Explanation, c.Lines = canary.Promoted, fmt.Sprintf("promoted: %s the upstream %s now; %s", routesHave(len(routes)), c.Plan.Upstream, why), nil
	if err := w.moveRoutes(ctx, g, c, routes); err != nil {
		return err
	}
	if err := w.storeCanary(ctx, g, &before, c, audit.CanaryPromote); err != nil {
		return err
	}
	return w.raiseCanary(ctx, event.CanaryPromoted, c, before.Weight())
}

func routesHave(n int) string {
	if n == 1 {
		return "the route has"
	}
	return numberOfRoutes(n) + " have"
}

// moveRoutes gives routes the upstream of a canary. If they are many, the audit log has them as a number, as it has those of a
// push.
func (w *work) moveRoutes(ctx context.Context, g *gateway.Gateway, c *canary.Canary, routes []gateway.Route) error {
	before := slices.Clone(routes)
	for i := range routes {
		routes[i].Upstream = gateway.StoredUpstreamName(c.Plan.Upstream)
		routes[i].Version++
	}
	if err := w.UpdateRoutes(ctx, routes); err != nil {
		return err
	}
	if len(routes) > fewRoutes {
		return w.gatewayChanged(ctx, g)
	}
	for i := range routes {
		r := &routes[i]
		diff := routeDiff(&before[i], r)
		diff["canary"] = [2]any{nil, c.ID}
		if err := w.audit(ctx, audit.RouteUpdate, r.ID, g.ID, diff); err != nil {
			return err
		}
		if err := w.routeChanged(ctx, r); err != nil {
			return err
		}
	}
	return nil
}
