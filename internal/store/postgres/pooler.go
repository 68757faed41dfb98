package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/keygate/keygate/internal/fault"
)

const poolerMessage = "--database-url leads to a pooler in transaction mode, which loses prepared statements: add default_query_exec_mode=exec to the URL"

// Pooling is what CheckPooler finds out about the way to a database.
type Pooling struct {
	Pooled   bool // a pooler is in between
	Sessions bool // a connection keeps its session, the same as without a pooler
}

// CheckPooler finds out whether a URL leads to a pooler, and whether the pooler gives each transaction
// another connection of the server. If it does, and the URL makes Keygate prepare statements, the error is
// fault.Unavailable. With other errors, which come from connections, p is zero.
func CheckPooler(ctx context.Context, url string) (p Pooling, err error) {
	settings, err := parseURL(url)
	if err != nil {
		return p, err
	}
	c, err := connectPlain(ctx, url)
	if err != nil {
		return p, err
	}
	p.Pooled, err = pooled(ctx, c)
	if err = errors.Join(err, c.Close(ctx)); err != nil || !p.Pooled {
		return Pooling{Sessions: err == nil}, translate("look for a pooler", err)
	}
	switch p.Sessions, err = Notified(ctx, url, url); {
	case err != nil:
		return Pooling{}, err
	case p.Sessions:
		return p, nil
	}
	switch settings.ConnConfig.DefaultQueryExecMode {
	case pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec:
		return p, fault.New(fault.Unavailable, poolerMessage)
	default:
		return p, nil
	}
}

// pooled reports whether a connection ends at a pooler, which gives a number of its own to its client.
func pooled(ctx context.Context, c *pgx.Conn) (bool, error) {
	var pid uint32
	if err := c.QueryRow(ctx, `SELECT pg_backend_pid()`, pgx.QueryExecModeExec).Scan(&pid); err != nil {
		return false, fmt.Errorf("read the number of the process: %w", err)
	}
	return pid != c.PgConn().PID(), nil
}
