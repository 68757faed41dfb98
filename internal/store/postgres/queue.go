package postgres

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"time"

	"github.com/keygate/keygate/internal/store/rows"
	"github.com/keygate/keygate/internal/store/stored"
	"github.com/keygate/keygate/internal/webhook"
	"github.com/keygate/keygate/internal/webhook/sender"
)

var (
	_ sender.Queue     = (*DB)(nil)
	_ sender.Exclusive = (*DB)(nil)
	_ sender.Peers     = (*DB)(nil)
)

// newlyDue is how many deliveries NewlyDue reads at most, both of new deliveries and of deliveries
// that became due.
const newlyDue = 1000

// NewlyDue implements sender.Queue. The numbers of deliveries are in the order of their commits
// (delivery_head), so none that commits later has a lower number than the mark. A delivery whose
// retry or release commits only after a look passed its time is found by AllDue.
func (db *DB) NewlyDue(ctx context.Context, mark sender.Mark, now time.Time) (found []sender.Due, next sender.Mark, more bool, err error) {
	err = db.view(ctx, db.readers, func(t *readTx) error {
		at, err := t.queueTime(ctx, now)
		if err != nil {
			return err
		}
		if mark == (sender.Mark{}) {
			next = sender.Mark{DueAt: rows.Instant(at)}
			return t.Query(ctx, "read newest delivery", `SELECT n FROM delivery_head`, nil, func(r *rows.Row) error { return r.Scan(&next.Created) })
		}
		n := newer{next: mark, due: map[string]*sender.Due{}, now: at}
		created, err := n.read(ctx, t, newlyCreated, mark.Created, newlyDue)
		if err != nil {
			return err
		}
		due, err := n.read(ctx, t, becameDue, rows.Micros(mark.DueAt), mark.DueFor, at, newlyDue)
		if err != nil {
			return err
		}
		if due < newlyDue {
			n.next.DueAt, n.next.DueFor = rows.Instant(at), ""
		}
		next, more = n.next, created == newlyDue || due == newlyDue
		found, err = t.claimable(ctx, n.due)
		return err
	})
	return found, next, more, err
}

const (
	newlyCreated = `SELECT n, webhook_id, due_at, state, cause FROM deliveries WHERE n > $1 ORDER BY n LIMIT $2`
	becameDue    = `SELECT 0::bigint, webhook_id, due_at, state, cause FROM deliveries
		WHERE due_at IS NOT NULL AND (due_at, webhook_id) > ($1, $2) AND due_at <= $3 ORDER BY due_at, webhook_id LIMIT $4`
)

// queueTime returns the present time of the queue.
func (t *readTx) queueTime(ctx context.Context, now time.Time) (at int64, err error) {
	err = t.QueryRow(ctx, "time", `SELECT queue_now($1)`, []any{rows.Micros(now)}, func(r *rows.Row) error { return r.Scan(&at) })
	return at, err
}

// newer collects the endpoints of deliveries, and the mark behind them.
type newer struct {
	next sender.Mark
	due  map[string]*sender.Due
	now  int64
}

// read reads deliveries and returns their number.
func (n *newer) read(ctx context.Context, t *readTx, query string, args ...any) (count int, err error) {
	err = t.Query(ctx, "read newly due deliveries", query, args, func(r *rows.Row) error {
		var (
			number, state   int64
			endpoint, cause string
			due             sql.NullInt64
		)
		if err := r.Scan(&number, &endpoint, &due, &state, &cause); err != nil {
			return err
		}
		count++
		if number > 0 {
			n.next.Created = number
		} else {
			n.next.DueAt, n.next.DueFor = rows.Instant(due.Int64), endpoint
		}
		if !due.Valid || due.Int64 > n.now {
			return nil // done, leased, or found when it becomes due
		}
		d := n.due[endpoint]
		if d == nil {
			d = &sender.Due{WebhookID: endpoint}
			n.due[endpoint] = d
		}
		if stored.IsBegun(state, webhook.Trigger(cause)) {
			d.Begun = true
		} else {
			d.New = true
		}
		return nil
	})
	return count, err
}

// claimable returns the given endpoints that are active and whose account is active.
func (t *readTx) claimable(ctx context.Context, due map[string]*sender.Due) (found []sender.Due, err error) {
	if len(due) == 0 {
		return nil, nil
	}
	found = make([]sender.Due, 0, len(due))
	err = t.Query(ctx, "read endpoints with due deliveries", `SELECT w.id, w.account_id, w.failing_since IS NOT NULL
		FROM webhooks w JOIN accounts a ON a.id = w.account_id WHERE w.id = ANY($1::text[]) AND w.active AND a.state = 'active'`,
		[]any{slices.Collect(maps.Keys(due))}, func(r *rows.Row) error {
			var d sender.Due
			if err := r.Scan(&d.WebhookID, &d.AccountID, &d.Failing); err != nil {
				return err
			}
			d.New, d.Begun = due[d.WebhookID].New, due[d.WebhookID].Begun
			found = append(found, d)
			return nil
		})
	return found, err
}

