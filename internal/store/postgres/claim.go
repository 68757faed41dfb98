package postgres

import (
	"context"

	"github.com/keygate/keygate/internal/store/rows"
	"github.com/keygate/keygate/internal/webhook/sender"
)

// claim leases deliveries in one statement, so that a claim costs one round trip. Deliveries that
// another claim is leasing are skipped, not waited for. The lease ends by the queue's clock: a
// node's clock may differ, and a node may have been stopped since it read its clock.
//
// Each endpoint's deliveries are in two branches of an index: with an attempt, and without. Of each
// branch, the claim locks as many deliveries as it may take; of both together it takes the
// deliveries that have been due longest.
const claim = `WITH wanted AS MATERIALIZED (
		SELECT w.id, w.url, w.secret, w.old_secret, w.old_until, q.most, q.skip_new
		FROM unnest($1::text[], $2::bigint[], $3::boolean[]) AS q (id, most, skip_new)
		JOIN webhooks w ON w.id = q.id COLLATE "C" AND w.active JOIN accounts a ON a.id = w.account_id AND a.state = 'active'
	), retries AS MATERIALIZED (
		SELECT d.* FROM wanted CROSS JOIN LATERAL (SELECT n, webhook_id, due_at FROM deliveries
			WHERE webhook_id = wanted.id AND state = 1 AND due_at <= queue_now($4)
			ORDER BY due_at LIMIT wanted.most FOR UPDATE SKIP LOCKED) AS d
	), firsts AS MATERIALIZED (
		SELECT d.* FROM wanted CROSS JOIN LATERAL (SELECT n, webhook_id, due_at FROM deliveries
			WHERE webhook_id = wanted.id AND state = 0 AND due_at <= queue_now($4)
			ORDER BY due_at LIMIT CASE WHEN wanted.skip_new THEN 0 ELSE wanted.most END FOR UPDATE SKIP LOCKED) AS d
	), by_hand AS MATERIALIZED (
		SELECT d.* FROM wanted CROSS JOIN LATERAL (SELECT n, webhook_id, due_at FROM deliveries
			WHERE webhook_id = wanted.id AND state = 0 AND due_at IS NOT NULL AND cause IN ('manual', 'test') AND due_at <= queue_now($4)
			ORDER BY due_at LIMIT CASE WHEN wanted.skip_new THEN wanted.most ELSE 0 END FOR UPDATE SKIP LOCKED) AS d
	), due AS (
		SELECT n, webhook_id, row_number() OVER (PARTITION BY webhook_id ORDER BY due_at, n) AS place
		FROM (SELECT * FROM retries UNION ALL SELECT * FROM firsts UNION ALL SELECT * FROM by_hand) AS locked
	), leased AS (
		UPDATE deliveries d SET token = $5, due_at = queue_now($4) + $6::bigint FROM due JOIN wanted ON wanted.id = due.webhook_id
		WHERE d.n = due.n AND due.place <= wanted.most
		RETURNING d.id, d.webhook_id, d.event_id, d.event_type, d.cause, d.attempts, d.next_at
	)
	SELECT l.id, l.webhook_id, l.event_id, l.event_type, l.cause, l.attempts, l.next_at, e.payload, w.url, w.secret, w.old_secret, w.old_until
	FROM leased l JOIN wanted w ON w.id = l.webhook_id JOIN events e ON e.id = l.event_id`

