package storetest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/calendar"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/plan"
	"github.com/keygate/keygate/internal/ratelimit"
)

// utc returns the calendar of a unit in UTC.
func utc(unit calendar.Unit) calendar.Calendar {
	return calendar.Calendar{Unit: unit, Zone: time.UTC, Anchor: 1}
}

// quotaClaim returns a claim of a process that knows nothing of the quota yet.
func quotaClaim(k ratelimit.QuotaKey, count, want int64) ratelimit.QuotaClaim {
	return ratelimit.QuotaClaim{QuotaKey: k, Terms: &ratelimit.QuotaTerms{Plan: "free", Count: count}, Calendar: utc(k.Unit), Want: want, Need: want}
}

// claimQuotas sends claims of a process, which must succeed.
func (h *harness) claimQuotas(process string, now time.Time, claims ...ratelimit.QuotaClaim) []ratelimit.QuotaClaim {
	h.Helper()
	_, err := h.ClaimQuotas(h.Context(), process, now, claims)
	h.must(err)
	return claims
}

func (h *harness) grantQuota(k ratelimit.QuotaKey, now time.Time, units int64) *plan.Grant {
	h.Helper()
	g := &plan.Grant{ID: id.New(id.Grant), AccountID: k.AccountID, Subject: k.Subject, Limit: k.Limit, Plan: "free", Meter: k.Meter, Unit: k.Unit, Units: units, Reason: "sörry", CreatedAt: now}
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.GrantQuota(ctx, k, utc(k.Unit), now, g) })
	return g
}

// quotaWindows returns the windows of the quotas of k's subject that have the time now.
func (h *harness) quotaWindows(k ratelimit.QuotaKey, now time.Time) []control.StoredQuota {
	h.Helper()
	all := get(h, func(ctx context.Context, tx control.ReadTx) ([]control.StoredQuota, error) {
		return tx.QuotaWindows(ctx, k.AccountID, k.Subject)
	})
	return slices.DeleteFunc(all, func(q control.StoredQuota) bool { return q.Start.After(now) || !q.End.After(now) })
}

func (h *harness) quotaGrants(k ratelimit.QuotaKey) []plan.Grant {
	h.Helper()
	return get(h, func(ctx context.Context, tx control.ReadTx) ([]plan.Grant, error) {
		return tx.QuotaGrants(ctx, k.AccountID, k.Subject, control.Page{Limit: 2000})
	})
}

func (h *harness) countedQuotas(a *account.Account) int64 {
	h.Helper()
	return get(h, func(ctx context.Context, tx control.ReadTx) (control.AccountCounts, error) {
		return tx.AccountCounts(ctx, a.ID)
	}).Quotas
}

// Guarantee: processes that claim at once never get more than the count and the grants together, and not less; each
// percentage is told once.
func testQuotasAtOnce(h *harness) {
	const processes, count, granted = 6, 400, 37
	a := h.insertAccount("a")
	keys := []ratelimit.QuotaKey{quotaKey(a, "x", calendar.Month), quotaKey(a, "y", calendar.Day), quotaKey(a, "z", calendar.Total)}
	var all sync.WaitGroup
	got, told := make([][3]int64, processes), make([][]int, processes)
	for p := range processes {
		all.Go(func() {
			claims := make([]ratelimit.QuotaClaim, len(keys))
			for round := 0; round < 2000 && !h.Failed(); round++ {
				more := int64(0)
				for i, k := range keys {
					known := claims[i]
					claims[i] = quotaClaim(k, count, int64(1+(p+round)%5))
					claims[i].Terms.WarnAt = []int{50, 100}
					claims[i].Window, claims[i].Own.Taken = known.Answer.Start, known.Share.Own.Taken // all are used at once
				}
				if p%2 == 1 { // in another order
					slices.Reverse(claims)
				}
				if _, err := h.ClaimQuotas(h.Context(), fmt.Sprint("process ", p), epoch(), claims); err != nil {
					h.Error(err)
					return
				}
				if p%2 == 1 {
					slices.Reverse(claims)
				}
				for i := range claims {
					got[p][i] += claims[i].Granted
					told[p] = append(told[p], claims[i].Passed...)
					more += claims[i].Granted
				}
				if more == 0 && round > 2 {
					return
				}
				if round == 1 && p == 0 {
					h.grantQuota(keys[0], epoch(), granted)
				}
			}
		})
	}
	all.Wait()
	var sums [3]int64
	var percents []int
	for p := range processes {
		percents = append(percents, told[p]...)
		for i := range sums {
			sums[i] += got[p][i]
		}
	}
	slices.Sort(percents)
	same(h, "granted", sums, [3]int64{count + granted, count, count})
	same(h, "told", percents, []int{50, 50, 50, 100, 100, 100})
	same(h, "events", len(h.events(a.ID)), 6)
}

