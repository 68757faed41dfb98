package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/cluster/lease"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/store/rows"
)

// logTime bounds each statement that reads the change log. A node whose connection is dead needs a new
// connection soon, to hold its lease again.
const logTime = 5 * time.Second

// LastPosition implements snapshot.PositionLog.
func (db *DB) LastPosition(ctx context.Context) (p snapshot.Position, err error) {
	err = db.statement(ctx, db.changes, logTime, func(t *readTx) error {
		p, err = t.Head(ctx)
		return err
	})
	return p, err
}

// logStatement reads the change log after the position ($1, $2), in one round trip. Its first column is whether
// the log contains the position; the others are NULL if there is no change. LIMIT 1 tells the planner that the
// tables have one row each. It would otherwise expect millions in a new database, and have the statement
// compiled (JIT), which takes tens of milliseconds of CPU each time.
const logStatement = `SELECT k.known, c.seq, c.mark, c.kind, c.record_id, c.revoked, c.format
	FROM (SELECT ` + knownPosition + ` AND $1 >= t.seq AS known FROM change_head h, changes_trimmed t LIMIT 1) k
	LEFT JOIN LATERAL (SELECT * FROM changes WHERE seq > $1 ORDER BY seq LIMIT $3) c ON k.known ORDER BY c.seq`

// ChangesAfter implements snapshot.PositionLog.
func (db *DB) ChangesAfter(ctx context.Context, p snapshot.Position, limit int) (list []snapshot.Change, known bool, err error) {
	err = db.statement(ctx, db.changes, logTime, func(t *readTx) error {
		list, known = nil, false
		return t.Query(ctx, "read changes", logStatement, []any{p.Number, p.Mark[:], rows.Limit(limit)}, func(r *rows.Row) error {
			var seq *int64
			var format *int
			var kind, recordID *string
			var c snapshot.Change
			var revoked []byte
			if err := r.Scan(&known, &seq, fixed(c.Mark[:]), &kind, &recordID, &revoked, &format); err != nil || seq == nil {
				return err
			}
			c.Seq, c.Kind, c.ID, c.Format = *seq, snapshot.ChangeKind(*kind), *recordID, *format
			if d := new(apikey.Digest); len(revoked) == len(d) {
				copy(d[:], revoked)
				c.Revoked = d
			}
			list = append(list, c)
			return nil
		})
	})
	return list, err == nil && known, err
}

// Head implements control.HeadReader.
func (t *readTx) Head(ctx context.Context) (p snapshot.Position, err error) {
	if t.ahead {
		if _, err := t.send(ctx, `SELECT 1`, nil, func(*rows.Row) error { return nil }); err != nil {
			return p, t.fail("take the head of the change log", err)
		}
	}
	if t.held {
		return t.position()
	}
	err = t.QueryRow(ctx, "change log", `SELECT number, mark FROM change_head`, nil, func(r *rows.Row) error { return r.Scan(&p.Number, fixed(p.Mark[:])) })
	return p, err
}

const nodeColumns = `n.id, n.name, n.role, n.version, n.limits, n.started_at, n.state, n.number, h.number, n.ttl, (extract(epoch FROM n.renewed) * 1000000)::bigint`

// Nodes implements control.NodeReader.
func (t *readTx) Nodes(ctx context.Context) (list []control.Node, err error) {
	err = t.Query(ctx, "list nodes", `SELECT `+nodeColumns+` FROM nodes n, change_head h ORDER BY n.name`, nil, func(r *rows.Row) error {
		n, err := scanNode(r)
		list = append(list, n)
		return err
	})
	return list, err
}

// Node implements control.NodeReader.
func (t *readTx) Node(ctx context.Context, nodeID string) (*control.Node, error) {
	var n control.Node
	err := t.QueryRow(ctx, "node", `SELECT `+nodeColumns+` FROM nodes n, change_head h WHERE n.id = $1`, []any{nodeID}, func(r *rows.Row) (err error) {
		n, err = scanNode(r)
		return err
	})
	return &n, err
}

// DeleteNode implements control.NodeStore.
func (t *tx) DeleteNode(ctx context.Context, nodeID string) error {
	n, err := t.Exec(ctx, "delete a node", `DELETE FROM nodes WHERE id = $1`, nodeID)
	if err == nil && n == 0 {
		return fault.Missing("node")
	}
	return err
}

func scanNode(r *rows.Row) (n control.Node, err error) {
	var started, head, ttl, renewed int64
	if err := r.Scan(&n.ID, &n.Name, &n.Role, &n.Version, &n.Limits, &started, &n.State, &n.Applied, &head, &ttl, &renewed); err != nil {
		return n, fmt.Errorf("read a node: %w", err)
	}
	n.StartedAt, n.Lag = time.UnixMicro(started).UTC(), max(0, head-n.Applied)
	if n.State == string(lease.Live) {
		n.LeaseUntil = time.UnixMicro(renewed).Add(time.Duration(ttl)).UTC()
	}
	return n, nil
}
