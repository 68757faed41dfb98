package rows

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/validation"
)

var _ validation.Store = (*Store)(nil)

// MergeValidation implements validation.Store.
func (s *Store) MergeValidation(ctx context.Context, list []*validation.Report, now time.Time) error {
	return s.engine.Write(ctx, OfTraffic, func(t *Writer) error {
		for _, r := range list {
			if err := t.mergeValidation(ctx, r, now); err != nil {
				return err
			}
		}
		return t.Queue(ctx, "remove old reports of documents", `DELETE FROM validation_reports WHERE gateway_id IN
			(SELECT gateway_id FROM validation_reports INDEXED BY validation_reports_updated WHERE updated_at < $1 ORDER BY updated_at LIMIT $2)`,
			Micros(now.Add(-(validation.Hours+1)*time.Hour)), Limit(100))
	})
}

// mergeValidation adds a report to that of the gateway. The row is locked before it is read, so that nodes add to it in turn.
func (t *Writer) mergeValidation(ctx context.Context, r *validation.Report, now time.Time) error {
	is, err := t.read.Exists(ctx, "find the gateway of a report", `SELECT 1 FROM gateways WHERE id = $1 AND account_id = $2`, r.GatewayID, r.AccountID)
	if err != nil || !is { // it was deleted
		return err
	}
	err = t.Queue(ctx, "insert a report of a document", `INSERT INTO validation_reports (gateway_id, account_id, data, updated_at) VALUES ($1, $2, $3, $4)
		ON CONFLICT (gateway_id) DO NOTHING`, r.GatewayID, r.AccountID, (&validation.Report{}).Encode(), Micros(now))
	if err != nil {
		return err
	}
	sum, err := t.read.validation(ctx, r.GatewayID, ` FOR UPDATE`)
	if err != nil {
		return err
	}
	sum.Merge(r)
	sum.Trim(now)
	return t.Queue(ctx, "put a report of a document", `UPDATE validation_reports SET data = $1, updated_at = $2 WHERE gateway_id = $3`, sum.Encode(), Micros(now), r.GatewayID)
}

// validation returns the report of a gateway, which is empty if there is none.
func (t *Reader) validation(ctx context.Context, gatewayID, rest string) (*validation.Report, error) {
	r := &validation.Report{}
	err := t.Query(ctx, "read a report of a document", `SELECT data FROM validation_reports WHERE gateway_id = $1`+rest, []any{gatewayID}, func(row *Row) error {
		var data []byte
		err := row.Scan(&data)
		if err == nil {
			r, err = validation.Decode(data)
		}
		return Decoded(err)
	})
	return r, err
}

// Validation implements validation.Store.
func (s *Store) Validation(ctx context.Context, gatewayID string) (*validation.Report, error) {
	return read(ctx, s, Calls, func(t *Reader) (*validation.Report, error) { return t.validation(ctx, gatewayID, "") })
}
