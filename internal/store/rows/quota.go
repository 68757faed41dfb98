package rows

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/calendar"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/ratelimit"
)

// quotaSet is a JSON parameter of quotas, which are numbered by i.
const quotaSet = `json_to_recordset($1::json) AS c (i bigint, account text, subject text, name text, meter text, unit integer)`

// sameQuota is the condition that the row q is of the quota c of a quotaSet.
const sameQuota = `q.account_id = c.account AND q.subject = c.subject AND q.name = c.name AND q.meter = c.meter AND q.unit = c.unit`

// quotaSetOf returns n quotas as a parameter for quotaSet.
func quotaSetOf(n int, key func(i int) *ratelimit.QuotaKey) (string, error) {
	type name struct {
		I       int           `json:"i"`
		Account string        `json:"account"`
		Subject string        `json:"subject"`
		Name    string        `json:"name"`
		Meter   string        `json:"meter"`
		Unit    calendar.Unit `json:"unit"`
	}
	set := make([]name, n)
	for i := range set {
		k := key(i)
		set[i] = name{i, k.AccountID, k.Subject, k.Limit, k.Meter, k.Unit}
	}
	return asJSON(set)
}

// asJSON returns rows as a parameter of json_to_recordset.
func asJSON[T any](set []T) (string, error) {
	if len(set) == 0 {
		return "[]", nil
	}
	text, err := json.Marshal(set)
	if err != nil {
		return "", fmt.Errorf("encode rows: %w", err)
	}
	return string(text), nil
}

// addQuotas adds the quotas of a quotaSet that there are not yet, unless their account has most already. It adds them in
// one order, so that two transactions that add the same ones do not wait for each other.
func (t *Writer) addQuotas(ctx context.Context, set string) error {
	return t.Queue(ctx, "add quotas", `INSERT INTO quotas (account_id, subject, name, meter, unit)
		SELECT DISTINCT c.account, c.subject, c.name, c.meter, c.unit FROM `+quotaSet+` WHERE NOT EXISTS (SELECT 1 FROM quotas q WHERE `+sameQuota+`)
			AND NOT EXISTS (SELECT 1 FROM account_counts a WHERE a.account_id = c.account AND a.quotas >= $2)
		ORDER BY 1, 2, 3, 4, 5 ON CONFLICT DO NOTHING`, set, control.MaxAccountQuotas)
}

// lockQuotas calls found for each quota of a quotaSet that there is, with its i and the number of its row. Until the end of
// the transaction no other one may change the windows of these quotas. All transactions lock in the order of the numbers.
func (t *Writer) lockQuotas(ctx context.Context, set string, found func(i int, n int64)) error {
	return t.Query(ctx, "lock quotas", `SELECT c.i, q.n FROM `+quotaSet+` CROSS JOIN quotas q ON `+sameQuota+` ORDER BY q.n FOR NO KEY UPDATE OF q`,
		[]any{set}, func(r *Row) error {
			var i int
			var n int64
			err := r.Scan(&i, &n)
			found(i, n)
			return err
		})
}

// ErrRemoved is the error of claims to a quota that was removed.
var ErrRemoved = errors.New("a quota was removed")

// tooManyQuotas is the error of a quota that addQuotas has not added.
func tooManyQuotas(code fault.Code) error {
	return fault.New(code, "the account has counts of %d quotas, which is the most that it may have: those without a present window are removed two days after their last one, and those of a deleted owner within hours", control.MaxAccountQuotas)
}

// windowOf returns the window that has the time now among those that are stored, sorted by their starts, or else the next
// one by the calendar, between the stored ones.
func windowOf(stored []*quotaWindow, now time.Time, c *calendar.Calendar) (w *quotaWindow, isNew bool) {
	for i := len(stored) - 1; i >= 0; i-- {
		if w := stored[i]; !w.Start.After(now) && w.End.After(now) {
			return w, false
		}
	}
	w = &quotaWindow{}
	w.Start, w.End = c.Between(now, func(yield func(start, end time.Time) bool) {
		for _, other := range stored {
			if !yield(other.Start, other.End) {
				return
			}
		}
	})
	return w, true
}

const quotaWindowColumns = `w.start, w.ends, w.taken, w.reserved, w.grants, w.told`

// scanQuotaWindow scans quotaWindowColumns, and other columns around them.
func scanQuotaWindow(r *Row, w *ratelimit.QuotaWindow, before, after []any) error {
	var start, end int64
	var told string
	err := r.Scan(append(append(before, &start, &end, &w.All.Taken, &w.All.Reserved, &w.Grants, &told), after...)...)
	if err != nil {
		return err
	}
	w.Start, w.End = Instant(start), Instant(end)
	w.Told, err = percentages(told)
	return err
}

// percentages returns stored percentages.
func percentages(text string) (list []int, err error) {
	for field := range strings.FieldsSeq(text) {
		n, err := strconv.Atoi(field)
		if err != nil {
			return nil, fmt.Errorf("decode percentages: %w", err)
		}
		list = append(list, n)
	}
	return list, nil
}

// storedPercentages returns the form that percentages reads.
func storedPercentages(list []int) string {
	var text []byte
	for i, n := range list {
		if i > 0 {
			text = append(text, ' ')
		}
		text = strconv.AppendInt(text, int64(n), 10)
	}
	return string(text)
}

// QuotaWindows implements control.QuotaReader.
func (t *Reader) QuotaWindows(ctx context.Context, accountID, subject string) ([]control.StoredQuota, error) {
	return readAll(ctx, t, "read quotas", `SELECT q.name, q.meter, q.unit, `+quotaWindowColumns+`
		FROM quotas q CROSS JOIN quota_windows w ON w.quota = q.n
		WHERE q.account_id = $1 AND q.subject = $2 ORDER BY q.name, q.meter, q.unit, w.start`,
		[]any{accountID, subject}, func(r *Row) (q control.StoredQuota, err error) {
			q.AccountID, q.Subject = accountID, subject
			err = scanQuotaWindow(r, &q.QuotaWindow, []any{&q.Limit, &q.Meter, &q.Unit}, nil)
			return q, err
		})
}

// StrayQuotas implements control.QuotaReader. Keys are never removed before their account is. Who has no record but an
// identifier from id.Hashed, as the bearer of a token, does not stop existing.
func (t *Reader) StrayQuotas(ctx context.Context, after int64, limit int) (stray []int64, next int64, err error) {
	seen := 0
	err = t.Query(ctx, "find stray quotas", `SELECT q.n, EXISTS (SELECT 1 FROM owners o WHERE o.id = q.subject AND o.account_id = q.account_id)
			OR q.subject LIKE 'key\_7zz%' ESCAPE '\' OR q.subject LIKE 'own\_7zz%' ESCAPE '\' OR EXISTS (SELECT 1 FROM keys k WHERE k.id = q.subject AND k.account_id = q.account_id)
		FROM quotas q WHERE q.n > $1 ORDER BY q.n LIMIT $2`, []any{after, Limit(limit)}, func(r *Row) error {
		var exists bool
		if err := r.Scan(&next, &exists); err != nil {
			return err
		}
		if seen++; !exists {
			stray = append(stray, next)
		}
		return nil
	})
	if seen < limit {
		next = 0
	}
	return stray, next, err
}
