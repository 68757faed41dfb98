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

// ofQuota is the condition that the row q is of the quota of the parameters quotaParams returns.
const ofQuota = `q.account_id = $1 AND q.subject = $2 AND q.name = $3 AND q.meter = $4 AND q.unit = $5`

func quotaParams(k *ratelimit.QuotaKey, others ...any) []any {
	return append([]any{k.AccountID, k.Subject, k.Limit, k.Meter, k.Unit}, others...)
}

// GrantQuota implements control.QuotaGranter. It reads before it writes anything, and names the quota by its key, so that a
// mutation needs the head of the change log for nothing but its end.
func (t *Writer) GrantQuota(ctx context.Context, key ratelimit.QuotaKey, c calendar.Calendar, now time.Time, g *plan.Grant) error {
	set, err := quotaSetOf(1, func(int) *ratelimit.QuotaKey { return &key })
	if err != nil {
		return err
	}
	quota := int64(0)
	if err := t.lockQuotas(ctx, set, func(_ int, n int64) { quota = n }); err != nil {
		return err
	}
	var stored []*quotaWindow
	granted := map[*quotaWindow]int{}
	// Without what is counted in a window, which changes with the traffic.
	err = t.Query(ctx, "read the windows of a quota", `SELECT w.start, w.ends, w.granted FROM quota_windows w WHERE w.quota = $1 ORDER BY w.start`, []any{quota}, func(r *Row) error {
		var w quotaWindow
		var start, end int64
		var times int
		if err := r.Scan(&start, &end, &times); err != nil {
			return err
		}
		w.Start, w.End = Instant(start), Instant(end)
		stored, granted[&w] = append(stored, &w), times
		return nil
	})
	if err != nil {
		return err
	}
	w, _ := windowOf(stored, now, &c)
	if granted[w] >= plan.MaxGrants {
		return t.Fail(fault.New(fault.Conflict, "units were granted %d times in this window of the quota, which is the most: change the plan's limit instead", plan.MaxGrants))
	}
	if quota == 0 {
		if err := t.addQuotas(ctx, set); err != nil {
			return err
		}
	}
	g.WindowStart, g.WindowEnd = w.Start, w.End
	start := Micros(w.Start)
	// Only the account's bound keeps a quota from being there: in a mutation nobody removes quotas.
	err = t.QueueOrFail(ctx, "add granted units", tooManyQuotas(fault.Conflict), `INSERT INTO quota_windows (quota, start, ends, taken, reserved, told, grants, granted)
		SELECT q.n, $6::bigint, $7::bigint, 0, 0, '', $8::bigint, 1 FROM quotas q WHERE `+ofQuota+`
		ON CONFLICT (quota, start) DO UPDATE SET grants = quota_windows.grants + excluded.grants, granted = quota_windows.granted + 1`,
		quotaParams(&key, start, Micros(w.End), g.Units)...)
	if err != nil {
		return err
	}
	return t.Queue(ctx, "insert grant", `INSERT INTO quota_grants (id, account_id, subject, quota, start, plan, units, reason, created_at)
		SELECT $6::text, q.account_id, q.subject, q.n, $7::bigint, $8::text, $9::bigint, $10::text, $11::bigint FROM quotas q WHERE `+ofQuota,
		quotaParams(&key, g.ID, start, g.Plan, g.Units, g.Reason, Micros(g.CreatedAt))...)
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
