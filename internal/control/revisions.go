package control

import (
	"context"
	"math"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// Spec returns the current revision, whose Content is the OpenAPI document as received. If the
// routes did not come from an OpenAPI document, the error is fault.NotFound.
func (s *Service) Spec(ctx context.Context, actor *Actor, gatewayID string) (*gateway.Revision, error) {
	return readOf(ctx, s, actor, gatewayID, func(tx ReadTx, g *gateway.Gateway) (*gateway.Revision, error) {
		none := fault.New(fault.NotFound, "the routes of this gateway did not come from an OpenAPI document")
		if g.Revision == 0 {
			return nil, none
		}
		r, err := tx.Revision(ctx, gatewayID, g.Revision)
		if err != nil {
			return nil, err
		}
		if r.Kind != gateway.SpecDocument {
			return nil, none
		}
		return r, nil
	})
}

// Configuration returns the gateway and its current routes as a configuration file, wherever they
// came from.
func (s *Service) Configuration(ctx context.Context, actor *Actor, gatewayID string) ([]byte, error) {
	return read(ctx, s, actor, func(tx ReadTx) ([]byte, error) {
		g, err := s.gateway(ctx, tx, actor, gatewayID)
		if err != nil {
			return nil, err
		}
		table, err := tx.RouteTable(ctx, gatewayID)
		if err != nil {
			return nil, err
		}
		return gateway.Export(g, table).Encode(), nil
	})
}

// Revisions lists up to limit revisions with numbers less than before, newest first, without Content
// and Routes. before is 0 for the first page.
func (s *Service) Revisions(ctx context.Context, actor *Actor, gatewayID string, limit int, before int64) ([]gateway.Revision, error) {
	return readOf(ctx, s, actor, gatewayID, func(tx ReadTx, _ *gateway.Gateway) ([]gateway.Revision, error) {
		return tx.Revisions(ctx, gatewayID, limit, before)
	})
}

// Revision returns one revision, with its content and routes. If it was removed, the error is
// fault.NotFound and says how long revisions are kept.
func (s *Service) Revision(ctx context.Context, actor *Actor, gatewayID string, number int64) (*gateway.Revision, error) {
	return readOf(ctx, s, actor, gatewayID, func(tx ReadTx, g *gateway.Gateway) (*gateway.Revision, error) {
		return s.revision(ctx, tx, g, number)
	})
}

// RevisionRecord is Revision without content and routes, which may be large.
func (s *Service) RevisionRecord(ctx context.Context, actor *Actor, gatewayID string, number int64) (*gateway.Revision, error) {
	return readOf(ctx, s, actor, gatewayID, func(tx ReadTx, g *gateway.Gateway) (*gateway.Revision, error) {
		if number == math.MaxInt64 {
			return nil, s.noRevision(g, number)
		}
		list, err := tx.Revisions(ctx, gatewayID, 1, number+1)
		if err == nil && (len(list) == 0 || list[0].Number != number) {
			err = s.noRevision(g, number)
		}
		if err != nil {
			return nil, err
		}
		return &list[0], nil
	})
}

// revision is Revision for the gateway g.
func (s *Service) revision(ctx context.Context, tx RevisionReader, g *gateway.Gateway, number int64) (*gateway.Revision, error) {
	r, err := tx.Revision(ctx, g.ID, number)
	if fault.CodeOf(err) == fault.NotFound {
		err = s.noRevision(g, number)
	}
	return r, err
}

// noRevision returns the error for a revision of g that is not there.
func (s *Service) noRevision(g *gateway.Gateway, number int64) error {
	if g.Revision == 0 {
		return fault.New(fault.NotFound, "the gateway has no revisions: nothing was pushed to it yet")
	}
	if number < 1 || number > g.Revision {
		return fault.New(fault.NotFound, "the gateway has no revision %d: its last one is %d", number, g.Revision)
	}
	return fault.New(fault.NotFound, "revision %d is no longer kept: those of the last %d days are, and the newest %d of a gateway if they are more, as long as the revisions of the account take at most %s",
		number, int(revisionsKept.Hours()/24), newestRevisions, inMiB(s.cfg.Bounds.revisionBytes()))
}
