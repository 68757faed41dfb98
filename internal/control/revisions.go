package control

import (
	"context"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// Spec returns the revision in force, whose Content is the OpenAPI document as
// it was received. It is fault.NotFound if the routes did not come from one.
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

// Configuration returns the gateway and its routes as they stand as a
// configuration file, whatever they came from.
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

// Revisions lists up to limit revisions with a number below before, newest
// first, without their Content and Routes; before is 0 for the first page.
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
