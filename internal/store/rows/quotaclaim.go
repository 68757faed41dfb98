package rows

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/calendar"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/ratelimit"
)

// quotaWindow is a stored window of a quota, as a process that claims sees it, and what it changes.
type quotaWindow struct {
	ratelimit.QuotaWindow
	share         ratelimit.QuotaShare
	recalled      bool // the share
	windowChanged bool
	shareChanged  bool
	recall        bool // the shares of others
}

// storedQuota is a quota with its windows in the order of their starts.
type storedQuota struct {
	n       int64
	windows []*quotaWindow
}

// quotaClaims are the claims of one transaction.
type quotaClaims struct {
	process int64 // number of the process
	now     time.Time
	quotas  map[int64]*storedQuota // by number
	of      []*storedQuota         // of each claim; nil if it is refused
	passed  []passedQuota
}

// passedQuota is a percentage that a claim is the first to pass.
type passedQuota struct {
	claim   *ratelimit.QuotaClaim // with the answer of the window in question
	percent int
}

// ClaimQuotas is that of ratelimit.QuotaStore in a transaction of its own. The number of statements does not depend on
// that of the claims. at is the time by the clock of the store. If the error is ErrRemoved, another transaction must make
// the same claims, with all.
func (t *Writer) ClaimQuotas(ctx context.Context, process string, now time.Time, claims []ratelimit.QuotaClaim, all bool) (at time.Time, err error) {
	if err := t.noteProcess(ctx, process, now); err != nil {
		return at, err
	}
	b := quotaClaims{now: now, quotas: map[int64]*storedQuota{}, of: make([]*storedQuota, len(claims))}
	if err := t.findQuotas(ctx, claims, all, &b); err != nil {
		return at, err
	}
	if err := t.readQuotas(ctx, process, &b); err != nil {
		return at, err
	}
	for i := range claims {
		b.apply(&claims[i], b.of[i])
	}
	if err := t.writeQuotas(ctx, &b); err != nil {
		return at, err
	}
	return b.now, t.tellQuotas(ctx, &b)
}

// findQuotas locks the quotas of the claims, and before that adds those that there are not yet. If the process knows a
// window of a quota, there is that quota, unless it was removed: it is added only if all is true.
func (t *Writer) findQuotas(ctx context.Context, claims []ratelimit.QuotaClaim, all bool, b *quotaClaims) error {
	var perhapsNew []*ratelimit.QuotaKey
	for i := range claims {
		if all || claims[i].Window.IsZero() {
			perhapsNew = append(perhapsNew, &claims[i].QuotaKey)
		}
	}
	if len(perhapsNew) > 0 {
		set, err := quotaSetOf(len(perhapsNew), func(i int) *ratelimit.QuotaKey { return perhapsNew[i] })
		if err != nil {
			return err
		}
		if err := t.addQuotas(ctx, set); err != nil {
			return err
		}
	}
	set, err := quotaSetOf(len(claims), func(i int) *ratelimit.QuotaKey { return &claims[i].QuotaKey })
	if err != nil {
		return err
	}
	err = t.lockQuotas(ctx, set, func(i int, n int64) {
		if b.quotas[n] == nil {
			b.quotas[n] = &storedQuota{n: n}
		}
		b.of[i] = b.quotas[n]
	})
	if err != nil || !slices.Contains(b.of, nil) {
		return err
	}
	return t.explainMissing(ctx, set, b)
}

// explainMissing returns ErrRemoved if a quota is missing although its account has room for it.
func (t *Writer) explainMissing(ctx context.Context, set string, b *quotaClaims) error {
	full := map[int]bool{}
	err := t.Query(ctx, "find full accounts", `SELECT c.i FROM `+quotaSet+` CROSS JOIN account_counts a ON a.account_id = c.account AND a.quotas >= $2`,
		[]any{set, control.MaxAccountQuotas}, func(r *Row) error {
			var i int
			err := r.Scan(&i)
			full[i] = true
			return err
		})
	if err != nil {
		return err
	}
	for i, q := range b.of {
		if q == nil && !full[i] {
			return ErrRemoved
		}
	}
	return nil
}

// seenEvery is how exactly the store knows when a process claimed something last.
const seenEvery = time.Hour

// noteProcess stores the process, and that it lives.
func (t *Writer) noteProcess(ctx context.Context, process string, now time.Time) error {
	err := t.Queue(ctx, "add a process", `INSERT INTO quota_processes (name, seen) SELECT $1::text, queue_now($2::bigint)
		WHERE NOT EXISTS (SELECT 1 FROM quota_processes WHERE name = $1) ON CONFLICT DO NOTHING`, process, Micros(now))
	if err != nil {
		return err
	}
	return t.Queue(ctx, "note a process", `UPDATE quota_processes SET seen = queue_now($1::bigint)
		WHERE name = $2 AND seen < queue_now($1::bigint) - $3`, Micros(now), process, seenEvery.Microseconds())
}

