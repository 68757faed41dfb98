package rows

import (
	"context"

	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/snapshot"
)

// LastSeq implements snapshot.ChangeLog.
func (s *Store) LastSeq(ctx context.Context) (int64, error) {
	return read(ctx, s, DataPlane, func(t *Reader) (int64, error) {
		_, last, err := t.ChangeBounds(ctx)
		return last, err
	})
}

// Changes implements snapshot.ChangeLog.
func (s *Store) Changes(ctx context.Context, seq int64, limit int) (changes []snapshot.Change, complete bool, err error) {
	err = s.engine.Read(ctx, DataPlane, func(t *Reader) error {
		changes, complete, err = t.Changes(ctx, seq, limit)
		return err
	})
	return changes, complete, err
}

// EachGateway implements snapshot.GatewaySource. f must not wait for another reading call of
// the store.
func (s *Store) EachGateway(ctx context.Context, f func(*gateway.Gateway, []gateway.Route) error) error {
	return s.engine.Read(ctx, Streams, func(t *Reader) error {
		gateways, err := t.SelectGateways(ctx, `ORDER BY id`)
		if err != nil {
			return s.engine.OfRecord(err)
		}
		for i := range gateways {
			routes, err := t.RouteTable(ctx, gateways[i].ID)
			if err != nil {
				return s.engine.OfRecord(err)
			}
			if err := f(&gateways[i], routes); err != nil {
				return err
			}
		}
		return nil
	})
}

// GatewayByID implements snapshot.GatewaySource.
func (s *Store) GatewayByID(ctx context.Context, gatewayID string) (g *gateway.Gateway, routes []gateway.Route, err error) {
	err = s.engine.Read(ctx, DataPlane, func(t *Reader) error {
		if g, err = t.SelectGateway(ctx, `WHERE id = $1`, gatewayID); err != nil {
			return err
		}
		routes, err = t.RouteTable(ctx, gatewayID)
		return err
	})
	return g, routes, s.engine.OfRecord(err)
}

// GatewayIDs implements snapshot.GatewaySource.
func (s *Store) GatewayIDs(ctx context.Context) ([]string, error) {
	return read(ctx, s, DataPlane, func(t *Reader) ([]string, error) {
		return t.Texts(ctx, "read gateways", `SELECT id FROM gateways ORDER BY id`)
	})
}

// HasGateway implements snapshot.GatewaySource. Keys wait for it.
func (s *Store) HasGateway(ctx context.Context, gatewayID string) (bool, error) {
	return read(ctx, s, Changed, func(t *Reader) (bool, error) {
		return t.Exists(ctx, "find a gateway", `SELECT 1 FROM gateways WHERE id = $1`, gatewayID)
	})
}

// RouteCount implements snapshot.GatewaySource.
func (s *Store) RouteCount(ctx context.Context, gatewayID string) (n int, err error) {
	err = s.engine.Read(ctx, DataPlane, func(t *Reader) error {
		return t.Query(ctx, "count routes", `SELECT route_count FROM gateways WHERE id = $1`, []any{gatewayID}, func(r *Row) error {
			return Decoded(r.Scan(&n))
		})
	})
	return n, s.engine.OfRecord(err)
}

// GatewayDelta implements snapshot.GatewaySource.
func (s *Store) GatewayDelta(ctx context.Context, gatewayID string, routeIDs []string, after int64) (*snapshot.GatewayDelta, error) {
	return read(ctx, s, DataPlane, func(t *Reader) (*snapshot.GatewayDelta, error) {
		return t.gatewayDelta(ctx, gatewayID, routeIDs, after, s.engine.OfRecord)
	})
}
