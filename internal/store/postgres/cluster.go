package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keygate/keygate/internal/cluster/lease"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
)

// Node is what a node says about itself when it joins.
type Node struct {
	Role      string
	Version   string
	Format    int    // the newest format of changes that it reads
	Limits    string // how it applies limits over several nodes
	StartedAt time.Time
}

// Leases carries out the calls for one node's lease, over a connection of its own, which nothing else
// can keep busy. It is safe for concurrent use, but one call runs at a time.
type Leases struct {
	pool *owned
	node Node
}

// OpenLeases returns the Leases of a node in the database of a URL. It connects with the first call.
func OpenLeases(ctx context.Context, url string, node Node) (*Leases, error) {
	settings, err := parseURL(url)
	if err != nil {
		return nil, err
	}
	p, err := ownPool(ctx, settings)
	if err != nil {
		return nil, fmt.Errorf("open the connection for the lease: %w", translate("open", err))
	}
	return &Leases{pool: p, node: node}, nil
}

// ownPool returns a pool of one connection. A call on it whose context ends is given up at once,
// whatever the server does with it.
func ownPool(ctx context.Context, settings *pgxpool.Config) (*owned, error) {
	o := &owned{}
	settings = settings.Copy()
	settings.MaxConns, settings.MinConns, settings.MinIdleConns = 1, 0, 0
	settings.MaxConnLifetime, settings.MaxConnLifetimeJitter = connLifetime, connJitter
	configure(settings.ConnConfig)
	settings.ConnConfig.BuildContextWatcherHandler = func(p *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.DeadlineContextWatcherHandler{Conn: p.Conn()}
	}
	o.wires.carry(settings.ConnConfig)
	var err error
	o.Pool, err = pgxpool.NewWithConfig(ctx, settings)
	return o, err
}

// owned is a pool of ownPool.
type owned struct {
	*pgxpool.Pool
	wires wires
}

// Close closes the connection. It does not wait for a server that does not respond.
func (o *owned) Close() {
	defer time.AfterFunc(cancelGrace, o.wires.close).Stop()
	o.Pool.Close()
}

// Close closes the connection.
func (l *Leases) Close() { l.pool.Close() }

// Carry carries out a call, as lease.Carry says. When it returns an error, whether the call was carried
// out is unknown.
func (l *Leases) Carry(ctx context.Context, c lease.Call) (a lease.Answer, err error) {
	switch c.Kind {
	case lease.Join:
		a, err = l.join(ctx, &c)
	case lease.Leave:
		a, err = l.leave(ctx, &c)
	default:
		a, err = l.renew(ctx, &c)
	}
	if stateOf(err) == readOnlyTransaction {
		l.pool.Reset() // the server has become a replica
	}
	if err != nil { // as of a commit that no synchronous replica has confirmed
		a = lease.Answer{}
	}
	return a, translate("call for the lease", err)
}

const (
	// durableCTE makes the transaction of a statement wait at least for the server's disk.
	durableCTE = `durable AS MATERIALIZED (SELECT set_config('synchronous_commit', 'on', true) AS v WHERE current_setting('synchronous_commit') IN ('off', 'local'))`
	// knownPosition is whether the change log contains the position ($1, $2), given the head h.
	knownPosition = `($1::bigint = 0 OR h.number = $1 AND h.mark = $2 OR EXISTS (SELECT FROM changes c WHERE c.seq = $1 AND c.mark = $2))`
	// overduePosition is whether the change after the position ($1, $2) is older than $3 microseconds.
	overduePosition = `EXISTS (SELECT FROM changes c WHERE c.seq = $1 + 1 AND c.stored < clock_timestamp() - $3::bigint * interval '1 microsecond')`
	rowColumns      = `n.name, n.boot, n.epoch, n.granted, n.ttl, n.number, n.mark, n.state`
)

