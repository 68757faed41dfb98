package rows

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"time"

	"github.com/keygate/keygate/internal/webhook"
	"github.com/keygate/keygate/internal/webhook/sender"
)

var _ sender.Queue = (*Store)(nil)

// newlyDue is how many deliveries NewlyDue reads at most, of those that were created and of those
// that became due.
const newlyDue = 1000

// NewlyDue implements sender.Queue. The numbers of deliveries are in the order of their commits, so none that commits
// later has a lower number than the mark. A delivery whose retry or release commits only after a look passed its time is
// found by AllDue.
func (s *Store) NewlyDue(ctx context.Context, mark sender.Mark, now time.Time) (found []sender.Due, next sender.Mark, more bool, err error) {
	err = s.engine.Read(ctx, Calls, func(t *Reader) error {
		at := int64(0)
		err := t.QueryRow(ctx, "time", `SELECT queue_now($1)`, []any{Micros(now)}, func(r *Row) error { return r.Scan(&at) })
		if err != nil {
			return err
		}
		if mark == (sender.Mark{}) {
			next = sender.Mark{DueAt: Instant(at)}
			return t.Query(ctx, "read newest delivery", `SELECT n FROM deliveries ORDER BY n DESC LIMIT 1`, nil, func(r *Row) error { return r.Scan(&next.Created) })
		}
		n := newer{next: mark, due: map[string]*sender.Due{}, now: at}
		created, err := n.read(ctx, t, NewlyCreatedQuery, mark.Created, newlyDue)
		if err != nil {
			return err
		}
		due, err := n.read(ctx, t, BecameDueQuery, Micros(mark.DueAt), mark.DueFor, at, newlyDue)
		if err != nil {
			return err
		}
		if due < newlyDue {
			n.next.DueAt, n.next.DueFor = Instant(at), ""
		}
		next, more = n.next, created == newlyDue || due == newlyDue
		found, err = t.claimable(ctx, n.due)
		return err
	})
	return found, next, more, err
}

// NewlyCreatedQuery and BecameDueQuery find deliveries behind a mark. The first column is the number of a delivery that
// was created.
const (
	NewlyCreatedQuery = `SELECT n, webhook_id, due_at, state, cause FROM deliveries WHERE n > $1 ORDER BY n LIMIT $2`
	BecameDueQuery    = `SELECT 0::bigint, webhook_id, due_at, state, cause FROM deliveries INDEXED BY deliveries_next
		WHERE due_at IS NOT NULL AND (due_at, webhook_id) > ($1, $2) AND due_at <= $3 ORDER BY due_at, webhook_id LIMIT $4`
)

// newer collects the endpoints of deliveries, and the mark behind them.
type newer struct {
	next sender.Mark
	due  map[string]*sender.Due
	now  int64
}

// read reads deliveries and returns their number.
func (n *newer) read(ctx context.Context, t *Reader, query string, args ...any) (count int, err error) {
	err = t.Query(ctx, "read newly due deliveries", query, args, func(r *Row) error {
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
			n.next.DueAt, n.next.DueFor = Instant(due.Int64), endpoint
		}
		if !due.Valid || due.Int64 > n.now {
			return nil // done, leased, or found when it becomes due
		}
		d := n.due[endpoint]
		if d == nil {
			d = &sender.Due{WebhookID: endpoint}
			n.due[endpoint] = d
		}
		if isBegun(state, webhook.Trigger(cause)) {
			d.Begun = true
		} else {
			d.New = true
		}
		return nil
	})
	return count, err
}

// isBegun reports whether a due delivery is one of those that sender.Due.Begun stands for, by its
// stored state and trigger.
func isBegun(state int64, t webhook.Trigger) bool {
	return state != DeliveryPending || t == webhook.ByHand || t == webhook.ByTest
}

// claimable returns those endpoints that are active and whose account is active. It asks for all of
// them at once: one query for each would take most of the time of a look, for which deliveries to
// other endpoints wait.
func (t *Reader) claimable(ctx context.Context, due map[string]*sender.Due) ([]sender.Due, error) {
	if len(due) == 0 {
		return nil, nil
	}
	return readAll(ctx, t, "read endpoints with due deliveries", `SELECT w.id, w.account_id, w.failing_since IS NOT NULL, w.paused_until
		FROM webhooks w CROSS JOIN accounts a ON a.id = w.account_id WHERE w.id = ANY ($1) AND w.active = true AND a.state = 'active'`,
		[]any{slices.Collect(maps.Keys(due))}, func(r *Row) (d sender.Due, err error) {
			var paused sql.NullInt64
			err = r.Scan(&d.WebhookID, &d.AccountID, &d.Failing, &paused)
			d.PausedUntil = MaybeInstant(paused)
			if of := due[d.WebhookID]; of != nil {
				d.New, d.Begun = of.New, of.Begun
			}
			return d, err
		})
}

