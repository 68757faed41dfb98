package sqlite

import (
	"context"
	"database/sql"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/snapshot"
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

// DefaultGateway implements snapshot.GatewaySource.
func (db *DB) DefaultGateway(ctx context.Context) (gatewayID string, err error) {
	err = view(ctx, db.source, func(t *readTx) error {
		return t.rows(ctx, "find the default gateway", `SELECT id FROM gateways WHERE is_default = 1`, nil, func(r *sql.Rows) error {
			return r.Scan(&gatewayID)
		})
	})
	return gatewayID, err
}

// KeyByID implements snapshot.KeySource.
func (db *DB) KeyByID(ctx context.Context, keyID string) (*apikey.Key, error) {
	return read(ctx, db, func(t *readTx) (*apikey.Key, error) { return t.key(ctx, `WHERE id = ?`, keyID) })
}
