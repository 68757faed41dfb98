package postgres

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/keygate/keygate/internal/cluster/lease"
)

// Views reads the leases of all nodes, for callers that wait for a change, over a connection of its own.
// It is safe for concurrent use, but one call runs at a time.
type Views struct {
	pool *owned
	// unsettled says that a lease was ended by a commit that no synchronous replica has confirmed. Until
	// one has, nobody may rely on what is read.
	unsettled atomic.Bool
}

// OpenViews returns the Views of the database of a URL. It connects with the first call.
func OpenViews(ctx context.Context, url string) (*Views, error) {
	settings, err := parseURL(url)
	if err != nil {
		return nil, err
	}
	p, err := ownPool(ctx, settings)
	if err != nil {
		return nil, fmt.Errorf("open the connection that watches the leases: %w", translate("open", err))
	}
	return &Views{pool: p}, nil
}

// Close closes the connection.
func (v *Views) Close() { v.pool.Close() }

// serverName names the server and its timeline, which changes with each promotion of a replica and each
// recovery from a backup.
const serverName = `(SELECT system_identifier::text FROM pg_control_system()) || '/' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8)`

// viewStatement reads everything in one statement, so that it is of one state.
const viewStatement = `SELECT s.name, NOT EXISTS (SELECT FROM settled_servers) OR EXISTS (SELECT FROM settled_servers x WHERE x.name = s.name),
		ARRAY(SELECT p.i FROM unnest($1::bigint[], $2::bytea[]) WITH ORDINALITY p (number, mark, i), change_head h
			WHERE p.number <> 0 AND NOT (h.number = p.number AND h.mark = p.mark)
			AND NOT EXISTS (SELECT FROM changes c WHERE c.seq = p.number AND c.mark = p.mark)),
		coalesce(n.name, ''), n.boot, coalesce(n.epoch, 0), coalesce(n.granted, 0), coalesce(n.ttl, 0), coalesce(n.number, 0), n.mark, coalesce(n.state, '')
	FROM (SELECT ` + serverName + ` AS name) s LEFT JOIN nodes n ON true ORDER BY n.name`

// LeaseView reads all leases, and which of the positions the change log does not contain.
func (v *Views) LeaseView(ctx context.Context, about []lease.Position) (*lease.View, error) {
	if err := v.settle(ctx); err != nil {
		return nil, err
	}
	numbers, marks := make([]int64, len(about)), make([][]byte, len(about))
	for i := range about {
		numbers[i], marks[i] = about[i].Number, about[i].Mark[:]
	}
	rows, err := v.pool.Query(ctx, viewStatement, numbers, marks)
	if err != nil {
		return nil, v.fault("read the leases", err)
	}
	defer rows.Close()
	view := &lease.View{}
	var unknown []int64
	for rows.Next() {
		var r lease.Row
		var ttl int64
		if err := rows.Scan(&view.Server, &view.Settled, &unknown, &r.Node, fixed(r.Boot[:]), &r.Epoch, &r.Grant, &ttl, &r.Applied.Number, mark(&r.Applied), &r.State); err != nil {
			return nil, v.fault("read the leases", err)
		}
		if r.TTL = time.Duration(ttl); r.Node != "" {
			view.Rows = append(view.Rows, r)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, v.fault("read the leases", err)
	}
	for _, i := range unknown {
		view.Unknown = append(view.Unknown, about[i-1])
	}
	return view, nil
}

// EndLease ends a lease whose grant has run out. It returns false if the row has another grant by now.
func (v *Views) EndLease(ctx context.Context, s lease.Seen) (bool, error) {
	var tag pgconn.CommandTag
	err := confirmed(ctx, v.pool.Pool, func(c *pgx.Conn) (err error) {
		tag, err = c.Exec(ctx, `WITH `+durableCTE+`
			UPDATE nodes SET epoch = epoch + 1, state = 'expired' FROM (SELECT count(*) FROM durable) d
			WHERE name = $1 AND epoch = $2 AND granted = $3 AND state = 'live'`, s.Node, s.Epoch, s.Grant)
		return err
	})
	if err != nil {
		v.unsettled.Store(true)
	}
	return err == nil && tag.RowsAffected() > 0, v.fault("end a lease", err)
}

// settle waits until synchronous replicas have the leases that this node has ended, unless it is known that they have.
func (v *Views) settle(ctx context.Context) error {
	if !v.unsettled.Load() {
		return nil
	}
	err := confirmed(ctx, v.pool.Pool, func(c *pgx.Conn) error {
		_, err := c.Exec(ctx, `WITH `+durableCTE+`, head AS (`+settleStatement+`) SELECT count(*) FROM durable, head`)
		return err
	})
	if err == nil {
		v.unsettled.Store(false)
	}
	return v.fault("wait for a replica", err)
}

// SettleServer records that the time of a lease has passed on a server.
func (v *Views) SettleServer(ctx context.Context, name string) error {
	err := confirmed(ctx, v.pool.Pool, func(c *pgx.Conn) error {
		_, err := c.Exec(ctx, `INSERT INTO settled_servers VALUES ($1) ON CONFLICT DO NOTHING`, name)
		return err
	})
	return v.fault("record a server", err)
}

func (v *Views) fault(what string, err error) error {
	if stateOf(err) == readOnlyTransaction {
		v.pool.Reset() // the server has become a replica
	}
	return translate(what, err)
}
