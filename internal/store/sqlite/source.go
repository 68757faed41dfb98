package sqlite

import (
	"context"
	"slices"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/store/rows"
)

var _ snapshot.Source = (*DB)(nil)

// read returns the value that f reads in a transaction.
func read[T any](ctx context.Context, db *DB, f func(*readTx) (T, error)) (v T, err error) {
	err = view(ctx, db.source, func(t *readTx) error {
		v, err = f(t)
		return err
	})
	return v, err
}

// LastSeq implements snapshot.ChangeLog.
func (db *DB) LastSeq(ctx context.Context) (int64, error) {
	return read(ctx, db, func(t *readTx) (int64, error) {
		_, last, err := t.changeBounds(ctx)
		return last, err
	})
}

// Settle implements control.Store: what can be read here is on the disk. Nobody asks for the number of an account's
// change, since there is one node.
func (db *DB) Settle(ctx context.Context, _ string) (p snapshot.Position, ofAccount int64, err error) {
	p.Number, err = db.LastSeq(ctx)
	return p, 0, err
}

// Changes implements snapshot.ChangeLog.
func (db *DB) Changes(ctx context.Context, seq int64, limit int) (changes []snapshot.Change, complete bool, err error) {
	err = view(ctx, db.source, func(t *readTx) error {
		changes, complete, err = t.Changes(ctx, seq, limit)
		return err
	})
	return changes, complete, err
}

// Accounts implements snapshot.Source.
func (db *DB) Accounts(ctx context.Context) ([]account.Account, error) {
	return read(ctx, db, func(t *readTx) ([]account.Account, error) {
		return t.accounts(ctx, `WHERE state IN ('active', 'suspended') ORDER BY id`)
	})
}

// EachGateway implements snapshot.GatewaySource. f must not wait for another reading call of
// the store.
func (db *DB) EachGateway(ctx context.Context, f func(*gateway.Gateway, []gateway.Route) error) error {
	return view(ctx, db.source, func(t *readTx) error {
		gateways, err := t.gateways(ctx, `ORDER BY id`)
		if err != nil {
			return err
		}
		for i := range gateways {
			routes, err := t.RouteTable(ctx, gateways[i].ID)
			if err != nil {
				return err
			}
			if err := f(&gateways[i], routes); err != nil {
				return err
			}
		}
		return nil
	})
}

// GatewayByID implements snapshot.GatewaySource.
func (db *DB) GatewayByID(ctx context.Context, gatewayID string) (g *gateway.Gateway, routes []gateway.Route, err error) {
	err = view(ctx, db.source, func(t *readTx) error {
		if g, err = t.gateway(ctx, `WHERE id = ?`, gatewayID); err != nil {
			return err
		}
		routes, err = t.RouteTable(ctx, gatewayID)
		return err
	})
	return g, routes, err
}

// GatewayIDs implements snapshot.GatewaySource.
func (db *DB) GatewayIDs(ctx context.Context) ([]string, error) {
	return read(ctx, db, func(t *readTx) ([]string, error) {
		return t.Texts(ctx, "read gateways", `SELECT id FROM gateways ORDER BY id`)
	})
}

// HasGateway implements snapshot.GatewaySource.
func (db *DB) HasGateway(ctx context.Context, gatewayID string) (found bool, err error) {
	err = view(ctx, db.source, func(t *readTx) error {
		return t.Query(ctx, "find a gateway", `SELECT 1 FROM gateways WHERE id = ?`, []any{gatewayID}, func(rows.Row) error {
			found = true
			return nil
		})
	})
	return found, err
}

// RouteCount implements snapshot.GatewaySource.
func (db *DB) RouteCount(ctx context.Context, gatewayID string) (n int, err error) {
	err = view(ctx, db.source, func(t *readTx) error {
		return t.Query(ctx, "count routes", `SELECT route_count FROM gateways WHERE id = ?`, []any{gatewayID}, func(r rows.Row) error {
			return r.Scan(&n)
		})
	})
	return n, err
}

// GatewayDelta implements snapshot.GatewaySource.
func (db *DB) GatewayDelta(ctx context.Context, gatewayID string, routeIDs []string, after int64) (*snapshot.GatewayDelta, error) {
	return read(ctx, db, func(t *readTx) (*snapshot.GatewayDelta, error) {
		g, err := t.gateway(ctx, `WHERE id = ?`, gatewayID)
		if err != nil {
			return nil, err
		}
		d := &snapshot.GatewayDelta{Gateway: g, RouteIDs: slices.Clone(routeIDs)}
		if err := t.newerChanges(ctx, d, after); err != nil || d.Whole {
			return d, err
		}
		for _, routeID := range d.RouteIDs {
			r, err := t.Route(ctx, gatewayID, routeID)
			if fault.CodeOf(err) == fault.NotFound {
				continue
			}
			if err != nil {
				return nil, err
			}
			d.Routes = append(d.Routes, *r)
		}
		return d, nil
	})
}

// newerChanges adds to d what the change log says of its gateway after an entry.
func (t *readTx) newerChanges(ctx context.Context, d *snapshot.GatewayDelta, after int64) error {
	trimmed, _, err := t.changeBounds(ctx)
	if err != nil {
		return err
	}
	d.Whole = after < trimmed
	known := map[string]bool{}
	for _, routeID := range d.RouteIDs {
		known[routeID] = true
	}
	return t.Query(ctx, "read changes", `SELECT seq, kind, record_id FROM changes WHERE seq > ? ORDER BY seq`, []any{after}, func(r rows.Row) error {
		var c snapshot.Change
		if err := r.Scan(&c.Seq, &c.Kind, &c.ID); err != nil {
			return err
		}
		gatewayID, routeID := c.Gateway()
		switch {
		case gatewayID != d.Gateway.ID:
		case c.Kind == snapshot.GatewayChange:
			d.Whole = true
		case routeID != "" && !known[routeID]:
			known[routeID] = true
			d.RouteIDs = append(d.RouteIDs, routeID)
		}
		return nil
	})
}

// KeyByID implements snapshot.KeySource.
func (db *DB) KeyByID(ctx context.Context, keyID string) (*apikey.Key, error) {
	return read(ctx, db, func(t *readTx) (*apikey.Key, error) { return t.key(ctx, `WHERE id = ?`, keyID) })
}