// ClaimDeliveries implements sender.Queue.
func (db *DB) ClaimDeliveries(ctx context.Context, c sender.Claim) (jobs []sender.Job, err error) {
	if len(c.Wants) == 0 {
		return nil, ctx.Err()
	}
	ids, most, skipNew := make([]string, len(c.Wants)), make([]int64, len(c.Wants)), make([]bool, len(c.Wants))
	for i, w := range c.Wants {
		ids[i], most[i], skipNew[i] = w.WebhookID, int64(rows.Limit(w.Limit)), w.SkipNew
	}
	err = db.write(ctx, func(t *tx) error {
		jobs = nil
		return t.Query(ctx, "claim deliveries", claim, []any{ids, most, skipNew, rows.Micros(c.Now), c.Token, c.Until.Sub(c.Now).Microseconds()}, func(r *rows.Row) error {
			var (
				made, next int64
				until      *int64
			)
			j := sender.Job{Lease: sender.Lease{Token: c.Token}}
			w := &j.Endpoint
			err := r.Scan(&j.DeliveryID, &w.WebhookID, &j.EventID, &j.EventType, &j.Trigger, &made, &next, &j.Payload, &w.URL, &w.Secret, &w.OldSecret, &until)
			j.Attempt, j.DueAt = int(made)+1, rows.Instant(next)
			if until != nil {
				w.OldUntil = rows.Instant(*until)
			}
			jobs = append(jobs, j)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return jobs, nil
}

// ReleaseDeliveries implements sender.Queue.
func (db *DB) ReleaseDeliveries(ctx context.Context, leases []sender.Lease) error {
	ids, tokens := make([]string, len(leases)), make([]string, len(leases))
	for i, l := range leases {
		ids[i], tokens[i] = l.DeliveryID, l.Token
	}
	return db.write(ctx, func(t *tx) error {
		return t.Queue(ctx, "release deliveries", `UPDATE deliveries d SET token = NULL, due_at = next_at
			FROM unnest($1::text[], $2::text[]) AS l (id, token) WHERE d.id = l.id COLLATE "C" AND d.token = l.token COLLATE "C"`, ids, tokens)
	})
}

// ReleaseAllDeliveries implements sender.Exclusive. Leases of other nodes stay: if a node has died,
// its leases end by themselves, and the deliveries are due then. Senders without a name may be of
// several nodes, so it ends none of theirs.
func (db *DB) ReleaseAllDeliveries(ctx context.Context, name string) (released int, err error) {
	if name == "" {
		return 0, ctx.Err()
	}
	prefix := sender.TokenPrefix(name)
	err = db.write(ctx, func(t *tx) error {
		n, err := t.Exec(ctx, "release deliveries", `UPDATE deliveries SET token = NULL, due_at = next_at
			WHERE token >= $1 AND token < $2 AND starts_with(token, $1)`, prefix, prefix+rows.Below(""))
		released = int(n)
		return err
	})
	return released, err
}

// releaseEnded steps through the claimants that hold deliveries, by the first of their tokens, and
// compares them with the leases of nodes. The rows are changed only if they still have the token that
// was seen: a claim of a node that joined after this statement began may have replaced it.
const releaseEnded = `WITH RECURSIVE claimants (name) AS (
		(SELECT split_part(token, '/', 1) FROM deliveries WHERE token >= '0' ORDER BY token LIMIT 1)
		UNION ALL
		SELECT (SELECT split_part(d.token, '/', 1) FROM deliveries d WHERE d.token >= (claimants.name || '0') COLLATE "C" ORDER BY d.token LIMIT 1)
		FROM claimants WHERE claimants.name IS NOT NULL
	), ended AS MATERIALIZED (
		SELECT d.n, d.token FROM claimants c JOIN deliveries d ON d.token >= (c.name || '/') COLLATE "C" AND d.token < (c.name || '0') COLLATE "C"
		WHERE NOT EXISTS (SELECT FROM nodes n WHERE n.state = 'live' AND encode(n.boot, 'hex') || '.' || n.epoch = c.name) LIMIT $1
	)
	UPDATE deliveries d SET token = NULL, due_at = next_at FROM ended e WHERE d.n = e.n AND d.token = e.token`

// ReleaseEnded implements sender.Peers, for the claimants that lease.Row.Claimant names.
func (db *DB) ReleaseEnded(ctx context.Context, limit int) (released int, err error) {
	err = db.write(ctx, func(t *tx) error {
		n, err := t.Exec(ctx, "release the deliveries of ended leases", releaseEnded, rows.Limit(limit))
		released = int(n)
		return err
	})
	return released, err
}