// claimedWindows reads the windows of quotas, with the share of a process and what other processes that live have reserved.
const claimedWindows = `SELECT p.n, queue_now($2::bigint), q.n, w.start IS NOT NULL, coalesce(w.start, 0), coalesce(w.ends, 0), coalesce(w.taken, 0), coalesce(w.reserved, 0),
		coalesce(w.grants, 0), coalesce(w.told, ''), coalesce(s.taken, 0), coalesce(s.reserved, 0), coalesce(s.recalled, false),
		(SELECT coalesce(sum(o.reserved), 0)::bigint FROM quota_shares o
			WHERE o.quota = w.quota AND o.start = w.start AND o.process <> p.n AND o.process = ANY (ARRAY(SELECT n FROM quota_processes_live)))
	FROM quota_processes p CROSS JOIN quotas q LEFT JOIN quota_windows w ON w.quota = q.n
		LEFT JOIN quota_shares s ON s.quota = w.quota AND s.start = w.start AND s.process = p.n
	WHERE p.name = $3 AND q.n = ANY ($1) ORDER BY q.n, w.start`

// readQuotas reads the windows of the quotas that are locked, and the clock.
func (t *Writer) readQuotas(ctx context.Context, process string, b *quotaClaims) error {
	numbers := make([]int64, 0, len(b.quotas))
	for n := range b.quotas {
		numbers = append(numbers, n)
	}
	if len(numbers) == 0 {
		return nil
	}
	slices.Sort(numbers)
	given := Micros(b.now)
	return t.Query(ctx, "read quotas", claimedWindows, []any{numbers, given, process}, func(r *Row) error {
		var w quotaWindow
		var now, n int64
		var stored bool
		err := scanQuotaWindow(r, &w.QuotaWindow, []any{&b.process, &now, &n, &stored},
			[]any{&w.share.Own.Taken, &w.share.Own.Reserved, &w.recalled, &w.share.OthersHold})
		if err != nil {
			return Decoded(err)
		}
		b.now = Instant(now)
		if q := b.quotas[n]; stored {
			q.windows = append(q.windows, &w)
		}
		return nil
	})
}

// apply sets the answer to a claim to q.
func (b *quotaClaims) apply(c *ratelimit.QuotaClaim, q *storedQuota) {
	c.Answer, c.Share, c.Granted, c.Passed, c.Err = ratelimit.QuotaWindow{}, ratelimit.QuotaShare{}, 0, nil, nil
	if q == nil {
		c.Err = tooManyQuotas(fault.Unavailable)
		return
	}
	present, isNew := windowOf(q.windows, b.now, &c.Calendar)
	if isNew {
		present.windowChanged = true
		q.windows = append(q.windows, present)
		slices.SortFunc(q.windows, func(x, y *quotaWindow) int { return x.Start.Compare(y.Start) })
	}
	for _, w := range q.windows {
		if w != present && w.Start.Equal(c.Window) {
			late := *c
			late.Want, late.Need = 0, 0
			b.grant(w, &late)
		}
	}
	b.grant(present, c)
	present.recall = present.recall || c.Recalls()
}

// mostPassed is how many percentages the claims of one transaction tell of. Those that claims leave out are told of by the
// next claim to their quota, which follows at once.
const mostPassed = 50

// grant lets the claim change the window.
func (b *quotaClaims) grant(w *quotaWindow, c *ratelimit.QuotaClaim) {
	before, own := w.All, w.share.Own
	quiet := c.Quiet
	c.Quiet = quiet || len(b.passed)+len(c.Terms.WarnAt) > mostPassed
	c.Grant(w.QuotaWindow, w.share)
	c.Quiet = quiet
	w.QuotaWindow, w.share = c.Answer, c.Share
	w.windowChanged = w.windowChanged || w.All != before || len(c.Passed) > 0
	w.shareChanged = w.shareChanged || w.share.Own != own
	if w.recalled && c.Window.Equal(w.Start) {
		w.recalled, w.shareChanged = false, true
	}
	for _, percent := range c.Passed {
		b.passed = append(b.passed, passedQuota{c, percent})
	}
}

