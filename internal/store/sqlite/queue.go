package sqlite

import (
	"context"
	"database/sql"
	"slices"
	"time"

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

// candidates returns the deliveries that c may lease. It takes from the endpoints in turn
// (round robin), starting with the one whose delivery has been due longest.
func (t *readTx) candidates(ctx context.Context, c *sender.Claim) ([]candidate, error) {
	endpoints, err := t.dueEndpoints(ctx, c.Now)
	if err != nil || len(endpoints) == 0 {
		return nil, err
	}
	share := max(1, (c.Limit+len(endpoints)-1)/len(endpoints))
	var (
		queues [][]candidate
		cut    bool // an endpoint may have more than was read
	)
	for {
		queues, cut = nil, false
		for _, endpoint := range endpoints {
			allowance, known := c.Allowances[endpoint]
			if !known {
				allowance.Limit = c.EachLimit
			}
			queue, err := t.dueOf(ctx, endpoint, c.Now, min(allowance.Limit, share), allowance.SkipNew)
			if err != nil {
				return nil, err
			}
			cut = cut || len(queue) == share && share < allowance.Limit
			if len(queue) > 0 {
				queues = append(queues, queue)
			}
		}
		if !cut || total(queues) >= c.Limit {
			break
		}
		share *= 4 // some endpoints have fewer: the others get their share
	}
	slices.SortStableFunc(queues, func(a, b []candidate) int { return int(min(1, max(-1, a[0].due-b[0].due))) })
	var found []candidate
	for turn := 0; len(found) < c.Limit; turn++ {
		before := len(found)
		for _, queue := range queues {
			if turn < len(queue) && len(found) < c.Limit {
				found = append(found, queue[turn])
			}
		}
		if len(found) == before {
			break
		}
	}
	for i := range found {
		if err := t.readJob(ctx, &found[i]); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func total(queues [][]candidate) (n int) {
	for _, q := range queues {
		n += len(q)
	}
	return n
}

// dueEndpoints returns the active endpoints with a due delivery, whose account is active.
func (t *readTx) dueEndpoints(ctx context.Context, now time.Time) ([]string, error) {
	list, all, err := t.firstDue(ctx, now)
	if err != nil || all {
		return list, err
	}
	const due = `EXISTS (SELECT 1 FROM deliveries INDEXED BY deliveries_due WHERE webhook_id = w.id AND due_at <= ? AND state = `
	return t.texts(ctx, "read waiting endpoints", waiting+`SELECT w.id FROM waiting CROSS JOIN webhooks w ON w.id = waiting.id
		CROSS JOIN accounts a ON a.id = w.account_id WHERE w.active = 1 AND a.state = 'active' AND (`+due+`0) OR `+due+`1))`, micros(now), micros(now))
}

// fewDue is how many due deliveries are read one by one to find their endpoints. If there are
// more, stepping through the endpoints is as fast.
const fewDue = 500

const firstDue = `SELECT due.webhook_id, due.many, w.active AND a.state = 'active' FROM (
		SELECT webhook_id, count(*) AS many FROM (
			SELECT webhook_id FROM deliveries INDEXED BY deliveries_next WHERE due_at <= ? ORDER BY due_at LIMIT ?+0
		) GROUP BY webhook_id
	) AS due LEFT JOIN webhooks w ON w.id = due.webhook_id LEFT JOIN accounts a ON a.id = w.account_id`

// firstDue returns the active endpoints of the deliveries that have been due longest. It reads
// at most fewDue deliveries; all is false if there may be more.
func (t *readTx) firstDue(ctx context.Context, now time.Time) (list []string, all bool, err error) {
	seen := 0
	err = t.rows(ctx, "read first due deliveries", firstDue, []any{micros(now), fewDue}, func(r *sql.Rows) error {
		var (
			endpoint string
			many     int
			active   sql.NullBool
		)
		err := r.Scan(&endpoint, &many, &active)
		seen += many
		if active.Bool {
			list = append(list, endpoint)
		}
		return err
	})
	return list, seen < fewDue, err
}

// texts returns the only column of the result.
func (t *readTx) texts(ctx context.Context, what, query string, args ...any) ([]string, error) {
	var list []string
	err := t.rows(ctx, what, query, args, func(r *sql.Rows) error {
		var s string
		err := r.Scan(&s)
		list = append(list, s)
		return err
	})
	return list, err
}

// dueOf returns up to limit due deliveries of an endpoint, the one that has been due longest
// first. With skipNew it returns only those that had an attempt or were requested one by one.
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
	args := []any{endpoint, micros(now), limit, endpoint, micros(now), limit}
	var list []candidate
	err := t.rows(ctx, "read due deliveries", text, args, func(r *sql.Rows) error {
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
	return t.rows(ctx, "read due delivery", `SELECT d.id, d.webhook_id, d.event_id, d.event_type, d.cause, d.attempts, d.next_at, e.payload
		FROM deliveries d JOIN events e ON e.id = d.event_id WHERE d.n = ?`, []any{c.n}, func(r *sql.Rows) error {
		var made, next int64
		err := r.Scan(&c.job.DeliveryID, &c.job.Endpoint.WebhookID, &c.job.EventID, &c.job.EventType, &c.job.Trigger, &made, &next, &c.job.Payload)
		c.job.Attempt, c.job.DueAt = int(made)+1, instant(next)
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
		taken, err := t.exec(ctx, "lease delivery", `UPDATE deliveries SET token = ?, due_at = ? WHERE n = ? AND due_at = ? AND id = ?`,
			c.Token, micros(c.Until), d.n, d.due, d.job.DeliveryID)
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

// endpoint returns an endpoint, nil if it was deleted. It reads each endpoint only once and
// keeps it in known.
func (t *readTx) endpoint(ctx context.Context, known map[string]*webhook.Webhook, webhookID string) (*webhook.Webhook, error) {
	if w, ok := known[webhookID]; ok {
		return w, nil
	}
	list, err := t.webhooks(ctx, `WHERE id = ?`, webhookID)
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
			_, err := t.exec(ctx, "release delivery", `UPDATE deliveries SET token = NULL, due_at = next_at WHERE id = ? AND token = ?`, l.DeliveryID, l.Token)
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// ReleaseAllDeliveries implements sender.Exclusive.
func (db *DB) ReleaseAllDeliveries(ctx context.Context) (released int, err error) {
	err = db.write(ctx, func(t *tx) error {
		n, err := t.exec(ctx, "release deliveries", `UPDATE deliveries SET token = NULL, due_at = next_at WHERE n IN (
			SELECT n FROM deliveries INDEXED BY deliveries_due WHERE due_at IS NOT NULL AND token IS NOT NULL)`)
		released = int(n)
		return err
	})
	return released, err
}

// nextDue finds the delivery that becomes due next. Deliveries of disabled or deleted
// endpoints are failed soon, so there are few to skip. That of a suspended account is not
// worth a search: it only makes one claim come early.
const nextDue = `SELECT due_at FROM deliveries INDEXED BY deliveries_next CROSS JOIN webhooks w ON w.id = webhook_id
	WHERE due_at > ? AND w.active = 1 ORDER BY due_at LIMIT 1`

// NextDelivery implements sender.Queue.
func (db *DB) NextDelivery(ctx context.Context, now time.Time) (next time.Time, err error) {
	err = view(ctx, db.readers, func(t *readTx) error {
		return t.rows(ctx, "read next due delivery", nextDue, []any{micros(now)}, func(r *sql.Rows) error {
			var at int64
			err := r.Scan(&at)
			next = instant(at)
			return err
		})
	})
	return next, err
}
