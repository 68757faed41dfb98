package control

import (
	"context"
	"fmt"
	"slices"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/canary"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// RunningCanaries returns canaries that are judged, in the order of their identifiers, after one of them.
func (s *Service) RunningCanaries(ctx context.Context, after string, limit int) ([]canary.Canary, error) {
	return view(ctx, s, func(tx ReadTx) ([]canary.Canary, error) { return tx.RunningCanaries(ctx, after, limit) })
}

// JudgeCanary stores what the present step, with its number, has counted while it ran so long, and does what d says: nothing,
// advance, abort, pause, or what follows after the last step. A canary that does not run that step any more, and a process that
// does not lead any more, are fault.Conflict; a canary that is gone is fault.NotFound. Then nothing is changed.
func (s *Service) JudgeCanary(ctx context.Context, canaryID string, number int, lead canary.Lead, p canary.Progress, ran canary.Ran, d canary.Decision) error {
	present := func(tx ReadTx) (*canary.Canary, error) {
		switch now, err := tx.CanaryLead(ctx); {
		case err != nil:
			return nil, err
		case now != lead:
			return nil, fault.New(fault.Conflict, "another process judges canaries now")
		}
		c, err := tx.CanaryByID(ctx, canaryID)
		if err == nil && (c.State != canary.Running || c.Number != number) {
			return nil, fault.New(fault.Conflict, "the canary does not run this step any more")
		}
		return c, err
	}
	counted := func(c *canary.Canary) {
		c.Progress = slices.Clone(c.Progress)
		of := &c.Progress[len(c.Progress)-1]
		of.Next, of.Other = p.Next, p.Other
		c.Ran, c.Since = ran.For, ran.Until // what the judgement takes is time of the step as well
	}
	if d.Action == canary.Wait { // the configuration does not change, so no node waits for another one
		return s.cfg.Store.Update(ctx, func(tx Tx) error {
			c, err := present(tx)
			if err != nil {
				return err
			}
			counted(c)
			c.Explanation = d.Explanation
			return tx.UpdateCanary(ctx, c)
		})
	}
	of, err := view(ctx, s, func(tx ReadTx) (*account.Account, error) {
		c, err := present(tx)
		if err != nil {
			return nil, err
		}
		return existing(ctx, tx, c.AccountID)
	})
	if err != nil {
		return err
	}
	actor := trusted(CanaryActor, of)
	_, err = inTxOnly(ctx, s, actor, func(w *work) (*canary.Canary, error) {
		c, err := present(w)
		if err != nil {
			return nil, err
		}
		g, err := w.Gateway(ctx, c.AccountID, c.GatewayID)
		if err != nil {
			return nil, err
		}
		counted(c)
		return c, w.carryOut(ctx, g, c, d)
	})
	return err
}

// carryOut carries out a decision other than canary.Wait.
func (w *work) carryOut(ctx context.Context, g *gateway.Gateway, c *canary.Canary, d canary.Decision) error {
	switch {
	case d.Action == canary.Abort:
		return w.abortCanary(ctx, g, c, d.Explanation)
	case d.Action == canary.Pause:
		return w.pauseCanary(ctx, g, c, d.Reason+": "+d.Explanation)
	case !c.Last():
		return w.advanceCanary(ctx, g, c, d.Explanation)
	case c.Plan.Promote:
		err := w.promoteCanary(ctx, g, c, d.Explanation)
		if fault.CodeOf(err) == fault.Conflict { // no route is left
			return w.pauseCanary(ctx, g, c, fault.MessageOf(err))
		}
		return err
	}
	before := *c
	c.State, c.Number = canary.Held, c.Number+1
	c.Explanation = fmt.Sprintf("held at %s %% after the last step: %s. Promote or abort it", c.Weight(), d.Explanation)
	if err := w.storeCanary(ctx, g, &before, c, audit.CanaryAdvance); err != nil {
		return err
	}
	return w.raiseCanary(ctx, event.CanaryAdvanced, c, c.Weight())
}

// advanceCanary begins the next step of a canary.
func (w *work) advanceCanary(ctx context.Context, g *gateway.Gateway, c *canary.Canary, figures string) error {
	before := *c
	c.Advance(w.now)
	c.Explanation = fmt.Sprintf("%s %% of the callers go to %s. At %s %%: %s", c.Weight(), c.Plan.Upstream, before.Weight(), figures)
	if err := w.storeCanary(ctx, g, &before, c, audit.CanaryAdvance); err != nil {
		return err
	}
	return w.raiseCanary(ctx, event.CanaryAdvanced, c, c.Weight())
}
