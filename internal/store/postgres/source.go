package postgres

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
func read[T any](ctx context.Context, db *DB, f func(*readTx) (T, error)) (T, error) {
	return readOn(ctx, db, db.source, f)
}

// readOn is read on a connection of p.
func readOn[T any](ctx context.Context, db *DB, p *pool, f func(*readTx) (T, error)) (v T, err error) {
	err = db.view(ctx, p, func(t *readTx) error {
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

// Changes implements snapshot.ChangeLog.
func (db *DB) Changes(ctx context.Context, seq int64, limit int) (changes []snapshot.Change, complete bool, err error) {
	err = db.view(ctx, db.source, func(t *readTx) error {
		changes, complete, err = t.Changes(ctx, seq, limit)
		return err
	})
	return changes, complete, err
}

// Accounts implements snapshot.Source. A record that cannot be read is an error.
func (db *DB) Accounts(ctx context.Context) ([]account.Account, error) {
	var first error
	list, err := db.ReadableAccounts(ctx, func(_ string, err error) { first = err })
	if err == nil {
		err = first
	}
	return list, err
}

const visibleAccounts = `WHERE state IN ('active', 'suspended') `

// ReadableAccounts implements snapshot.PositionLog. One statement reads all accounts; only if the server cannot read
// one of them, it reads them one by one.
func (db *DB) ReadableAccounts(ctx context.Context, bad func(accountID string, err error)) ([]account.Account, error) {
	list, err := db.accounts(ctx, visibleAccounts+`ORDER BY id`, nil, bad)
	if err == nil || !isDamage(err) {
		return list, err
	}
	ids, err := readOn(ctx, db, db.changes, func(t *readTx) ([]string, error) {
		return t.Texts(ctx, "read accounts", `SELECT id FROM accounts `+visibleAccounts+`ORDER BY id`)
	})
	if err != nil {
		return nil, err
	}
	list = nil
	for _, accountID := range ids {
		some, err := db.accounts(ctx, visibleAccounts+`AND id = $1`, []any{accountID}, bad)
		if err != nil && isDamage(err) {
			bad(accountID, &corrupted{err})
			some, err = []account.Account{{ID: accountID, State: account.Suspended}}, nil
		}
		if err != nil {
			return nil, err
		}
		list = append(list, some...)
	}
	return list, nil
}

// accounts reads accounts. It calls bad for an account that cannot be decoded, and lists it as suspended.
func (db *DB) accounts(ctx context.Context, rest string, args []any, bad func(accountID string, err error)) (list []account.Account, err error) {
	err = db.statement(ctx, db.changes, readTime, func(t *readTx) error {
		list = nil // of an attempt whose connection was lost
		return t.Query(ctx, "read accounts", rows.AccountColumns+rest, args, func(r *rows.Row) error {
			a, err := rows.ScanAccount(r)
			if err != nil {
				if a.ID == "" || resultOf(r).Err() != nil { // of the driver, which reads no further
					return rows.Decoded(err)
				}
				bad(a.ID, &corrupted{err})
				a.State = account.Suspended
			}
			list = append(list, a)
			return nil
		})
	})
	return list, err
}

// EachGateway implements snapshot.GatewaySource. f must not wait for another reading call of
// the store.
func (db *DB) EachGateway(ctx context.Context, f func(*gateway.Gateway, []gateway.Route) error) error {
	return db.stream(ctx, db.source, func(t *readTx) error {
		return t.EachGateway(ctx, f, ofRecord)
	})
}

// GatewayByID implements snapshot.GatewaySource.
func (db *DB) GatewayByID(ctx context.Context, gatewayID string) (g *gateway.Gateway, routes []gateway.Route, err error) {
	err = db.view(ctx, db.source, func(t *readTx) error {
		if g, err = t.SelectGateway(ctx, `WHERE id = $1`, gatewayID); err != nil {
			return err
		}
		routes, err = t.RouteTable(ctx, gatewayID)
		return err
	})
	return g, routes, ofRecord(err)
}

// GatewayIDs implements snapshot.GatewaySource.
func (db *DB) GatewayIDs(ctx context.Context) ([]string, error) {
	return read(ctx, db, func(t *readTx) ([]string, error) {
		return t.Texts(ctx, "read gateways", `SELECT id FROM gateways ORDER BY id`)
	})
}

// HasGateway implements snapshot.GatewaySource. It reads on the connection of the change log, because keys wait for it.
func (db *DB) HasGateway(ctx context.Context, gatewayID string) (found bool, err error) {
	err = db.statement(ctx, db.changes, logTime, func(t *readTx) error {
		return t.Query(ctx, "find a gateway", `SELECT 1 FROM gateways WHERE id = $1`, []any{gatewayID}, func(*rows.Row) error {
			found = true
			return nil
		})
	})
	return found, err
}

// RouteCount implements snapshot.GatewaySource.
func (db *DB) RouteCount(ctx context.Context, gatewayID string) (n int, err error) {
	err = db.view(ctx, db.source, func(t *readTx) error {
		return t.Query(ctx, "count routes", `SELECT route_count FROM gateways WHERE id = $1`, []any{gatewayID}, func(r *rows.Row) error {
			return rows.Decoded(r.Scan(&n))
		})
	})
	return n, ofRecord(err)
}

// GatewayDelta implements snapshot.GatewaySource.
func (db *DB) GatewayDelta(ctx context.Context, gatewayID string, routeIDs []string, after int64) (*snapshot.GatewayDelta, error) {
	return read(ctx, db, func(t *readTx) (*snapshot.GatewayDelta, error) {
		return t.GatewayDelta(ctx, gatewayID, routeIDs, after, ofRecord)
	})
}

// KeyByID implements snapshot.KeySource.
func (db *DB) KeyByID(ctx context.Context, keyID string) (*apikey.Key, error) {
	return readOn(ctx, db, db.changes, func(t *readTx) (*apikey.Key, error) { return t.SelectKey(ctx, `WHERE id = $1`, keyID) })
}
