package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/store/rows"
	"github.com/keygate/keygate/internal/store/stored"
	"github.com/keygate/keygate/internal/webhook"
	"github.com/keygate/keygate/internal/webhook/sender"
)

var (
	_ sender.Queue     = (*DB)(nil)
	_ sender.Exclusive = (*DB)(nil)
)

// waiting lists the endpoints with waiting deliveries, whether due or not. It steps through
// the index from one endpoint to the next, however many deliveries each has.
const waiting = `WITH RECURSIVE waiting (id) AS (
		SELECT min(webhook_id) FROM deliveries INDEXED BY deliveries_due WHERE due_at IS NOT NULL
		UNION ALL
		SELECT (SELECT min(d.webhook_id) FROM deliveries d INDEXED BY deliveries_due WHERE d.due_at IS NOT NULL AND d.webhook_id > waiting.id)
		FROM waiting WHERE waiting.id IS NOT NULL
	) `

// candidate is a delivery that was due when it was read.
type candidate struct {
	n, due int64
	job    sender.Job
}

// newlyDue is how many deliveries NewlyDue reads at most, both of new deliveries and of deliveries
// that became due.
const newlyDue = 1000

// NewlyDue implements sender.Queue.
func (db *DB) NewlyDue(ctx context.Context, mark sender.Mark, now time.Time) (found []sender.Due, next sender.Mark, more bool, err error) {
	err = view(ctx, db.readers, func(t *readTx) error {
		if mark == (sender.Mark{}) {
			next = sender.Mark{DueAt: now}
			return t.Query(ctx, "read newest delivery", `SELECT n FROM deliveries ORDER BY n DESC LIMIT 1`, nil, func(r *rows.Row) error {
				return r.Scan(&next.Created)
			})
		}
		n := newer{next: mark, due: map[string]*sender.Due{}}
		created, err := n.read(ctx, t, now, newlyCreated, mark.Created, newlyDue)
		if err != nil {
			return err
		}
		due, err := n.read(ctx, t, now, becameDue, rows.Micros(mark.DueAt), mark.DueFor, rows.Micros(now), newlyDue)
		if err != nil {
			return err
		}
		if due < newlyDue {
			n.next.DueAt, n.next.DueFor = now, ""
		}
		next, more = n.next, created == newlyDue || due == newlyDue
		found, err = t.claimable(ctx, n.due)
		return err
	})
	return found, next, more, err
}

const (
	newlyCreated = `SELECT n, webhook_id, due_at, state, cause FROM deliveries WHERE n > ? ORDER BY n LIMIT ?+0`
	becameDue    = `SELECT 0, webhook_id, due_at, state, cause FROM deliveries INDEXED BY deliveries_next
		WHERE due_at IS NOT NULL AND (due_at, webhook_id) > (?, ?) AND due_at <= ? ORDER BY due_at, webhook_id LIMIT ?+0`
)

// newer collects the endpoints of deliveries, and the mark behind them.
type newer struct {
	next sender.Mark
	due  map[string]*sender.Due
}

