package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/store/rows"
)

// warningKey is the key of a connection's custom data that has the last warning.
const warningKey = "keygate.warning"

// keepWarning is the handler of a connection's notices. A COMMIT that waits for a synchronous replica and is
// cancelled, at the deadline of its node or by an administrator, succeeds with a warning: the transaction is committed on this
// server, and a failover may lose it.
func keepWarning(c *pgconn.PgConn, n *pgconn.Notice) {
	if n.SeverityUnlocalized == "WARNING" {
		c.CustomData()[warningKey] = (*pgconn.PgError)(n)
	}
}

// forgetWarnings is called before the statements that confirmedBy checks.
func forgetWarnings(c *pgconn.PgConn) { delete(c.CustomData(), warningKey) }

// confirmedBy returns an unconfirmedError if the server has sent a warning since forgetWarnings.
func confirmedBy(c *pgconn.PgConn) error {
	if w, ok := c.CustomData()[warningKey].(*pgconn.PgError); ok {
		return &unconfirmedError{w}
	}
	return nil
}

// unconfirmedError is the error of a transaction that is committed, but maybe on no synchronous replica.
type unconfirmedError struct{ warning *pgconn.PgError }

func (e *unconfirmedError) Error() string {
	return fmt.Sprintf("committed with the warning %q", e.warning.Message)
}

// Is makes the error match control.ErrInDoubt: the changes may be stored.
func (e *unconfirmedError) Is(target error) bool { return target == control.ErrInDoubt }

// fault returns e with a public message.
func (e *unconfirmedError) fault() error {
	return &fault.Error{Code: fault.Unavailable, Message: unconfirmedMessage, Err: e}
}

// confirmed calls f with a connection of p for statements that commit by themselves. It is an error too if the
// server has committed without the synchronous replica for which it waits.
func confirmed(ctx context.Context, p *pgxpool.Pool, f func(*pgx.Conn) error) error {
	return p.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		server := c.Conn().PgConn()
		forgetWarnings(server)
		if err := f(c.Conn()); err != nil {
			return err
		}
		return confirmedBy(server)
	})
}

// settleStatement reads the newest change, and makes COMMIT wait for replicas: it locks a row, for which nothing
// else waits, and so writes to the server's log.
const settleStatement = `SELECT number, mark FROM change_head FOR KEY SHARE`

// accountChanges is the number of the newest change of the account $1. Each change of an account has an audit record
// of it, so changes of other accounts do not count.
const accountChanges = `SELECT coalesce((SELECT audit_seq + 1 FROM accounts WHERE id = $1), 0)`

// Settle implements control.Store.
func (db *DB) Settle(ctx context.Context, accountID string) (p snapshot.Position, ofAccount int64, err error) {
	err = db.write(ctx, func(t *tx) error {
		return t.QueryRow(ctx, "change log", `SELECT number, mark, (`+accountChanges+`) FROM change_head FOR KEY SHARE OF change_head`, []any{accountID},
			func(r *rows.Row) error { return r.Scan(&p.Number, fixed(p.Mark[:]), &ofAccount) })
	})
	return p, ofAccount, err
}