// Guarantee: the event of a percentage says whose quota it is, and how much of which window is used; endpoints get it.
func testQuotaEvent(h *harness) {
	a := h.insertAccount("a")
	h.insertWebhook(a, event.QuotaThreshold)
	month, total := quotaClaim(quotaKey(a, "month", calendar.Month), 10, 9), quotaClaim(quotaKey(a, "ever", calendar.Total), 10, 10)
	month.Terms.WarnAt, month.Holder = []int{80}, ratelimit.QuotaHolder{OwnerID: "own_1", Owner: "ada"}
	total.Terms.WarnAt, total.Holder = []int{100}, ratelimit.QuotaHolder{KeyID: "key_1"}
	h.grantQuota(month.QuotaKey, epoch(), 1)
	claims := h.claimQuotas("p", epoch(), month, total)
	for i := range claims { // what is reserved is not used
		same(h, "told", len(claims[i].Passed), 0)
		claims[i].Window, claims[i].Own = claims[i].Answer.Start, ratelimit.QuotaFigures{Taken: claims[i].Granted}
		claims[i].Want, claims[i].Need = 0, 0
	}
	h.claimQuotas("p", epoch(), claims...)
	var got []string
	for _, e := range h.events(a.ID) {
		var payload struct {
			CreatedAt time.Time `json:"created_at"`
			Data      json.RawMessage
		}
		h.must(json.Unmarshal(e.Payload, &payload))
		same(h, "time", payload.CreatedAt, epoch())
		got = append(got, string(payload.Data))
	}
	slices.Sort(got)
	same(h, "events", got, []string{
		`{"limit":"ever","plan":"free","meter":"requests","percent":100,"used":10,"count":10,"window_start":"1970-01-01T00:00:00Z","window_end":null,"owner":null,"owner_id":null,"key_id":"key_1"}`,
		`{"limit":"month","plan":"free","meter":"requests","percent":80,"used":9,"count":11,"window_start":"2026-03-01T00:00:00Z","window_end":"2026-04-01T00:00:00Z","owner":"ada","owner_id":"own_1","key_id":null}`,
	})
	same(h, "deliveries", len(h.deliveries(a.ID, control.DeliveryFilter{})), 2)
}

