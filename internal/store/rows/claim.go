package rows

import (
	"context"
	"database/sql"
	"time"

	"github.com/keygate/keygate/internal/webhook/sender"
)

// ClaimDeliveries implements sender.Queue. It returns an error only if it leased nothing: leased deliveries must be sent.
func (s *Store) ClaimDeliveries(ctx context.Context, c sender.Claim) (all []sender.Job, err error) {
	if len(c.Wants) == 0 {
		return nil, ctx.Err()
	}
	for rest := c.Wants; len(rest) > 0; {
		n := 0
		for left := s.engine.ClaimAtOnce; n < len(rest) && left > 0; n++ {
			left -= rest[n].Limit
		}
		c.Wants, rest = rest[:n], rest[n:]
		var jobs []sender.Job
		err := s.engine.Write(ctx, Durable, func(t *Writer) (err error) {
			jobs, err = t.Claim(ctx, &c)
			return err
		})
		if err != nil && len(all) == 0 {
			return nil, err
		}
		if err != nil {
			return all, nil
		}
		all = append(all, jobs...)
	}
	return all, nil
}

// CandidatesQuery finds deliveries of an endpoint that a claim may lease, with what is needed to send them: up to $3 of
// those with an attempt, $4 of those without, and $5 of those that were requested one by one, each the ones that have been
// due longest. Deliveries that another claim is leasing are skipped, not waited for.
const CandidatesQuery = `SELECT d.n, queue_now($2) - d.due_at, d.state, w.active AND a.state = 'active', d.id, d.event_id, d.event_type, d.cause, d.attempts, d.next_at,
		e.payload, w.id, w.url, w.secret, w.old_secret, w.old_until
	FROM webhooks w CROSS JOIN accounts a ON a.id = w.account_id CROSS JOIN deliveries d ON d.n = ANY (ARRAY(
		SELECT n FROM (SELECT n FROM deliveries INDEXED BY deliveries_due WHERE webhook_id = $1 AND state = 1
			AND due_at <= queue_now($2) ORDER BY due_at LIMIT $3 FOR UPDATE SKIP LOCKED) AS retries
		UNION ALL SELECT n FROM (SELECT n FROM deliveries INDEXED BY deliveries_due WHERE webhook_id = $1 AND state = 0
			AND due_at <= queue_now($2) ORDER BY due_at LIMIT $4 FOR UPDATE SKIP LOCKED) AS firsts
		UNION ALL SELECT n FROM (SELECT n FROM deliveries INDEXED BY deliveries_hand WHERE webhook_id = $1 AND due_at IS NOT NULL AND state = 0
			AND cause IN ('manual', 'test') AND due_at <= queue_now($2) ORDER BY due_at LIMIT $5 FOR UPDATE SKIP LOCKED) AS by_hand
	)) CROSS JOIN events e ON e.id = d.event_id WHERE w.id = $1`

// Claim leases the deliveries that the claim chooses among those of its endpoints. The leases end by the queue's clock:
// a node's clock may differ, and a node may have been stopped since it read its clock.
func (t *Writer) Claim(ctx context.Context, c *sender.Claim) (jobs []sender.Job, err error) {
	n := len(c.Wants)
	ids, retries, firsts, byHand := make([]string, n), make([]int64, n), make([]int64, n), make([]int64, n)
	for i, w := range c.Wants {
		ids[i], retries[i] = w.WebhookID, int64(Limit(w.Limit))
		if w.SkipNew {
			byHand[i] = retries[i]
		} else {
			firsts[i] = retries[i]
		}
	}
	var found []sender.Candidate
	err = t.QueryEach(ctx, "find due deliveries", CandidatesQuery, []any{ids, Micros(c.Now), retries, firsts, byHand}, func(r *Row) error {
		d, err := scanCandidate(r)
		found = append(found, d)
		return err
	})
	if err != nil {
		return nil, err
	}
	var leased []int64
	for _, d := range c.Choose(found) {
		leased, jobs = append(leased, d.N), append(jobs, d.Job)
	}
	if len(leased) == 0 {
		return nil, nil
	}
	return jobs, t.Queue(ctx, "lease deliveries", `UPDATE deliveries SET token = $1, due_at = queue_now($2) + $3::bigint WHERE n = ANY ($4)`,
		c.Token, Micros(c.Now), Micros(c.Until)-Micros(c.Now), leased)
}

func scanCandidate(r *Row) (sender.Candidate, error) {
	var (
		d sender.Candidate
		c struct { // one allocation
			waited, state, made, next int64
			until                     sql.NullInt64
		}
	)
	w := &d.Endpoint
	err := r.Scan(&d.N, &c.waited, &c.state, &d.Active, &d.DeliveryID, &d.EventID, &d.EventType, &d.Trigger, &c.made, &c.next,
		&d.Payload, &w.WebhookID, &w.URL, &w.Secret, &w.OldSecret, &c.until)
	d.Waited, d.Begun = time.Duration(c.waited)*time.Microsecond, isBegun(c.state, d.Trigger)
	d.Attempt, d.DueAt, w.OldUntil = int(c.made)+1, Instant(c.next), MaybeInstant(c.until)
	return d, err
}

// ReleaseDeliveries implements sender.Queue.
func (s *Store) ReleaseDeliveries(ctx context.Context, leases []sender.Lease) error {
	ids, tokens := make([]string, len(leases)), make([]string, len(leases))
	for i, l := range leases {
		ids[i], tokens[i] = l.DeliveryID, l.Token
	}
	return s.engine.Write(ctx, Durable, func(t *Writer) error {
		return t.QueueEach(ctx, "release deliveries", `UPDATE deliveries AS d SET token = NULL, due_at = next_at
			FROM unnest($1::text[], $2::text[]) AS l (id, token) WHERE d.id = l.id COLLATE "C" AND d.token = l.token COLLATE "C"`, ids, tokens)
	})
}
