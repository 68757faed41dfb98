package sqlite

import (
	"context"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
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
		_, last, err := t.ChangeBounds(ctx)
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
		return t.SelectAccounts(ctx, `WHERE state IN ('active', 'suspended') ORDER BY id`)
	})
}

// EachGateway implements snapshot.GatewaySource. f must not wait for another reading call of
// the store.
func (db *DB) EachGateway(ctx context.Context, f func(*gateway.Gateway, []gateway.Route) error) error {
	return view(ctx, db.source, func(t *readTx) error {
		return t.EachGateway(ctx, f, asItIs)
	})
}

// GatewayByID implements snapshot.GatewaySource.
func (db *DB) GatewayByID(ctx context.Context, gatewayID string) (g *gateway.Gateway, routes []gateway.Route, err error) {
	err = view(ctx, db.source, func(t *readTx) error {
		if g, err = t.SelectGateway(ctx, `WHERE id = ?`, gatewayID); err != nil {
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
		return t.Query(ctx, "find a gateway", `SELECT 1 FROM gateways WHERE id = ?`, []any{gatewayID}, func(*rows.Row) error {
			found = true
			return nil
		})
	})
	return found, err
}

// RouteCount implements snapshot.GatewaySource.
func (db *DB) RouteCount(ctx context.Context, gatewayID string) (n int, err error) {
	err = view(ctx, db.source, func(t *readTx) error {
		return t.Query(ctx, "count routes", `SELECT route_count FROM gateways WHERE id = ?`, []any{gatewayID}, func(r *rows.Row) error {
			return r.Scan(&n)
		})
	})
	return n, err
}

// asItIs returns an error of reading a record.
func asItIs(err error) error { return err }

// GatewayDelta implements snapshot.GatewaySource.
func (db *DB) GatewayDelta(ctx context.Context, gatewayID string, routeIDs []string, after int64) (*snapshot.GatewayDelta, error) {
	return read(ctx, db, func(t *readTx) (*snapshot.GatewayDelta, error) {
		return t.GatewayDelta(ctx, gatewayID, routeIDs, after, asItIs)
	})
}

// KeyByID implements snapshot.KeySource.
func (db *DB) KeyByID(ctx context.Context, keyID string) (*apikey.Key, error) {
	return read(ctx, db, func(t *readTx) (*apikey.Key, error) { return t.SelectKey(ctx, `WHERE id = ?`, keyID) })
}