// Guarantee: the grants of a subject are listed newest first and page by page, with the window that they belong to, and
// no account sees those of another one. A window has at most plan.MaxGrants.
func testQuotaGrants(h *harness) {
	a, b := h.insertAccount("a"), h.insertAccount("b")
	k, never, theirs := quotaKey(a, "x", calendar.Month), quotaKey(a, "y", calendar.Total), quotaKey(b, "x", calendar.Month)
	other := k
	other.Subject = "own_2"
	var want []plan.Grant
	for i := range 12 {
		want = append(want, *h.grantQuota([]ratelimit.QuotaKey{k, never}[i%2], epoch().Add(time.Duration(i)*100*time.Hour), int64(i+1)))
		h.grantQuota([]ratelimit.QuotaKey{theirs, other}[i%2], epoch(), 1)
	}
	slices.Reverse(want)
	same(h, "window", []time.Time{want[11].WindowStart, want[11].WindowEnd, want[10].WindowEnd},
		[]time.Time{time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC), calendar.Forever()})
	rapid.Check(h, func(t *rapid.T) {
		same(t, "grants", pages(t, h, func(ctx context.Context, tx control.ReadTx, p control.Page) ([]plan.Grant, error) {
			return tx.QuotaGrants(ctx, a.ID, k.Subject, p)
		}, func(g *plan.Grant) string { return g.ID }), want)
	})
	same(h, "units", h.quotaWindows(theirs, epoch())[0].Grants, int64(6))
	for i := 6; i < plan.MaxGrants; {
		h.update(func(ctx context.Context, tx control.Tx) error {
			for n := 0; i < plan.MaxGrants && n < 100; i, n = i+1, n+1 {
				if err := tx.GrantQuota(ctx, theirs, utc(theirs.Unit), epoch(), &plan.Grant{ID: id.New(id.Grant), Units: 1, CreatedAt: epoch()}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	one := func(now time.Time) func(ctx context.Context, tx control.Tx) error {
		return func(ctx context.Context, tx control.Tx) error {
			return tx.GrantQuota(ctx, theirs, utc(theirs.Unit), now, &plan.Grant{ID: id.New(id.Grant), Units: 1, CreatedAt: now})
		}
	}
	h.rejected(fault.Conflict, one(epoch()))
	same(h, "grants", len(h.quotaGrants(theirs)), plan.MaxGrants)
	h.update(one(epoch().Add(1000 * time.Hour)))
}

// Guarantee: retention removes windows that ended long ago with their shares and grants, and quotas without a window, in
// steps of bounded size. What has no end stays, and so does what a process of the past has taken.
func testQuotaTrim(h *harness) {
	a := h.insertAccount("a")
	h.insertKey(a, nil)
	day, month, total := quotaKey(a, "day", calendar.Day), quotaKey(a, "month", calendar.Month), quotaKey(a, "total", calendar.Total)
	keys := []ratelimit.QuotaKey{day, month, total}
	for i := range 4 { // each process on another day
		now := epoch().Add(time.Duration(i) * 24 * time.Hour)
		h.claimQuotas(fmt.Sprint("process ", i), now, quotaClaim(day, 10, 1), quotaClaim(month, 10, 1), quotaClaim(total, 10, 1))
		h.grantQuota(day, now, 1)
		h.grantQuota(total, now, 1)
	}
	same(h, "quotas", h.countedQuotas(a), int64(3))
	h.trimQuotas(epoch().Add(48 * time.Hour)) // the first two days
	same(h, "grants", len(h.quotaGrants(day)), 2+4)
	for i, want := range []int{2, 2, 3, 3} {
		same(h, fmt.Sprint("windows of day ", i), len(h.quotaWindows(day, epoch().Add(time.Duration(i)*24*time.Hour))), want)
	}
	now := epoch().Add(72 * time.Hour)
	for _, k := range keys[1:] {
		c := h.claimQuotas("process 3", now, quotaClaim(k, 10, 0))[0]
		same(h, "taken", c.Answer.All.Taken, int64(4))
		same(h, "own", c.Share.Own.Taken, int64(1))
	}
	h.trimQuotas(epoch().Add(100 * 24 * time.Hour))
	same(h, "quotas", h.countedQuotas(a), int64(1))
	same(h, "grants", len(h.quotaGrants(day)), 4)
	left := h.quotaWindows(day, epoch().Add(100*24*time.Hour))
	same(h, "left", []any{len(left), left[0].Limit, left[0].All.Taken}, []any{1, "total", int64(4)})
	c := h.claimQuotas("process 3", now, quotaClaim(total, 10, 0))[0]
	same(h, "own of the newest process", c.Share.Own.Taken, int64(1))
	c = h.claimQuotas("process 0", now, quotaClaim(total, 10, 0))[0]
	same(h, "of a process that was forgotten", []int64{c.Share.Own.Taken, c.Answer.All.Taken}, []int64{0, 4})
}

// Guarantee: the quotas of owners that were deleted are found and removed with all that belongs to them, and no others are.
func testStrayQuotas(h *harness) {
	a := h.insertAccount("a")
	k := h.insertKey(a, nil)
	kept, gone := h.insertOwner(a, "kept", nil), h.insertOwner(a, "gone", nil)
	bearer := id.Format(id.Key, id.Hashed("token", "iss_1", "ada")) // who has a token has no record
	for i, subject := range []string{k.ID, kept.ID, gone.ID, k.ID, gone.ID, "own_none", bearer} {
		q := quotaKey(a, fmt.Sprint("limit-", i), calendar.Total)
		q.Subject = subject
		h.claimQuotas("p", epoch(), quotaClaim(q, 10, 1))
		h.grantQuota(q, epoch(), 1)
		h.grantQuota(q, epoch(), 1)
	}
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.DeleteOwner(ctx, a.ID, gone.ID) })
	var found []int64
	for next, steps := int64(0), 0; ; steps++ {
		stray := get(h, func(ctx context.Context, tx control.ReadTx) (list []int64, err error) {
			list, next, err = tx.StrayQuotas(ctx, next, 2)
			return list, err
		})
		if found = append(found, stray...); next == 0 {
			same(h, "steps", steps, 3)
			break
		}
	}
	same(h, "found", len(found), 3)
	steps := 0
	for more := true; more; steps++ {
		h.update(func(ctx context.Context, tx control.Tx) (err error) {
			more, err = tx.DeleteQuotas(ctx, found, 2)
			return err
		})
	}
	same(h, "steps of about two rows", steps, 3)
	same(h, "quotas", h.countedQuotas(a), int64(4))
	for subject, want := range map[string]int{k.ID: 2, kept.ID: 1, gone.ID: 0, "own_none": 0, bearer: 1} {
		q := quotaKey(a, "", calendar.Total)
		q.Subject = subject
		same(h, "windows", len(h.quotaWindows(q, epoch())), want)
		same(h, "grants", len(h.quotaGrants(q)), 2*want)
	}
}