// read reads deliveries and returns their number.
func (n *newer) read(ctx context.Context, t *readTx, now time.Time, query string, args ...any) (count int, err error) {
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
		if !due.Valid || due.Int64 > rows.Micros(now) {
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

// claimable returns the given endpoints that are active and whose account is active. One query asks
// for all of them: a query for each would take most of the time of a look, while deliveries to
// other endpoints wait.
func (t *readTx) claimable(ctx context.Context, due map[string]*sender.Due) (found []sender.Due, err error) {
	if len(due) == 0 {
		return nil, nil
	}
	ids, err := json.Marshal(slices.Collect(maps.Keys(due)))
	if err != nil {
		return nil, err
	}
	found = make([]sender.Due, 0, len(due))
	err = t.Query(ctx, "read endpoints with due deliveries", claimable, []any{string(ids)}, func(r *rows.Row) error {
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

const claimable = `SELECT w.id, w.account_id, w.failing_since IS NOT NULL FROM json_each(?) asked
	CROSS JOIN webhooks w ON w.id = asked.value CROSS JOIN accounts a ON a.id = w.account_id WHERE w.active = 1 AND a.state = 'active'`

// allDue steps through a number of endpoints with waiting deliveries.
const allDue = `WITH RECURSIVE waiting (id) AS (
		SELECT min(webhook_id) FROM deliveries INDEXED BY deliveries_due WHERE due_at IS NOT NULL AND webhook_id > ?
		UNION ALL
		SELECT (SELECT min(d.webhook_id) FROM deliveries d INDEXED BY deliveries_due WHERE d.due_at IS NOT NULL AND d.webhook_id > waiting.id)
		FROM waiting WHERE waiting.id IS NOT NULL LIMIT ?+0
	) SELECT id,
		EXISTS (SELECT 1 FROM deliveries INDEXED BY deliveries_due WHERE webhook_id = waiting.id AND due_at <= ? AND state = 0),
		EXISTS (SELECT 1 FROM deliveries INDEXED BY deliveries_due WHERE webhook_id = waiting.id AND due_at <= ? AND state = 1)
		OR EXISTS (SELECT 1 FROM deliveries INDEXED BY deliveries_hand
			WHERE webhook_id = waiting.id AND due_at <= ? AND due_at IS NOT NULL AND state = 0 AND cause IN ('manual', 'test'))
	FROM waiting WHERE id IS NOT NULL`

// AllDue implements sender.Queue.
func (db *DB) AllDue(ctx context.Context, after string, n int, now time.Time) (found []sender.Due, last string, err error) {
	err = view(ctx, db.readers, func(t *readTx) error {
		due, steps := map[string]*sender.Due{}, 0
		err := t.Query(ctx, "read waiting endpoints", allDue, []any{after, n, rows.Micros(now), rows.Micros(now), rows.Micros(now)}, func(r *rows.Row) error {
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

// claimTries is how often a claim is repeated because others leased its candidates first.
const claimTries = 4

// ClaimDeliveries implements sender.Queue. A reader finds the due deliveries; the writer then
// leases those that no other claim has leased meanwhile.
func (db *DB) ClaimDeliveries(ctx context.Context, c sender.Claim) ([]sender.Job, error) {
	for range claimTries {
		var found []candidate
		err := view(ctx, db.readers, func(t *readTx) (err error) {
			found, err = t.candidates(ctx, &c)
			return err
		})
		if err != nil || len(found) == 0 {
			return nil, err
		}
		jobs, err := db.leaseAll(ctx, found, &c)
		// No job: others were faster, or endpoints were disabled. Read again.
		if err != nil || len(jobs) > 0 {
			return jobs, err
		}
	}
	return nil, nil
}

// leaseBatch is how many deliveries are leased in one transaction, so that a claim of
// thousands does not delay other writers for long.
const leaseBatch = 200

// leaseAll leases the candidates that have not changed since they were read. It returns an
// error only if it leased none: leased deliveries must be sent.
func (db *DB) leaseAll(ctx context.Context, found []candidate, c *sender.Claim) (all []sender.Job, err error) {
	for batch := range slices.Chunk(found, leaseBatch) {
		var jobs []sender.Job
		err := db.write(ctx, func(t *tx) (err error) {
			jobs, err = t.lease(ctx, batch, c)
			return err
		})
		if err != nil && len(all) > 0 {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		all = append(all, jobs...)
	}
	return all, nil
}

// candidates returns the deliveries that c may lease. It takes endpoints in turn, and of each the
// delivery that has been due longest, so that a claim that breaks off is fair.
func (t *readTx) candidates(ctx context.Context, c *sender.Claim) (found []candidate, err error) {
	queues, longest := make([][]candidate, len(c.Wants)), 0
	for i := range c.Wants {
		want := &c.Wants[i]
		if queues[i], err = t.dueOf(ctx, want.WebhookID, c.Now, want.Limit, want.SkipNew); err != nil {
			return nil, err
		}
		longest = max(longest, len(queues[i]))
	}
	for turn := range longest {
		for _, queue := range queues {
			if turn < len(queue) {
				found = append(found, queue[turn])
			}
		}
	}
	for i := range found {
		if err := t.readJob(ctx, &found[i]); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// dueOf returns up to limit due deliveries of an endpoint, beginning with the delivery that has
// been due longest. With skipNew it returns only deliveries that had an attempt or were requested
// one by one.
func (t *readTx) dueOf(ctx context.Context, endpoint string, now time.Time, limit int, skipNew bool) ([]candidate, error) {
	if limit <= 0 {
		return nil, nil
	}
	const rest = ` AND due_at <= ? ORDER BY due_at LIMIT ?+0)`
	const retry = `SELECT n, due_at FROM (SELECT n, due_at FROM deliveries INDEXED BY deliveries_due WHERE webhook_id = ? AND state = 1` + rest
	const first = ` UNION ALL SELECT n, due_at FROM (SELECT n, due_at FROM deliveries INDEXED BY deliveries_due WHERE webhook_id = ? AND state = 0` + rest
	const byHand = ` UNION ALL SELECT n, due_at FROM (SELECT n, due_at FROM deliveries INDEXED BY deliveries_hand
		WHERE webhook_id = ? AND state = 0 AND cause IN ('manual', 'test') AND due_at IS NOT NULL` + rest
	text := retry + first
	if skipNew {
		text = retry + byHand
	}
	args := []any{endpoint, rows.Micros(now), limit, endpoint, rows.Micros(now), limit}
	var list []candidate
	err := t.Query(ctx, "read due deliveries", text, args, func(r *rows.Row) error {
		var d candidate
		err := r.Scan(&d.n, &d.due)
		list = append(list, d)
		return err
	})
	slices.SortStableFunc(list, func(a, b candidate) int { return int(min(1, max(-1, a.due-b.due))) })
	return list[:min(limit, len(list))], err
}

// readJob fills in the candidate's job. Without its event, the job stays empty.
func (t *readTx) readJob(ctx context.Context, c *candidate) error {
	return t.Query(ctx, "read due delivery", `SELECT d.id, d.webhook_id, d.event_id, d.event_type, d.cause, d.attempts, d.next_at, e.payload
		FROM deliveries d JOIN events e ON e.id = d.event_id WHERE d.n = ?`, []any{c.n}, func(r *rows.Row) error {
		var made, next int64
		err := r.Scan(&c.job.DeliveryID, &c.job.Endpoint.WebhookID, &c.job.EventID, &c.job.EventType, &c.job.Trigger, &made, &next, &c.job.Payload)
		c.job.Attempt, c.job.DueAt = int(made)+1, rows.Instant(next)
		return err
	})
}

// lease leases the candidates that have not changed since they were read.
func (t *tx) lease(ctx context.Context, found []candidate, c *sender.Claim) ([]sender.Job, error) {
	endpoints, accounts := map[string]*webhook.Webhook{}, map[string]bool{}
	var jobs []sender.Job
	for i := range found {
		d := &found[i]
		w, err := t.endpoint(ctx, endpoints, d.job.Endpoint.WebhookID)
		if err != nil {
			return nil, err
		}
		if w == nil || w.State != webhook.Active {
			continue
		}
		waits, err := t.suspended(ctx, accounts, w.AccountID)
		if err != nil {
			return nil, err
		}
		if waits {
			continue
		}
		taken, err := t.Exec(ctx, "lease delivery", `UPDATE deliveries SET token = ?, due_at = ? WHERE n = ? AND due_at = ? AND id = ?`,
			c.Token, rows.Micros(c.Until), d.n, d.due, d.job.DeliveryID)
		if err != nil {
			return nil, err
		}
		if taken == 0 {
			continue
		}
		d.job.Token = c.Token
		d.job.Endpoint = sender.Endpoint{WebhookID: w.ID, URL: w.URL, Secret: w.Secret, OldSecret: w.OldSecret, OldUntil: w.OldUntil}
		jobs = append(jobs, d.job)
	}
	return jobs, nil
}

// suspended reports whether an account is not active, so that its endpoints wait. It reads
// each account only once and keeps the answer in known.
func (t *readTx) suspended(ctx context.Context, known map[string]bool, accountID string) (bool, error) {
	if is, ok := known[accountID]; ok {
		return is, nil
	}
	a, err := t.Account(ctx, accountID)
	if err != nil {
		return false, err
	}
	known[accountID] = a.State != account.Active
	return known[accountID], nil
}

// endpoint returns an endpoint, nil if it was deleted. It reads each endpoint only once and
// keeps it in known.
func (t *readTx) endpoint(ctx context.Context, known map[string]*webhook.Webhook, webhookID string) (*webhook.Webhook, error) {
	if w, ok := known[webhookID]; ok {
		return w, nil
	}
	list, err := t.SelectWebhooks(ctx, `WHERE id = ?`, webhookID)
	if err != nil {
		return nil, err
	}
	known[webhookID] = nil
	if len(list) > 0 {
		known[webhookID] = &list[0]
	}
	return known[webhookID], nil
}

// ReleaseDeliveries implements sender.Queue.
func (db *DB) ReleaseDeliveries(ctx context.Context, leases []sender.Lease) error {
	return db.write(ctx, func(t *tx) error {
		for _, l := range leases {
			_, err := t.Exec(ctx, "release delivery", `UPDATE deliveries SET token = NULL, due_at = next_at WHERE id = ? AND token = ?`, l.DeliveryID, l.Token)
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// ReleaseAllDeliveries implements sender.Exclusive.
func (db *DB) ReleaseAllDeliveries(ctx context.Context, name string) (released int, err error) {
	err = db.write(ctx, func(t *tx) error {
		prefix := sender.TokenPrefix(name)
		n, err := t.Exec(ctx, "release deliveries", `UPDATE deliveries SET token = NULL, due_at = next_at WHERE n IN (
			SELECT n FROM deliveries INDEXED BY deliveries_due WHERE due_at IS NOT NULL AND token IS NOT NULL
			AND substr(token, 1, length(?)) = ?)`, prefix, prefix)
		released = int(n)
		return err
	})
	return released, err
}

// nextDue finds the delivery that becomes due next. Deliveries of disabled or deleted
// endpoints are failed soon, so there are few to skip. A delivery of a suspended account is not
// worth a search: it only makes one claim come early.
const nextDue = `SELECT due_at FROM deliveries INDEXED BY deliveries_next CROSS JOIN webhooks w ON w.id = webhook_id
	WHERE due_at > ? AND w.active = 1 ORDER BY due_at LIMIT 1`

// NextDelivery implements sender.Queue.
func (db *DB) NextDelivery(ctx context.Context, now time.Time) (next time.Time, err error) {
	err = view(ctx, db.readers, func(t *readTx) error {
		return t.Query(ctx, "read next due delivery", nextDue, []any{rows.Micros(now)}, func(r *rows.Row) error {
			var at int64
			err := r.Scan(&at)
			next = rows.Instant(at)
			return err
		})
	})
	return next, err
}
