package control

import (
	"bytes"
	"context"

	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/snapshot"
)

// PushSpec replaces the gateway's whole route table by the operations of an OpenAPI document, as one
// revision. With dryRun, it only returns what would change.
func (s *Service) PushSpec(ctx context.Context, c *Caller, gatewayID string, content []byte, dryRun bool, m Match) (*PushResult, error) {
	doc, err := readSpec(content)
	if err != nil {
		return nil, err
	}
	return s.push(ctx, c, gatewayID, doc, dryRun, m)
}

// PushConfiguration does the same as PushSpec with a configuration file, which may also change
// settings of the gateway.
func (s *Service) PushConfiguration(ctx context.Context, c *Caller, gatewayID string, content []byte, dryRun bool, m Match) (*PushResult, error) {
	doc, err := s.readConfiguration(c, content)
	if err != nil {
		return nil, err
	}
	return s.push(ctx, c, gatewayID, doc, dryRun, m)
}

// Rollback creates a new revision with the content, routes and limits of the one with the given
// number.
func (s *Service) Rollback(ctx context.Context, c *Caller, gatewayID string, number int64, m Match) (*PushResult, error) {
	rev, err := s.Revision(ctx, c, gatewayID, number)
	if err != nil {
		return nil, err
	}
	doc, err := s.readRevision(c, rev)
	if err != nil {
		return nil, err
	}
	return s.push(ctx, c, gatewayID, doc, false, m)
}

// push pushes doc, which was parsed before the transaction because every other change waits for it.
func (s *Service) push(ctx context.Context, c *Caller, gatewayID string, doc *document, dryRun bool, m Match) (*PushResult, error) {
	if dryRun {
		return read(ctx, s, func(tx ReadTx) (*PushResult, error) {
			p, err := s.plan(ctx, tx, c, gatewayID, doc, m)
			if err != nil {
				return nil, err
			}
			return p.result(true), nil
		})
	}
	return inTx(ctx, s, c, func(w *work) (*PushResult, error) {
		p, err := s.plan(ctx, w, c, gatewayID, doc, m)
		if err != nil || p.idle {
			return p.result(false), err
		}
		return p.result(false), w.apply(ctx, p)
	})
}

// plan is what a push changes about a gateway.
type plan struct {
	doc    *document
	before *gateway.Gateway
	after  gateway.Gateway
	routes int // number of routes before
	delta  delta
	idle   bool // the content is the same, and nothing changes
}

func (s *Service) plan(ctx context.Context, tx ReadTx, c *Caller, gatewayID string, doc *document, m Match) (*plan, error) {
	before, err := s.gateway(ctx, tx, c, gatewayID)
	if err != nil {
		return nil, err
	}
	p := &plan{doc: doc, before: before, after: *before}
	if err := doc.edit.apply(&p.after); err != nil {
		return nil, err
	}
	if err := require(m, before.Version); err != nil {
		return nil, err
	}
	table, err := tx.RouteTable(ctx, gatewayID)
	if err != nil {
		return nil, err
	}
	p.routes = len(table)
	p.delta = deltaOf(table, doc, gatewayID, s.now())
	if err := s.roomFor(ctx, tx, c, len(p.delta.table)-len(table), doc.routesField()); err != nil {
		return nil, err
	}
	if before.Revision > 0 && p.delta.isEmpty() && len(gatewayDiff(before, &p.after)) == 0 {
		current, err := tx.Revision(ctx, gatewayID, before.Revision)
		if err != nil {
			return nil, err
		}
		p.idle = current.Kind == doc.kind && bytes.Equal(current.Content, doc.content)
	}
	p.after.Revision = before.Revision + 1
	p.after.Version = before.Version + 1
	return p, nil
}

func (p *plan) result(dryRun bool) *PushResult {
	if p == nil {
		return nil
	}
	r := &PushResult{
		Added:     routeChanges(p.delta.added, !dryRun),
		Removed:   routeChanges(p.delta.removed, true),
		Changed:   routeChanges(p.delta.changed, true),
		Unchanged: p.delta.unchanged,
		Warnings:  []string{},
	}
	if !dryRun && !p.idle {
		r.Revision = p.after.Revision
	}
	if p.doc.warnings != nil {
		r.Warnings = append(r.Warnings, p.doc.warnings(p.after.Upstream.URL)...)
	}
	return r
}

// apply carries out p and stores its audit record and event.
func (w *work) apply(ctx context.Context, p *plan) error {
	g := &p.after
	if err := w.UpdateGateway(ctx, g); err != nil {
		return err
	}
	if err := w.storeRevision(ctx, g, p.doc, p.delta); err != nil {
		return err
	}
	diff := gatewayDiff(p.before, g)
	diff["routes"] = [2]any{p.routes, len(p.delta.table)}
	if err := w.audit(ctx, p.doc.action(), g.ID, g.ID, diff); err != nil {
		return err
	}
	err := w.raise(ctx, event.GatewaySpecPushed, event.Push{
		GatewayID: g.ID,
		Revision:  g.Revision,
		Source:    string(p.doc.source(w.caller)),
		Added:     len(p.delta.added),
		Removed:   len(p.delta.removed),
		Changed:   len(p.delta.changed),
	})
	if err != nil {
		return err
	}
	return w.changed(ctx, snapshot.GatewayChange, g.ID)
}

// storeRevision stores the changed routes of d and the revision.
func (w *work) storeRevision(ctx context.Context, g *gateway.Gateway, doc *document, d delta) error {
	if gone := d.removed; len(gone) > 0 {
		ids := make([]string, len(gone))
		for i := range gone {
			ids[i] = gone[i].ID
		}
		if err := w.DeleteRoutes(ctx, g.ID, ids); err != nil {
			return err
		}
	}
	if err := w.UpdateRoutes(ctx, append(d.changed[:len(d.changed):len(d.changed)], d.moved...)); err != nil {
		return err
	}
	if err := w.InsertRoutes(ctx, d.added); err != nil {
		return err
	}
	return w.InsertRevision(ctx, &gateway.Revision{
		ID:        id.New(id.Revision),
		GatewayID: g.ID,
		Number:    g.Revision,
		Source:    doc.source(w.caller),
		Kind:      doc.kind,
		Author:    w.author(),
		CreatedAt: w.now,
		Added:     len(d.added),
		Removed:   len(d.removed),
		Changed:   len(d.changed),
		Content:   doc.content,
		Routes:    d.table,
	})
}

// author returns the author of a push: the owner of the calling key, or the key's name.
func (w *work) author() string {
	switch {
	case w.key == nil:
		return ""
	case w.key.Owner != "":
		return w.key.Owner
	default:
		return w.key.Name
	}
}
