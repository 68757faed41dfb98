package rows

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/calendar"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/plan"
	"github.com/keygate/keygate/internal/ratelimit"
)

// GrantQuota implements control.QuotaGranter.
func (t *Writer) GrantQuota(ctx context.Context, key ratelimit.QuotaKey, c calendar.Calendar, now time.Time, g *plan.Grant) error {
	set, err := quotaSetOf(1, func(int) *ratelimit.QuotaKey { return &key })
	if err != nil {
		return err
	}
	if err := t.addQuotas(ctx, set); err != nil {
		return err
	}
	quota := int64(0)
	if err := t.lockQuotas(ctx, set, func(_ int, n int64) { quota = n }); err != nil {
		return err
	}
	if quota == 0 {
		return t.Fail(tooManyQuotas(fault.Conflict)) // in a mutation nobody removes quotas
	}
	var stored []*quotaWindow
	granted := map[*quotaWindow]int{}
	err = t.Query(ctx, "read the windows of a quota", `SELECT `+quotaWindowColumns+`, w.granted FROM quota_windows w WHERE w.quota = $1 ORDER BY w.start`, []any{quota}, func(r *Row) error {
		var w quotaWindow
		var times int
		if err := scanQuotaWindow(r, &w.QuotaWindow, nil, []any{&times}); err != nil {
			return Decoded(err)
		}
		stored, granted[&w] = append(stored, &w), times
		return nil
	})
	if err != nil {
		return err
	}
	w, isNew := windowOf(stored, now, &c)
	if granted[w] >= plan.MaxGrants {
		return t.Fail(fault.New(fault.Conflict, "units were granted %d times in this window of the quota, which is the most: change the plan's limit instead", plan.MaxGrants))
	}
	start := Micros(w.Start)
	if isNew {
		if err := t.putQuotaWindows(ctx, []windowRow{{Quota: quota, Start: start, Ends: Micros(w.End)}}); err != nil {
			return err
		}
	}
	g.WindowStart, g.WindowEnd = w.Start, w.End
	if err := t.Queue(ctx, "add granted units", `UPDATE quota_windows SET grants = grants + $1, granted = granted + 1 WHERE quota = $2 AND start = $3`, g.Units, quota, start); err != nil {
		return err
	}
	return t.Queue(ctx, "insert grant", `INSERT INTO quota_grants (id, account_id, subject, quota, start, plan, units, reason, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`, g.ID, key.AccountID, key.Subject, quota, start, g.Plan, g.Units, g.Reason, Micros(g.CreatedAt))
}

// QuotaGrants implements control.QuotaReader.
func (t *Reader) QuotaGrants(ctx context.Context, accountID, subject string, p control.Page) ([]plan.Grant, error) {
	return readAll(ctx, t, "read grants", `SELECT g.id, q.name, g.plan, q.meter, q.unit, g.units, g.reason, w.start, w.ends, g.created_at
		FROM quota_grants g INDEXED BY quota_grants_list CROSS JOIN quotas q ON q.n = g.quota CROSS JOIN quota_windows w ON w.quota = g.quota AND w.start = g.start
		WHERE g.account_id = $1 AND g.subject = $2 AND g.id < $3 ORDER BY g.id DESC LIMIT $4`,
		[]any{accountID, subject, Below(p.After), Limit(p.Limit)}, func(r *Row) (plan.Grant, error) {
			g := plan.Grant{AccountID: accountID, Subject: subject}
			var start, end, created int64
			err := r.Scan(&g.ID, &g.Limit, &g.Plan, &g.Meter, &g.Unit, &g.Units, &g.Reason, &start, &end, &created)
			g.WindowStart, g.WindowEnd, g.CreatedAt = Instant(start), Instant(end), Instant(created)
			return g, err
		})
}