// The rows of JSON parameters.
type (
	windowRow struct {
		Quota    int64  `json:"quota"`
		Start    int64  `json:"start"`
		Ends     int64  `json:"ends"`
		Taken    int64  `json:"taken"`
		Reserved int64  `json:"reserved"`
		Told     string `json:"told"`
	}
	shareRow struct {
		Quota    int64 `json:"quota"`
		Start    int64 `json:"start"`
		Taken    int64 `json:"taken"`
		Reserved int64 `json:"reserved"`
		Recalled bool  `json:"recalled"`
	}
	windowName struct {
		Quota int64 `json:"quota"`
		Start int64 `json:"start"`
	}
)

// windowSet is a JSON parameter of windowNames.
const windowSet = `json_to_recordset($1::json) AS c (quota bigint, start bigint)`

// writeQuotas writes the rows that the claims change.
func (t *Writer) writeQuotas(ctx context.Context, b *quotaClaims) error {
	var windows []windowRow
	var shares []shareRow
	var recalls []windowName
	for _, q := range b.quotas {
		for _, w := range q.windows {
			start := Micros(w.Start)
			if w.windowChanged {
				windows = append(windows, windowRow{q.n, start, Micros(w.End), w.All.Taken, w.All.Reserved, storedPercentages(w.Told)})
			}
			if w.shareChanged {
				shares = append(shares, shareRow{q.n, start, w.share.Own.Taken, w.share.Own.Reserved, w.recalled})
			}
			if w.recall {
				recalls = append(recalls, windowName{q.n, start})
			}
		}
	}
	if err := t.putQuotaWindows(ctx, windows); err != nil {
		return err
	}
	if len(shares) > 0 {
		set, err := asJSON(shares)
		if err != nil {
			return err
		}
		err = t.Queue(ctx, "put shares of quotas", `INSERT INTO quota_shares (quota, start, process, taken, reserved, recalled)
			SELECT c.quota, c.start, $2::bigint, c.taken, c.reserved, c.recalled
			FROM json_to_recordset($1::json) AS c (quota bigint, start bigint, taken bigint, reserved bigint, recalled boolean) WHERE true
			ON CONFLICT (quota, start, process) DO UPDATE SET taken = excluded.taken, reserved = excluded.reserved, recalled = excluded.recalled`, set, b.process)
		if err != nil {
			return err
		}
	}
	return t.recall(ctx, recalls, b.process)
}

// putQuotaWindows writes what windows have counted, and adds those that there are not yet.
func (t *Writer) putQuotaWindows(ctx context.Context, windows []windowRow) error {
	if len(windows) == 0 {
		return nil
	}
	set, err := asJSON(windows)
	if err != nil {
		return err
	}
	return t.Queue(ctx, "put windows of quotas", `INSERT INTO quota_windows (quota, start, ends, taken, reserved, told)
		SELECT c.quota, c.start, c.ends, c.taken, c.reserved, c.told
		FROM json_to_recordset($1::json) AS c (quota bigint, start bigint, ends bigint, taken bigint, reserved bigint, told text) WHERE true
		ON CONFLICT (quota, start) DO UPDATE SET taken = excluded.taken, reserved = excluded.reserved, told = excluded.told`, set)
}

// tellQuotas raises the events of the claims. Those of an account follow each other, so that its endpoints are read once,
// and all of them are read before the first event takes a number (AppendEvents).
func (t *Writer) tellQuotas(ctx context.Context, b *quotaClaims) error {
	slices.SortStableFunc(b.passed, func(x, y passedQuota) int {
		return cmp.Or(strings.Compare(x.claim.AccountID, y.claim.AccountID), cmp.Compare(x.percent, y.percent))
	})
	events := make([]event.Event, len(b.passed))
	endpoints := make([][]string, len(b.passed))
	for i, p := range b.passed {
		var err error
		if events[i], err = event.New(p.claim.AccountID, event.QuotaThreshold, b.now, thresholdOf(p)); err != nil {
			return err
		}
		if endpoints[i], err = t.EventListeners(ctx, &events[i]); err != nil {
			return err
		}
	}
	for i := range events {
		if err := t.AppendEventFor(ctx, &events[i], endpoints[i]); err != nil {
			return err
		}
	}
	return nil
}

func thresholdOf(p passedQuota) event.Threshold {
	c := p.claim
	e := event.Threshold{
		Limit: c.Limit, Plan: c.Terms.Plan, Meter: c.Meter, Percent: p.percent, Used: c.Answer.Used(), Count: c.Terms.Units(c.Answer.Grants),
		WindowStart: c.Answer.Start, Owner: orNil(c.Holder.Owner), OwnerID: orNil(c.Holder.OwnerID), KeyID: orNil(c.Holder.KeyID),
	}
	if end := c.Answer.End; end.Before(calendar.Forever()) {
		e.WindowEnd = &end
	}
	return e
}

// orNil returns nil for "".
func orNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