// join locks mutations out before it reads which change is the newest, and until the row is stored. Each statement sees what was
// committed before it began, so a single statement would not do.
func (l *Leases) join(ctx context.Context, c *lease.Call) (a lease.Answer, err error) {
	begin := func(f func(pgx.Tx) error) error {
		return confirmed(ctx, l.pool.Pool, func(conn *pgx.Conn) error { return pgx.BeginFunc(ctx, conn, f) })
	}
	err = begin(func(tx pgx.Tx) error {
		// As long as it holds the head, no change is made.
		quarter := (c.TTL / 4).Milliseconds()
		if _, err := tx.Exec(ctx, fmt.Sprintf(`SET LOCAL statement_timeout = %d; SET LOCAL idle_in_transaction_session_timeout = %[1]d`, max(500, quarter))); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `WITH `+durableCTE+` SELECT v FROM durable`); err != nil {
			return err
		}
		var head lease.Position
		var format int
		if err := tx.QueryRow(ctx, `SELECT number, mark, format FROM change_head FOR SHARE`).Scan(&head.Number, mark(&head), &format); err != nil {
			return err
		}
		if format > l.node.Format {
			return &fault.Error{
				Code: fault.Unavailable, Err: lease.ErrTooOld,
				Message: fmt.Sprintf("the database has changes in format %d, and this version reads formats up to %d: upgrade this node", format, l.node.Format),
			}
		}
		log := lease.Log{Newest: head}
		var now time.Time
		if err := tx.QueryRow(ctx, `SELECT `+knownPosition+`, `+overduePosition+`, clock_timestamp() FROM change_head h`,
			c.Position.Number, c.Position.Mark[:], (c.TTL/3).Microseconds()).Scan(&log.Known, &log.Overdue, &now); err != nil {
			return err
		}
		var before *lease.Row
		r, err := scanRow(tx.QueryRow(ctx, `SELECT `+rowColumns+` FROM nodes n WHERE n.name = $1 FOR UPDATE`, c.Node))
		switch {
		case err == nil:
			before = &r
		case !errors.Is(err, pgx.ErrNoRows):
			return err
		}
		next, answer := lease.Carry(before, c, log)
		a = answer
		if a.Time = now; a.Result != lease.Done {
			return nil
		}
		return l.store(ctx, tx, before == nil, &next)
	})
	return a, err
}

// store stores the row of a node that joins.
func (l *Leases) store(ctx context.Context, tx pgx.Tx, isNew bool, r *lease.Row) error {
	statement := `UPDATE nodes SET boot = $2, epoch = $3, granted = $4, ttl = $5, number = $6, mark = $7, state = $8,
		role = $9, version = $10, started_at = $11, limits = $12, format = $14, renewed = clock_timestamp() WHERE name = $1 AND $13 <> ''`
	if isNew {
		statement = `INSERT INTO nodes (name, boot, epoch, granted, ttl, number, mark, state, role, version, started_at, limits, id, format, renewed)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, clock_timestamp())`
	}
	if _, err := tx.Exec(ctx, statement, r.Node, r.Boot[:], r.Epoch, r.Grant, int64(r.TTL), r.Applied.Number, r.Applied.Mark[:], string(r.State),
		l.node.Role, l.node.Version, l.node.StartedAt.UnixMicro(), l.node.Limits, id.New(id.Node), l.node.Format); err != nil {
		return err
	}
	// No other server can have granted a lease before the first node joined.
	_, err := tx.Exec(ctx, `INSERT INTO settled_servers SELECT `+serverName+` WHERE NOT EXISTS (SELECT FROM settled_servers)`)
	return err
}

