package sqlite

import (
	"context"
	"database/sql"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/store/rows"
)

// AppendAudit implements control.AuditStore.
func (t *tx) AppendAudit(ctx context.Context, r *audit.Record) error {
	var diff sql.NullString
	if r.Diff != nil {
		b, err := audit.EncodeDiff(r.Diff)
		if err != nil {
			return err
		}
		diff = sql.NullString{String: string(b), Valid: true}
	}
	var seq int64
	err := t.Query(ctx, "number audit record", `UPDATE accounts SET audit_seq = audit_seq + 1 WHERE id = ? RETURNING audit_seq`,
		[]any{r.AccountID}, func(row *rows.Row) error { return row.Scan(&seq) })
	if err != nil {
		return err
	}
	if seq == 0 {
		return fault.Missing("account")
	}
	_, err = t.Exec(ctx, "append audit record", `INSERT INTO audit (account_id, seq, time, kind, outcome, key_prefix, key_id, gateway_id,
		method, path, client_ip, request_id, action, target, actor_key_id, diff)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		r.AccountID, seq, rows.Micros(r.Time), string(r.Kind), string(r.Outcome), r.KeyPrefix, r.KeyID, r.GatewayID,
		r.Method, r.Path, r.ClientIP, r.RequestID, string(r.Action), r.Target, r.ActorText(), diff)
	return err
}
