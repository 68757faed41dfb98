package postgres

import (
	"context"
	"fmt"
	"math"
	"strconv"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/control"
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
	return t.auditRecords(ctx, accountID, `AND seq < $2 ORDER BY seq DESC LIMIT $3`, before, rows.Limit(p.Limit))
}

// auditRecords returns management records of an account. rest is the end of the query, in which $1 is the account.
func (t *readTx) auditRecords(ctx context.Context, accountID, rest string, args ...any) ([]audit.Record, error) {
	var list []audit.Record
	err := t.Query(ctx, "read audit log", `SELECT account_id, seq, time, kind, outcome, key_prefix, key_id, gateway_id, method, path,
		client_ip, request_id, action, target, actor_key_id, diff
		FROM audit WHERE account_id = $1 `+rest,
		append([]any{accountID}, args...), func(row rows.Row) error {
			r, err := scanAudit(row)
			list = append(list, r)
			return err
		})
	return list, err
}

func scanAudit(row rows.Row) (r audit.Record, err error) {
	var at int64
	var prefix, method, path, request, target, diff []byte
	err = row.Scan(&r.AccountID, &r.Seq, &at, &r.Kind, &r.Outcome, &prefix, &r.KeyID, &r.GatewayID, &method, &path,
		&r.ClientIP, &request, &r.Action, &target, &r.ActorKeyID, &diff)
	if err != nil {
		return r, err
	}
	r.Time, r.KeyPrefix, r.Method, r.Path = rows.Instant(at), string(prefix), string(method), string(path)
	r.RequestID, r.Target = string(request), string(target)
	if diff == nil {
		return r, nil
	}
	if r.Diff, err = audit.DecodeDiff(diff); err != nil {
		return r, fmt.Errorf("audit record %d of %s: %w", r.Seq, r.AccountID, err)
	}
	return r, nil
}

// AppendAudit implements control.AuditStore. The account's row holds the last number, so numbers are
// dense and in the order of the commits. Rows that refer to the account do not wait for it.
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
		[]byte(r.Method), []byte(r.Path), r.ClientIP, []byte(r.RequestID), string(r.Action), []byte(r.Target), r.ActorKeyID, diff,
	}})
}
