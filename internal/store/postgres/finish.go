package postgres

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/store/rows"
	"github.com/keygate/keygate/internal/webhook"
	"github.com/keygate/keygate/internal/webhook/sender"
)

// endLeases records results with their attempts. A retry is due at its distance from the end of the
// attempt, by the queue's clock.
const endLeases = `WITH result AS MATERIALIZED (
		SELECT * FROM unnest($1::text[], $2::text[], $3::integer[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bytea[], $10::bytea[], $11::bigint[])
		WITH ORDINALITY AS r (id, token, state, number, started_at, duration, status, ended, error, response, wait, ordinal)
	), ended AS (
		UPDATE deliveries d SET state = r.state, attempts = r.number, next_at = queue_now(r.ended) + r.wait, due_at = queue_now(r.ended) + r.wait, token = NULL,
			finished_at = CASE WHEN r.wait IS NULL THEN r.ended END
		FROM result r WHERE d.id = r.id COLLATE "C" AND d.token = r.token COLLATE "C" RETURNING d.n, d.webhook_id, r.ordinal
	), made AS (
		INSERT INTO attempts (n, number, started_at, duration, status, error, response)
		SELECT e.n, r.number, r.started_at, r.duration, r.status, r.error, r.response FROM ended e JOIN result r USING (ordinal)
	)
	SELECT ordinal, webhook_id FROM ended`

// EndLeases implements sender.FinishTx.
func (t *tx) EndLeases(ctx context.Context, results []sender.Result) (endpoints []string, err error) {
	n := len(results)
	var (
		ids, tokens                              = make([]string, n), make([]string, n)
		states                                   = make([]int, n)
		numbers, started, durations, codes, ends = make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
		errs, responses                          = make([][]byte, n), make([][]byte, n)
		waits                                    = make([]*int64, n)
	)
	for i := range results {
		r, a := &results[i], &results[i].Attempt
		ids[i], tokens[i], states[i] = r.DeliveryID, r.Token, rows.DeliveryState(r.State)
		numbers[i], started[i], durations[i], codes[i], ends[i] = int64(a.Number), rows.Micros(a.StartedAt), int64(a.Duration), int64(a.Status), rows.Micros(a.Ended())
		errs[i], responses[i] = []byte(a.Error), rows.Response(a)
		if r.State != webhook.Delivered && r.State != webhook.Failed {
			wait := rows.Micros(r.NextAttemptAt) - ends[i]
			waits[i] = &wait
		}
	}
	endpoints = make([]string, n)
	err = t.Query(ctx, "finish deliveries", endLeases, []any{ids, tokens, states, numbers, started, durations, codes, ends, errs, responses, waits}, func(r *rows.Row) error {
		var ordinal int64
		var endpoint string
		err := r.Scan(&ordinal, &endpoint)
		endpoints[ordinal-1] = endpoint
		return err
	})
	return endpoints, err
}

// Strand implements control.DeliveryStore. The transaction has locked the endpoint.
func (t *tx) Strand(ctx context.Context, webhookID string, w *webhook.Webhook, now time.Time, limit int) error {
	return t.Queue(ctx, "fail stranded deliveries", failWaiting, webhookID, rows.Micros(now), rows.Limit(limit), []byte(w.NotSent()))
}

const failWaiting = `WITH stranded AS MATERIALIZED (
			SELECT n, attempts FROM deliveries WHERE webhook_id = $1 AND due_at IS NOT NULL AND (token IS NULL OR due_at <= queue_now($2))
			LIMIT $3 FOR UPDATE SKIP LOCKED
		), failed AS (
			UPDATE deliveries d SET state = 3, next_at = NULL, due_at = NULL, token = NULL, finished_at = $2 FROM stranded s WHERE d.n = s.n
		)
		INSERT INTO attempts (n, number, started_at, duration, status, error) SELECT n, attempts + 1, $2, 0, 0, $4 FROM stranded`

// FailWaiting implements sender.FinishTx. A delivery that is being finished or claimed is skipped.
func (t *tx) FailWaiting(ctx context.Context, endpoint, reason string, now time.Time, limit int) (int, error) {
	n, err := t.Exec(ctx, "fail stranded deliveries", failWaiting, endpoint, rows.Micros(now), rows.Limit(limit), []byte(reason))
	return int(n), err
}
