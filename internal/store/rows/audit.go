package rows

import (
	"context"
	"fmt"
	"math"
	"strconv"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/control"
)

// Audit implements control.AuditReader.
func (t *Reader) Audit(ctx context.Context, accountID string, p control.Page) ([]audit.Record, error) {
	before := int64(math.MaxInt64)
	if p.After != "" {
		var err error
		if before, err = strconv.ParseInt(p.After, 10, 64); err != nil {
			return nil, fmt.Errorf("page after %q: %w", p.After, err)
		}
	}
	return t.auditRecords(ctx, accountID, `AND seq < $2 ORDER BY seq DESC LIMIT $3`, before, Limit(p.Limit))
}

// auditRecords returns management records of an account. rest is the end of the query, in which $1 is the account.
func (t *Reader) auditRecords(ctx context.Context, accountID, rest string, args ...any) ([]audit.Record, error) {
	return readAll(ctx, t, "read audit log", `SELECT account_id, seq, time, kind, outcome, key_prefix, key_id, gateway_id, method, path,
		client_ip, request_id, action, target, actor_key_id, diff
		FROM audit WHERE account_id = $1 `+rest, append([]any{accountID}, args...), scanAudit)
}

func scanAudit(row *Row) (r audit.Record, err error) {
	var at int64
	var diff borrowed
	var actor string
	err = row.Scan(&r.AccountID, &r.Seq, &at, &r.Kind, &r.Outcome, (*text)(&r.KeyPrefix), &r.KeyID, &r.GatewayID, (*text)(&r.Method), (*text)(&r.Path),
		&r.ClientIP, (*text)(&r.RequestID), &r.Action, (*text)(&r.Target), &actor, &diff)
	if err != nil {
		return r, err
	}
	r.Time = Instant(at)
	r.SetActorText(actor)
	if diff == nil {
		return r, nil
	}
	if r.Diff, err = audit.DecodeDiff(diff); err != nil {
		return r, fmt.Errorf("audit record %d of %s: %w", r.Seq, r.AccountID, err)
	}
	return r, nil
}
