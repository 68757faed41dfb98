package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"strconv"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/store/rows"
)

// Audit implements control.AuditReader.
func (t *readTx) Audit(ctx context.Context, accountID string, p control.Page) ([]audit.Record, error) {
	before := int64(math.MaxInt64)
	if p.After != "" {
		var err error
		if before, err = strconv.ParseInt(p.After, 10, 64); err != nil {
			return nil, fmt.Errorf("page after %q: %w", p.After, err)
		}
	}
	return t.auditRecords(ctx, accountID, `AND seq < ? ORDER BY seq DESC LIMIT ?+0`, before, rows.Limit(p.Limit))
}

// auditRecords returns management records of an account. rest is the end of the query.
func (t *readTx) auditRecords(ctx context.Context, accountID, rest string, args ...any) ([]audit.Record, error) {
	var list []audit.Record
	err := t.Query(ctx, "read audit log", `SELECT account_id, seq, time, kind, outcome, key_prefix, key_id, gateway_id, method, path,
		client_ip, request_id, action, target, actor_key_id, diff
		FROM audit WHERE account_id = ? `+rest,
		append([]any{accountID}, args...), func(row rows.Row) error {
			var (
				r    audit.Record
				at   int64
				diff sql.NullString
			)
			err := row.Scan(&r.AccountID, &r.Seq, &at, &r.Kind, &r.Outcome, &r.KeyPrefix, &r.KeyID, &r.GatewayID, &r.Method, &r.Path,
				&r.ClientIP, &r.RequestID, &r.Action, &r.Target, &r.ActorKeyID, &diff)
			if err != nil {
				return err
			}
			r.Time = rows.Instant(at)
			if diff.Valid {
				if r.Diff, err = audit.DecodeDiff([]byte(diff.String)); err != nil {
					return fmt.Errorf("audit record %d of %s: %w", r.Seq, accountID, err)
				}
			}
			list = append(list, r)
			return nil
		})
	return list, err
}

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
		[]any{r.AccountID}, func(row rows.Row) error { return row.Scan(&seq) })
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
		r.Method, r.Path, r.ClientIP, r.RequestID, string(r.Action), r.Target, r.ActorKeyID, diff)
	return err
}