// waiting steps through a number of endpoints with waiting deliveries, whether due or not: through
// the index from one endpoint to the next, however many deliveries each has.
const waiting = `WITH RECURSIVE waiting (id, step) AS (
		(SELECT webhook_id, 1 FROM deliveries WHERE due_at IS NOT NULL AND webhook_id > $1 ORDER BY webhook_id LIMIT 1)
		UNION ALL
		SELECT (SELECT d.webhook_id FROM deliveries d WHERE d.due_at IS NOT NULL AND d.webhook_id > waiting.id ORDER BY d.webhook_id LIMIT 1), step + 1
		FROM waiting WHERE waiting.id IS NOT NULL AND step < $2::integer
	) `

const allDue = waiting + `SELECT id,
		EXISTS (SELECT 1 FROM deliveries WHERE webhook_id = waiting.id AND state = 0 AND due_at <= queue_now($3)),
		EXISTS (SELECT 1 FROM deliveries WHERE webhook_id = waiting.id AND state = 1 AND due_at <= queue_now($3))
		OR EXISTS (SELECT 1 FROM deliveries
			WHERE webhook_id = waiting.id AND due_at IS NOT NULL AND due_at <= queue_now($3) AND state = 0 AND cause IN ('manual', 'test'))
	FROM waiting WHERE id IS NOT NULL`

// AllDue implements sender.Queue.
func (db *DB) AllDue(ctx context.Context, after string, n int, now time.Time) (found []sender.Due, last string, err error) {
	err = db.view(ctx, db.readers, func(t *readTx) error {
		due, steps := map[string]*sender.Due{}, 0
		err := t.Query(ctx, "read waiting endpoints", allDue, []any{after, n, rows.Micros(now)}, func(r *rows.Row) error {
			var d sender.Due
			if err := r.Scan(&d.WebhookID, &d.New, &d.Begun); err != nil {
				return err
			}
			steps, last = steps+1, d.WebhookID
			if d.New || d.Begun {
				due[d.WebhookID] = &d
			}
			return nil
		})
		if err != nil {
			return err
		}
		if steps < n {
			last = ""
		}
		found, err = t.claimable(ctx, due)
		return err
	})
	return found, last, err
}

// NextDelivery implements sender.Queue. Deliveries of disabled or deleted endpoints are failed soon,
// so there are few to skip. A delivery of a suspended account is not worth a search: it only makes
// one claim come early.
func (db *DB) NextDelivery(ctx context.Context, now time.Time) (next time.Time, err error) {
	err = db.view(ctx, db.readers, func(t *readTx) error {
		return t.Query(ctx, "read next due delivery", `SELECT d.due_at - queue_now($1) FROM deliveries d JOIN webhooks w ON w.id = d.webhook_id
			WHERE d.due_at > queue_now($1) AND w.active ORDER BY d.due_at LIMIT 1`, []any{rows.Micros(now)}, func(r *rows.Row) error {
			var in int64
			err := r.Scan(&in)
			next = now.Add(time.Duration(in) * time.Microsecond)
			return err
		})
	})
	return next, err
}

// DeliveryBacklog returns the deliveries that are waiting for active endpoints of active accounts. Leased
// deliveries count as waiting but not as due. It reads one index entry for each delivery.
func (db *DB) DeliveryBacklog(ctx context.Context, now time.Time) (b webhook.Backlog, err error) {
	err = db.view(ctx, db.readers, func(t *readTx) error {
		return t.Query(ctx, "count waiting deliveries", `SELECT count(*), queue_now($1) - min(d.due_at) FILTER (WHERE d.token IS NULL AND d.due_at <= queue_now($1))
			FROM accounts a JOIN webhooks w ON w.account_id = a.id JOIN deliveries d ON d.webhook_id = w.id
			WHERE a.state = 'active' AND w.active AND d.due_at IS NOT NULL`, []any{rows.Micros(now)}, func(r *rows.Row) error {
			var since sql.NullInt64
			err := r.Scan(&b.Waiting, &since)
			if since.Valid {
				b.Due = now.Add(-time.Duration(since.Int64) * time.Microsecond)
			}
			return err
		})
	})
	return b, err
}
