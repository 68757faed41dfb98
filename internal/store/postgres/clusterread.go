package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/cluster/lease"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/snapshot"
)

// logTime bounds each statement that reads the change log. A node whose connection is dead needs another
// one soon, to hold its lease again.
const logTime = 5 * time.Second

// LastPosition implements snapshot.PositionLog.
func (db *DB) LastPosition(ctx context.Context) (p snapshot.Position, err error) {
	err = db.viewFor(ctx, db.changes, beginView, logTime, func(t *readTx) error {
		p, err = t.Head(ctx)
		return err
	})
	return p, err
}

// ChangesAfter implements snapshot.PositionLog.
func (db *DB) ChangesAfter(ctx context.Context, p snapshot.Position, limit int) (list []snapshot.Change, known bool, err error) {
	err = db.viewFor(ctx, db.changes, beginView, logTime, func(t *readTx) error {
		first, _, err := t.changeBounds(ctx)
		if err != nil {
			return err
		}
		err = t.row(ctx, "change log", `SELECT `+knownPosition+` FROM change_head h`, []any{p.Number, p.Mark[:]}, func(r pgx.Rows) error { return r.Scan(&known) })
		if known = known && p.Number >= first; err != nil || !known {
			return err
		}
		return t.rows(ctx, "read changes", `SELECT seq, mark, kind, record_id, revoked, format FROM changes WHERE seq > $1 ORDER BY seq LIMIT $2`,
			[]any{p.Number, rowLimit(limit)}, func(r pgx.Rows) error {
				var c snapshot.Change
				var revoked []byte
				err := r.Scan(&c.Seq, fixed(c.Mark[:]), &c.Kind, &c.ID, &revoked, &c.Format)
				if d := new(apikey.Digest); len(revoked) == copy(d[:], revoked) && len(revoked) == len(d) {
					c.Revoked = d
				}
				list = append(list, c)
				return err
			})
	})
	return list, err == nil && known, err
}

// Head implements control.HeadReader.
func (t *readTx) Head(ctx context.Context) (p snapshot.Position, err error) {
	if t.xid != "" { // it holds the head
		p.Number = t.number
		return p, fixed(p.Mark[:]).ScanBytes(t.mark)
	}
	err = t.row(ctx, "change log", `SELECT number, mark FROM change_head`, nil, func(r pgx.Rows) error { return r.Scan(&p.Number, fixed(p.Mark[:])) })
	return p, err
}

const nodeColumns = `n.id, n.name, n.role, n.version, n.limits, n.started_at, n.state, n.number, h.number, n.ttl, (extract(epoch FROM n.renewed) * 1000000)::bigint`

// Nodes implements control.NodeReader.
func (t *readTx) Nodes(ctx context.Context) (list []control.Node, err error) {
	err = t.rows(ctx, "list nodes", `SELECT `+nodeColumns+` FROM nodes n, change_head h ORDER BY n.name`, nil, func(r pgx.Rows) error {
		n, err := scanNode(r)
		list = append(list, n)
		return err
	})
	return list, err
}

// Node implements control.NodeReader.
func (t *readTx) Node(ctx context.Context, nodeID string) (*control.Node, error) {
	var n control.Node
	err := t.row(ctx, "node", `SELECT `+nodeColumns+` FROM nodes n, change_head h WHERE n.id = $1`, []any{nodeID}, func(r pgx.Rows) (err error) {
		n, err = scanNode(r)
		return err
	})
	return &n, err
}

// DeleteNode implements control.NodeStore.
func (t *tx) DeleteNode(ctx context.Context, nodeID string) error {
	return t.must(ctx, "delete a node", "node", `DELETE FROM nodes WHERE id = $1`, nodeID)
}

func scanNode(r pgx.Rows) (n control.Node, err error) {
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
