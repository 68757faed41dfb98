package rows

import (
	"context"
	"slices"
	"time"
)

// someWindows are windows of quotas that are to be removed.
type someWindows struct {
	windows []windowName
	rows    int  // with their grants
	all     bool // there are no others
}

// quotas returns the numbers of the quotas of the windows.
func (s *someWindows) quotas() (numbers []int64) {
	for _, w := range s.windows {
		numbers = append(numbers, w.Quota)
	}
	return numbers
}

// findWindows returns the first windows of a query with a LIMIT $2 that make up about limit rows with their grants.
func (t *Writer) findWindows(ctx context.Context, query string, of any, limit int) (some someWindows, err error) {
	found := 0
	err = t.Query(ctx, "find windows of quotas", query, []any{of, limit}, func(r *Row) error {
		var w windowName
		var grants int
		err := r.Scan(&w.Quota, &w.Start, &grants)
		if found++; some.rows < limit {
			some.windows, some.rows = append(some.windows, w), some.rows+1+grants
		}
		return err
	})
	some.all = found < limit && len(some.windows) == found
	return some, err
}

// TrimQuotas implements control.Trimmer.
func (t *Writer) TrimQuotas(ctx context.Context, ended time.Time, limit int) (more bool, err error) {
	if limit <= 0 {
		return false, t.Ready(ctx)
	}
	some, err := t.findWindows(ctx, `SELECT quota, start, granted FROM quota_windows INDEXED BY quota_windows_end WHERE ends < $1 ORDER BY ends LIMIT $2`, Micros(ended), limit)
	if err != nil {
		return false, err
	}
	if len(some.windows) > 0 {
		return t.removeWindows(ctx, some.windows, some.quotas())
	}
	return t.trimShares(ctx, Micros(ended), limit)
}

// removeWindows removes windows of quotas, and those of the quotas that have no others. It leaves the quotas that another
// transaction has locked.
func (t *Writer) removeWindows(ctx context.Context, windows []windowName, quotas []int64) (some bool, err error) {
	// Their counts first, as claims do that add quotas.
	err = t.Queue(ctx, "lock the counts of quotas", `SELECT 1 FROM account_counts WHERE account_id IN (SELECT account_id FROM quotas WHERE n = ANY ($1))
		ORDER BY account_id FOR NO KEY UPDATE`, quotas)
	if err != nil {
		return false, err
	}
	var locked []int64
	err = t.Query(ctx, "lock quotas", `SELECT n FROM quotas WHERE n = ANY ($1) ORDER BY n FOR UPDATE SKIP LOCKED`, []any{quotas}, func(r *Row) error {
		var n int64
		err := r.Scan(&n)
		locked = append(locked, n)
		return err
	})
	if err != nil || len(locked) == 0 {
		return false, err
	}
	windows = slices.DeleteFunc(windows, func(w windowName) bool {
		_, is := slices.BinarySearch(locked, w.Quota)
		return !is
	})
	set, err := asJSON(windows)
	if err != nil {
		return false, err
	}
	for _, table := range []string{"quota_shares", "quota_grants", "quota_windows"} {
		if err := t.Queue(ctx, "remove "+table, `DELETE FROM `+table+` WHERE (quota, start) IN (SELECT c.quota, c.start FROM `+windowSet+`)`, set); err != nil {
			return false, err
		}
	}
	return true, t.Queue(ctx, "remove quotas", `DELETE FROM quotas WHERE n = ANY ($1) AND NOT EXISTS (SELECT 1 FROM quota_windows w WHERE w.quota = quotas.n)`, locked)
}

// trimShares removes the shares of processes that have ended, and then the processes. The newest process stays: with
// SQLite, which has no nodes, it is the one that lives. A process that claims something meanwhile has its row locked.
func (t *Writer) trimShares(ctx context.Context, seen int64, limit int) (more bool, err error) {
	const ended = `FROM quota_processes WHERE seen < $1 AND n < (SELECT max(n) FROM quota_processes) AND n NOT IN (SELECT n FROM quota_processes_live) ORDER BY n LIMIT 1`
	found, err := t.read.Exists(ctx, "find a process that has ended", `SELECT n `+ended, seen)
	if err != nil || !found {
		return false, err
	}
	var process int64
	err = t.Query(ctx, "lock a process that has ended", `SELECT n `+ended+` FOR UPDATE SKIP LOCKED`, []any{seen}, func(r *Row) error { return r.Scan(&process) })
	if err != nil || process == 0 {
		return false, err
	}
	n, err := t.Delete(ctx, "trim shares of quotas", `DELETE FROM quota_shares WHERE (quota, start, process) IN
		(SELECT quota, start, process FROM quota_shares INDEXED BY quota_shares_process WHERE process = $1 LIMIT $2)`, process, limit)
	if err != nil || n == int64(limit) {
		return err == nil, err
	}
	return true, t.Queue(ctx, "trim processes of quotas", `DELETE FROM quota_processes WHERE n = $1`, process)
}

// DeleteQuotas implements control.Trimmer.
func (t *Writer) DeleteQuotas(ctx context.Context, quotas []int64, limit int) (more bool, err error) {
	if limit <= 0 || len(quotas) == 0 {
		return false, t.Ready(ctx)
	}
	some, err := t.findWindows(ctx, `SELECT quota, start, granted FROM quota_windows WHERE quota = ANY ($1) ORDER BY quota, start LIMIT $2`, quotas, limit)
	if err != nil {
		return false, err
	}
	removed, err := t.removeWindows(ctx, some.windows, quotas)
	return !some.all && removed, err
}

// quotas removes quotas of a deleted account.
func (r *removal) quotas(ctx context.Context) error {
	var numbers []int64
	most := r.Most(quotaWeight)
	err := r.Query(ctx, "find quotas of a deleted account", `SELECT n FROM quotas WHERE account_id = $1 ORDER BY account_id, subject LIMIT $2`, []any{r.accountID, most}, func(row *Row) error {
		var n int64
		err := row.Scan(&n)
		numbers = append(numbers, n)
		return err
	})
	if err != nil || len(numbers) == 0 {
		return err
	}
	if _, err := r.DeleteQuotas(ctx, numbers, most); err != nil {
		return err
	}
	r.Removed(r.Most(1), 1) // there may be others
	return nil
}
