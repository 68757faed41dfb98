package control

import (
	"context"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// Spec returns the current revision, whose Content is the OpenAPI document as received. If the
// routes did not come from an OpenAPI document, the error is fault.NotFound.
func (s *Service) Spec(ctx context.Context, c *Caller, gatewayID string) (*gateway.Revision, error) {
	return read(ctx, s, func(tx ReadTx) (*gateway.Revision, error) {
		g, err := tx.Gateway(ctx, c.Account.ID, gatewayID)
		if err != nil {
			return nil, err
		}
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
func (s *Service) Configuration(ctx context.Context, c *Caller, gatewayID string) ([]byte, error) {
	return read(ctx, s, func(tx ReadTx) ([]byte, error) {
		g, err := s.gateway(ctx, tx, c, gatewayID)
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
func (s *Service) Revisions(ctx context.Context, c *Caller, gatewayID string, limit int, before int64) ([]gateway.Revision, error) {
	return read(ctx, s, func(tx ReadTx) ([]gateway.Revision, error) {
		if _, err := tx.Gateway(ctx, c.Account.ID, gatewayID); err != nil {
			return nil, err
		}
		return tx.Revisions(ctx, gatewayID, limit, before)
	})
}

// Revision returns one revision.
func (s *Service) Revision(ctx context.Context, c *Caller, gatewayID string, number int64) (*gateway.Revision, error) {
	return read(ctx, s, func(tx ReadTx) (*gateway.Revision, error) {
		if _, err := tx.Gateway(ctx, c.Account.ID, gatewayID); err != nil {
			return nil, err
		}
		return tx.Revision(ctx, gatewayID, number)
	})
}
