package control

import (
	"context"
	"runtime"

	"github.com/keygate/keygate/internal/gateway"
)

// CompareRevisions returns what differs between two revisions of a gateway, as if to had been pushed
// while from was in force. from may be 0 for the state before the first revision. Routes that were
// removed have the identifiers that they had in from, the others those of to. Revisions that do not
// exist, or are no longer kept, are fault.NotFound.
func (s *Service) CompareRevisions(ctx context.Context, c *Caller, gatewayID string, from, to int64) (*PushResult, error) {
	before, after := &gateway.Revision{}, &gateway.Revision{}
	err := s.cfg.Store.View(ctx, func(tx ReadTx) error {
		g, err := tx.Gateway(ctx, c.Account.ID, gatewayID)
		if err != nil {
			return err
		}
		if after, err = s.revision(ctx, tx, g, to); err != nil || from == 0 {
			return err
		}
		before, err = s.revision(ctx, tx, g, from)
		return err
	})
	if err != nil {
		return nil, err
	}
	release, err := s.heavy(ctx, len(before.Content)+len(after.Content))
	if err != nil {
		return nil, err
	}
	defer release()
	d := compareTables(before.Routes, after.Routes)
	return &PushResult{
		Added:     routeChanges(d.added, true),
		Removed:   routeChanges(d.removed, true),
		Changed:   routeChanges(d.changed, true),
		Unchanged: d.unchanged,
		Warnings:  []string{},
	}, nil
}

// compareTables returns how two route tables differ, without a new table.
func compareTables(before, after []gateway.Route) delta {
	remaining := make(map[string]*gateway.Route, len(before))
	for i := range before {
		remaining[routeKey(&before[i])] = &before[i]
	}
	var d delta
	for i := range after {
		if i%yieldEvery == 0 {
			runtime.Gosched()
		}
		r := &after[i]
		key := routeKey(r)
		was := remaining[key]
		delete(remaining, key)
		switch {
		case was == nil:
			d.added = append(d.added, *r)
		case was.RateLimit != r.RateLimit || was.Auth != r.Auth:
			d.changed = append(d.changed, *r)
		default:
			d.unchanged++
		}
	}
	for i := range before {
		if remaining[routeKey(&before[i])] != nil {
			d.removed = append(d.removed, before[i])
		}
	}
	return d
}
