package rows

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/keygate/keygate/internal/canary"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/gateway"
)

const canaryColumns = `SELECT id, account_id, gateway_id, state, step, number, ran, since, plan, progress, explanation, lines, created_at, ended_at, version FROM canaries `

func scanCanary(r *Row) (canary.Canary, error) {
	var (
		c canary.Canary
		s struct { // one allocation
			plan, progress      string
			lines               sql.NullString
			ran, since, created int64
			ended               sql.NullInt64
		}
	)
	err := r.Scan(&c.ID, &c.AccountID, &c.GatewayID, &c.State, &c.Step, &c.Number, &s.ran, &s.since, &s.plan, &s.progress, &c.Explanation, &s.lines, &s.created, &s.ended, &c.Version)
	if err != nil {
		return c, err
	}
	c.Ran, c.Since, c.CreatedAt, c.EndedAt = time.Duration(s.ran)*time.Microsecond, Instant(s.since), Instant(s.created), MaybeInstant(s.ended)
	if err := json.Unmarshal([]byte(s.plan), &c.Plan); err != nil {
		return c, fmt.Errorf("decode the plan of canary %s: %w", c.ID, err)
	}
	if err := json.Unmarshal([]byte(s.progress), &c.Progress); err != nil {
		return c, fmt.Errorf("decode the progress of canary %s: %w", c.ID, err)
	}
	return c, fromJSON(s.lines, &c.Lines)
}

// SelectCanaries reads the canaries that the rest of the query selects.
func (t *Reader) SelectCanaries(ctx context.Context, rest string, args ...any) ([]canary.Canary, error) {
	return readAll(ctx, t, "read canaries", canaryColumns+rest, args, scanCanary)
}

// Canary implements control.CanaryReader.
func (t *Reader) Canary(ctx context.Context, accountID, gatewayID, canaryID string) (*canary.Canary, error) {
	return readOne(ctx, t, "canary", canaryColumns+`WHERE id = $1 AND gateway_id = $2 AND account_id = $3`, []any{canaryID, gatewayID, accountID}, scanCanary)
}

// CanaryByID implements control.CanaryReader.
func (t *Reader) CanaryByID(ctx context.Context, canaryID string) (*canary.Canary, error) {
	return readOne(ctx, t, "canary", canaryColumns+`WHERE id = $1`, []any{canaryID}, scanCanary)
}

// Canaries implements control.CanaryReader.
func (t *Reader) Canaries(ctx context.Context, gatewayID string, p control.Page) ([]canary.Canary, error) {
	return t.SelectCanaries(ctx, `INDEXED BY canaries_list WHERE gateway_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3`, gatewayID, Below(p.After), Limit(p.Limit))
}

// RunningCanaries implements control.CanaryReader.
func (t *Reader) RunningCanaries(ctx context.Context, after string, limit int) ([]canary.Canary, error) {
	return t.SelectCanaries(ctx, `INDEXED BY canaries_running WHERE state = 'running' AND id > $1 ORDER BY id LIMIT $2`, after, Limit(limit))
}

// HasCanaries implements control.CanaryReader. It reads n entries of an index.
func (t *Reader) HasCanaries(ctx context.Context, accountID string, n int) (bool, error) {
	return t.Exists(ctx, "count canaries", `SELECT 1 FROM canaries INDEXED BY canaries_account WHERE account_id = $1 AND ended = false ORDER BY id LIMIT 1 OFFSET $2`, accountID, n-1)
}

// HasRunningCanaries implements control.CanaryReader. It reads n entries of an index.
func (t *Reader) HasRunningCanaries(ctx context.Context, n int) (bool, error) {
	return t.Exists(ctx, "count running canaries", `SELECT 1 FROM canaries INDEXED BY canaries_running WHERE state = 'running' ORDER BY id LIMIT 1 OFFSET $1`, n-1)
}

// CanaryLead implements control.CanaryReader.
func (t *Reader) CanaryLead(ctx context.Context) (l canary.Lead, err error) {
	err = t.Query(ctx, "read who judges canaries", `SELECT claimant, epoch FROM canary_lead`, nil, func(r *Row) error {
		return r.Scan(&l.Claimant, &l.Epoch)
	})
	return l, err
}

// canaryValues returns the values that InsertCanary and UpdateCanary write, in their order.
func canaryValues(c *canary.Canary) ([]any, error) {
	progress, err := json.Marshal(c.Progress)
	if err != nil {
		return nil, fmt.Errorf("encode the progress of canary %s: %w", c.ID, err)
	}
	lines, err := maybeJSON(c.Lines, len(c.Lines) == 0)
	if err != nil {
		return nil, err
	}
	plan, err := json.Marshal(&c.Plan)
	if err != nil {
		return nil, fmt.Errorf("encode the plan of canary %s: %w", c.ID, err)
	}
	return []any{string(c.State), c.State.Done(), c.Step, c.Number, c.Ran.Microseconds(), Micros(c.Since), string(plan), string(progress), c.Explanation, lines, MaybeMicros(c.EndedAt), c.Version, c.ID}, nil
}

// InsertCanary implements control.CanaryStore.
func (t *Writer) InsertCanary(ctx context.Context, c *canary.Canary) error {
	values, err := canaryValues(c)
	if err != nil {
		return err
	}
	return t.Queue(ctx, "insert canary", `INSERT INTO canaries (state, ended, step, number, ran, since, plan, progress, explanation, lines, ended_at, version,
		id, account_id, gateway_id, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)`, append(values, c.AccountID, c.GatewayID, Micros(c.CreatedAt))...)
}

// UpdateCanary implements control.CanaryStore.
func (t *Writer) UpdateCanary(ctx context.Context, c *canary.Canary) error {
	values, err := canaryValues(c)
	if err != nil {
		return err
	}
	return t.QueueOne(ctx, "update canary", "canary", `UPDATE canaries SET state = $1, ended = $2, step = $3, number = $4, ran = $5, since = $6, plan = $7, progress = $8,
		explanation = $9, lines = $10, ended_at = $11, version = $12 WHERE id = $13 AND account_id = $14`, append(values, c.AccountID)...)
}

// SetCanaryShare implements control.CanaryStore.
func (t *Writer) SetCanaryShare(ctx context.Context, accountID, gatewayID string, share *gateway.CanaryShare) error {
	value, err := maybeJSON(share, share == nil)
	if err != nil {
		return err
	}
	return t.QueueOne(ctx, "set the share of a canary", "gateway", `UPDATE gateways SET canary = $1 WHERE id = $2 AND account_id = $3`, value, gatewayID, accountID)
}

// TrimCanaries implements control.CanaryStore.
func (t *Writer) TrimCanaries(ctx context.Context, accountID, gatewayID string, ofGateway, ofAccount int) error {
	if err := t.Queue(ctx, "trim the canaries of a gateway", `DELETE FROM canaries WHERE id IN (SELECT id FROM canaries INDEXED BY canaries_list
		WHERE gateway_id = $1 AND ended = true ORDER BY id DESC LIMIT 10 OFFSET $2)`, gatewayID, Limit(ofGateway)); err != nil {
		return err
	}
	return t.Queue(ctx, "trim the canaries of an account", `DELETE FROM canaries WHERE id IN (SELECT id FROM canaries INDEXED BY canaries_account
		WHERE account_id = $1 AND ended = true ORDER BY id DESC LIMIT 10 OFFSET $2)`, accountID, Limit(ofAccount))
}
