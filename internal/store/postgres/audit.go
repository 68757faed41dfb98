package postgres

import (
	"context"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/store/rows"
)

// AppendAudit implements control.AuditStore. The account's row holds the last number, so numbers are
// dense and in the order of the commits. Inserts of rows that refer to the account do not wait for
// this lock.
func (t *tx) AppendAudit(ctx context.Context, r *audit.Record) error {
	var diff []byte
	if r.Diff != nil {
		var err error
		if diff, err = audit.EncodeDiff(r.Diff); err != nil {
			return err
		}
	}
	return t.enqueue(ctx, statement{what: "append audit record", record: "account", query: `WITH numbered AS (UPDATE accounts SET audit_seq = audit_seq + 1 WHERE id = $1 RETURNING audit_seq),
		changed AS (INSERT INTO audit (account_id, seq, time, kind, outcome, key_prefix, key_id, gateway_id,
			method, path, client_ip, request_id, action, target, actor_key_id, diff)
			SELECT $1, audit_seq, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15 FROM numbered RETURNING 1)
		SELECT 1 / count(*) FROM changed`, args: []any{
		r.AccountID, rows.Micros(r.Time), string(r.Kind), string(r.Outcome), []byte(r.KeyPrefix), r.KeyID, r.GatewayID,
		[]byte(r.Method), []byte(r.Path), r.ClientIP, []byte(r.RequestID), string(r.Action), []byte(r.Target), r.ActorText(), diff,
	}})
}