// waiting steps through a number of endpoints with waiting deliveries, whether due or not: through
// the index from one endpoint to the next, however many deliveries each has.
const waiting = `WITH RECURSIVE waiting (id, step) AS (
		SELECT first.webhook_id, 1 FROM (SELECT webhook_id FROM deliveries INDEXED BY deliveries_due WHERE due_at IS NOT NULL AND webhook_id > $1 ORDER BY webhook_id LIMIT 1) AS first
		UNION ALL
		SELECT (SELECT d.webhook_id FROM deliveries d INDEXED BY deliveries_due WHERE d.due_at IS NOT NULL AND d.webhook_id > waiting.id ORDER BY d.webhook_id LIMIT 1), step + 1
		FROM waiting WHERE waiting.id IS NOT NULL AND step < $2::integer
	) `

// AllDueQuery finds the endpoints with waiting deliveries behind another one, and whether they have due ones.
const AllDueQuery = waiting + `SELECT id,
		EXISTS (SELECT 1 FROM deliveries INDEXED BY deliveries_due WHERE webhook_id = waiting.id AND state = 0 AND due_at <= queue_now($3)),
		EXISTS (SELECT 1 FROM deliveries INDEXED BY deliveries_due WHERE webhook_id = waiting.id AND state = 1 AND due_at <= queue_now($3))
		OR EXISTS (SELECT 1 FROM deliveries INDEXED BY deliveries_hand
			WHERE webhook_id = waiting.id AND due_at IS NOT NULL AND due_at <= queue_now($3) AND state = 0 AND cause IN ('manual', 'test'))
	FROM waiting WHERE id IS NOT NULL`

// AllDue implements sender.Queue.
func (s *Store) AllDue(ctx context.Context, after string, n int, now time.Time) (found []sender.Due, last string, err error) {
	err = s.engine.Read(ctx, Calls, func(t *Reader) error {
		due, steps := map[string]*sender.Due{}, 0
		err := t.Query(ctx, "read waiting endpoints", AllDueQuery, []any{after, n, Micros(now)}, func(r *Row) error {
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

// NextDueQuery finds in how many microseconds the next delivery becomes due. Deliveries of disabled or deleted
// endpoints are failed soon, so there are few to skip. A delivery of a suspended account is not worth a search: it
// only makes one claim come early.
const NextDueQuery = `SELECT d.due_at - queue_now($1) FROM deliveries d INDEXED BY deliveries_next CROSS JOIN webhooks w ON w.id = d.webhook_id
	WHERE d.due_at > queue_now($1) AND w.active = true ORDER BY d.due_at LIMIT 1`

// NextDelivery implements sender.Queue.
func (s *Store) NextDelivery(ctx context.Context, now time.Time) (next time.Time, err error) {
	err = s.engine.Read(ctx, Calls, func(t *Reader) error {
		return t.Query(ctx, "read next due delivery", NextDueQuery, []any{Micros(now)}, func(r *Row) error {
			var in int64
			err := r.Scan(&in)
			next = Instant(Micros(now) + in)
			return err
		})
	})
	return next, err
}

// postponedTo is when a delivery is due, or when the pause ends that postpones it. It is so simple that an index has all of
// a delivery that it needs: the few that were requested one by one, which no pause postpones, count as if one did.
const postponedTo = `CASE WHEN d.state = 0 AND w.paused_until > d.due_at THEN w.paused_until ELSE d.due_at END`

// DeliveryBacklog returns the deliveries that are waiting for active endpoints of active accounts. Leased
// deliveries count as waiting but not as due, and so do deliveries to a paused endpoint that have had no attempt. It
// reads one index entry for each delivery.
func (s *Store) DeliveryBacklog(ctx context.Context, now time.Time) (b webhook.Backlog, err error) {
	err = s.engine.Read(ctx, Calls, func(t *Reader) error {
		return t.Query(ctx, "count waiting deliveries", `SELECT count(*), queue_now($1) - min(`+postponedTo+`) FILTER (WHERE d.token IS NULL AND `+postponedTo+` <= queue_now($1))
			FROM accounts a CROSS JOIN webhooks w ON w.account_id = a.id CROSS JOIN deliveries d INDEXED BY deliveries_due ON d.webhook_id = w.id
			WHERE a.state = 'active' AND w.active = true AND d.due_at IS NOT NULL`, []any{Micros(now)}, func(r *Row) error {
			var since sql.NullInt64
			err := r.Scan(&b.Waiting, &since)
			if since.Valid {
				b.Due = Instant(Micros(now) - since.Int64)
			}
			return err
		})
	})
	return b, err
}