// renew carries out a Renew or an Acknowledge in one statement.
func (l *Leases) renew(ctx context.Context, c *lease.Call) (a lease.Answer, err error) {
	r := lease.Row{Node: c.Node, Boot: c.Boot, Epoch: c.Epoch, TTL: c.TTL, State: lease.Live}
	var known, overdue, ours bool
	var granted, number *int64
	var now time.Time
	err = l.row(ctx, []any{&known, &overdue, &ours, &granted, &number, mark(&r.Applied), &now}, `WITH `+durableCTE+`, log AS (
			SELECT `+knownPosition+` AS known,
				$7 AND `+overduePosition+` AS overdue
			FROM change_head h
		), renewed AS (
			UPDATE nodes n SET granted = n.granted + CASE WHEN $7 THEN 1 ELSE 0 END, number = greatest(n.number, $1),
				mark = CASE WHEN n.number < $1 THEN $2 ELSE n.mark END, renewed = CASE WHEN $7 THEN clock_timestamp() ELSE n.renewed END
			FROM log, (SELECT count(*) FROM durable) d
			WHERE n.name = $4 AND n.boot = $5 AND n.epoch = $6 AND n.state = 'live' AND log.known AND NOT log.overdue
			RETURNING n.granted, n.number, n.mark
		)
		SELECT log.known, log.overdue, EXISTS (SELECT FROM nodes WHERE name = $4 AND boot = $5 AND epoch = $6 AND state = 'live'), r.granted, r.number, r.mark, clock_timestamp()
		FROM log LEFT JOIN renewed r ON true`,
		c.Position.Number, c.Position.Mark[:], (c.TTL / 3).Microseconds(), c.Node, c.Boot[:], c.Epoch, c.Kind == lease.Renew)
	switch {
	case err != nil:
		return a, err
	case granted != nil:
		r.Grant, r.Applied.Number = *granted, *number
		a.Result, a.Row = lease.Done, r
	case !ours:
		a.Result = lease.Lost
	case !known:
		a.Result = lease.OtherHistory
	case overdue:
		a.Result = lease.Behind
	default: // the row was ended while the statement waited for it
		a.Result = lease.Lost
	}
	a.Time = now
	return a, nil
}

// row runs a statement that commits by itself, and scans its only row.
func (l *Leases) row(ctx context.Context, to []any, query string, args ...any) error {
	return confirmed(ctx, l.pool.Pool, func(c *pgx.Conn) error { return c.QueryRow(ctx, query, args...).Scan(to...) })
}

func (l *Leases) leave(ctx context.Context, c *lease.Call) (lease.Answer, error) {
	var r lease.Row
	err := confirmed(ctx, l.pool.Pool, func(conn *pgx.Conn) (err error) {
		r, err = scanRow(conn.QueryRow(ctx, `WITH `+durableCTE+`
			UPDATE nodes n SET epoch = n.epoch + 1, state = 'stopped' FROM (SELECT count(*) FROM durable) d
			WHERE n.name = $1 AND n.boot = $2 AND n.epoch = $3 AND n.state = 'live' RETURNING `+rowColumns, c.Node, c.Boot[:], c.Epoch))
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return lease.Answer{Result: lease.Lost}, nil
	}
	if err != nil {
		return lease.Answer{}, err
	}
	return lease.Answer{Result: lease.Done, Row: r}, nil
}

// scanRow reads rowColumns.
func scanRow(row pgx.Row) (r lease.Row, err error) {
	var ttl int64
	err = row.Scan(&r.Node, fixed(r.Boot[:]), &r.Epoch, &r.Grant, &ttl, &r.Applied.Number, mark(&r.Applied), &r.State)
	r.TTL = time.Duration(ttl)
	return r, err
}

// fixed scans a value with exactly the length of b, or NULL, which leaves b unchanged.
type fixed []byte

// mark scans the mark of p.
func mark(p *lease.Position) fixed { return p.Mark[:] }

// ScanBytes implements pgtype.BytesScanner.
func (b fixed) ScanBytes(v []byte) error {
	if v != nil && len(v) != len(b) {
		return fmt.Errorf("a value has %d bytes, want %d", len(v), len(b))
	}
	copy(b, v)
	return nil
}
