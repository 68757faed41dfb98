package rows

import (
	"context"

	"github.com/keygate/keygate/internal/ratelimit"
)

// othersHold is the condition that the share is of another process that lives, and has something reserved. $2 is the number
// of the process.
const othersHold = `process <> $2 AND process = ANY (ARRAY(SELECT n FROM quota_processes_live)) AND reserved > 0`

// recall asks the other processes that live to give back what they have reserved of windows. The quotas must be locked.
func (t *Writer) recall(ctx context.Context, windows []windowName, process int64) error {
	if len(windows) == 0 {
		return nil
	}
	set, err := asJSON(windows)
	if err != nil {
		return err
	}
	return t.Queue(ctx, "recall shares of quotas", `UPDATE quota_shares SET recalled = true
		WHERE (quota, start) IN (SELECT c.quota, c.start FROM `+windowSet+`) AND recalled = false AND `+othersHold, set, process)
}

// RecallQuotas is that of ratelimit.QuotaStore in a transaction of its own.
func (t *Writer) RecallQuotas(ctx context.Context, process string, keys []ratelimit.QuotaKey) (waiting int, err error) {
	set, err := quotaSetOf(len(keys), func(i int) *ratelimit.QuotaKey { return &keys[i] })
	if err != nil {
		return 0, err
	}
	var numbers []int64
	if err := t.lockQuotas(ctx, set, func(_ int, n int64) { numbers = append(numbers, n) }); err != nil || len(numbers) == 0 {
		return 0, err
	}
	var own int64 // 0 if it has never claimed anything
	var windows []windowName
	err = t.Query(ctx, "read present windows", `SELECT coalesce((SELECT n FROM quota_processes WHERE name = $3), 0), quota, start FROM quota_windows
		WHERE quota = ANY ($1) AND start <= queue_now($2::bigint) AND ends > queue_now($2::bigint)`, []any{numbers, t.Now(), process}, func(r *Row) error {
		var w windowName
		err := r.Scan(&own, &w.Quota, &w.Start)
		windows = append(windows, w)
		return err
	})
	if err != nil || len(windows) == 0 {
		return 0, err
	}
	if err := t.recall(ctx, windows, own); err != nil {
		return 0, err
	}
	if set, err = asJSON(windows); err != nil {
		return 0, err
	}
	err = t.Query(ctx, "count recalled shares", `SELECT count(DISTINCT process) FROM quota_shares
		WHERE (quota, start) IN (SELECT c.quota, c.start FROM `+windowSet+`) AND recalled = true AND `+othersHold, []any{set, own},
		func(r *Row) error { return r.Scan(&waiting) })
	return waiting, err
}

// RecalledQuotas implements ratelimit.QuotaStore.
func (t *Reader) RecalledQuotas(ctx context.Context, process string, most int) ([]ratelimit.QuotaKey, error) {
	return readAll(ctx, t, "read recalled quotas", `SELECT DISTINCT q.account_id, q.subject, q.name, q.meter, q.unit
		FROM quota_processes p CROSS JOIN quota_shares s INDEXED BY quota_shares_process ON s.process = p.n AND s.recalled = true CROSS JOIN quotas q ON q.n = s.quota
		WHERE p.name = $1 LIMIT $2`, []any{process, Limit(most)}, func(r *Row) (k ratelimit.QuotaKey, err error) {
		err = r.Scan(&k.AccountID, &k.Subject, &k.Limit, &k.Meter, &k.Unit)
		return k, err
	})
}
