package postgres

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/calendar"
	"github.com/keygate/keygate/internal/cluster/lease"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/plan"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/store/rows"
)

// quotaHarness is a database with processes whose nodes have leases.
type quotaHarness struct{ *clusterHarness }

// join makes a process live, and returns its name.
func (h *quotaHarness) join(node string, ttl time.Duration) string {
	h.Helper()
	boot := lease.Boot{}
	copy(boot[:], node)
	h.carry(lease.Call{Kind: lease.Join, Node: node, Boot: boot, TTL: ttl})
	return hex.EncodeToString(boot[:])
}

func (h *quotaHarness) claim(process string, claims ...ratelimit.QuotaClaim) []ratelimit.QuotaClaim {
	h.Helper()
	if _, err := h.db.ClaimQuotas(h.Context(), process, time.Now(), claims); err != nil {
		h.Fatal(err)
	}
	return claims
}

// recalled returns the names of the limits of which units are recalled from a process.
func (h *quotaHarness) recalled(process string) (limits []string) {
	h.Helper()
	keys, err := h.db.RecalledQuotas(h.Context(), process, 10)
	if err != nil {
		h.Fatal(err)
	}
	for _, k := range keys {
		limits = append(limits, k.Limit)
	}
	slices.Sort(limits)
	return limits
}

func (h *quotaHarness) exec(statement string, args ...any) {
	h.Helper()
	if _, err := h.db.writer.Exec(h.Context(), statement, args...); err != nil {
		h.Fatal(err)
	}
}

func (h *quotaHarness) number(query string) (n int64) {
	h.Helper()
	if err := h.db.writer.QueryRow(h.Context(), query).Scan(&n); err != nil {
		h.Fatal(err)
	}
	return n
}

func quotaKey(limit string) ratelimit.QuotaKey {
	return ratelimit.QuotaKey{QuotaName: ratelimit.QuotaName{AccountID: "acct_1", Limit: limit, Meter: ratelimit.Requests, Unit: calendar.Month}, Subject: "own_1"}
}

// quotaClaim is the claim of a process that knows nothing of the quota yet.
func quotaClaim(k ratelimit.QuotaKey, count, want int64) ratelimit.QuotaClaim {
	return ratelimit.QuotaClaim{QuotaKey: k, Terms: &ratelimit.QuotaTerms{Plan: "free", Count: count}, Want: want, Need: want,
		Calendar: calendar.Calendar{Unit: k.Unit, Zone: time.UTC, Anchor: 1}}
}

// next is the claim after an answer.
func next(c ratelimit.QuotaClaim, own ratelimit.QuotaFigures, want int64) ratelimit.QuotaClaim {
	n := quotaClaim(c.QuotaKey, c.Terms.Count, want)
	n.Window, n.Own = c.Answer.Start, own
	return n
}

// Guarantee: a process that lacks units recalls those that other processes which live have reserved, also by itself; they
// see it until they claim. What a process without a lease has reserved is lost and not waited for.
func TestQuotasAreRecalled(t *testing.T) {
	h := &quotaHarness{newClusterHarness(t)}
	a, b, dead := h.join("a", time.Hour), h.join("b", time.Hour), h.join("c", time.Hour)
	h.exec(`UPDATE nodes SET renewed = clock_timestamp() - interval '61 minutes' WHERE name = 'c'`)
	ofA := h.claim(a, quotaClaim(quotaKey("x"), 10, 6), quotaClaim(quotaKey("y"), 10, 5))
	h.claim(dead, quotaClaim(quotaKey("x"), 10, 2))
	ofB := h.claim(b, quotaClaim(quotaKey("x"), 10, 4), quotaClaim(quotaKey("y"), 10, 5))
	if x, y := ofB[0], ofB[1]; x.Granted != 2 || x.Share.OthersHold != 6 || y.Granted != 5 || y.Share.OthersHold != 5 {
		t.Errorf("got %d units of x while others hold %d, and %d of y while they hold %d; want 2, 6, 5 and 5", x.Granted, x.Share.OthersHold, y.Granted, y.Share.OthersHold)
	}
	if got := h.recalled(a); !slices.Equal(got, []string{"x"}) {
		t.Errorf("recalled from a: %v, want x", got)
	}
	if got := append(h.recalled(b), h.recalled(dead)...); len(got) > 0 {
		t.Errorf("recalled from others: %v", got)
	}
	h.claim(a, next(ofA[0], ratelimit.QuotaFigures{Taken: 1}, 0)) // it has used one
	if got := h.recalled(a); len(got) > 0 {
		t.Errorf("still recalled: %v", got)
	}
	if got := h.claim(b, next(ofB[0], ratelimit.QuotaFigures{Taken: 2}, 9))[0]; got.Granted != 5 || got.Share.OthersHold != 0 {
		t.Errorf("got %d units while others hold %d, want 5 and 0", got.Granted, got.Share.OthersHold)
	}
	for range 2 {
		if n, err := h.db.RecallQuotas(t.Context(), a, []ratelimit.QuotaKey{quotaKey("x"), quotaKey("y"), quotaKey("none")}); n != 1 || err != nil {
			t.Errorf("%d processes are waited for, %v; want b", n, err)
		}
	}
	if got := append(h.recalled(a), h.recalled(b)...); !slices.Equal(got, []string{"x", "y"}) {
		t.Errorf("recalled by hand: %v", got)
	}
	h.claim(b, next(ofB[0], ratelimit.QuotaFigures{Taken: 2}, 0), next(ofB[1], ratelimit.QuotaFigures{Taken: 1}, 0))
	if n, err := h.db.RecallQuotas(t.Context(), a, []ratelimit.QuotaKey{quotaKey("x"), quotaKey("y")}); n != 0 || err != nil {
		t.Errorf("%d processes are waited for, %v; want none", n, err)
	}
}

// Guarantee: retention keeps what processes that live have taken apart, however long they have claimed nothing, and adds
// up what the others have taken.
func TestTrimKeepsSharesOfNodesThatLive(t *testing.T) {
	h := &quotaHarness{newClusterHarness(t)}
	live, gone := h.join("live", time.Hour), h.join("gone", time.Hour)
	var claims []ratelimit.QuotaClaim
	for i := range 5 {
		k := quotaKey(fmt.Sprint(i))
		k.Unit = calendar.Total
		claims = append(claims, quotaClaim(k, 10, 1))
	}
	for _, process := range []string{live, gone, "newest"} {
		h.claim(process, claims...)
	}
	h.exec(`UPDATE nodes SET state = 'stopped' WHERE name = 'gone'`)
	trim := func(ended time.Time) {
		t.Helper()
		for more := true; more; {
			err := h.db.Update(t.Context(), func(tx control.Tx) (err error) {
				more, err = tx.TrimQuotas(t.Context(), ended, 2)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	trim(time.Now().Add(-2 * time.Hour))
	if n := h.number(`SELECT count(*) FROM quota_shares`); n != 15 {
		t.Errorf("there are %d shares, want all 15", n)
	}
	trim(time.Now().Add(2 * time.Hour))
	if n := h.number(`SELECT count(*) FROM quota_shares`); n != 10 {
		t.Errorf("there are %d shares, want 10", n)
	}
	if n := h.number(`SELECT count(*) FROM quota_processes`); n != 2 {
		t.Errorf("there are %d processes, want 2", n)
	}
	if got := h.claim(live, claims...)[0]; got.Share.Own.Taken != 2 || got.Answer.All.Taken != 4 {
		t.Errorf("own %d of %d, want 2 of 4", got.Share.Own.Taken, got.Answer.All.Taken)
	}
}

// Guarantee: retention does not remove a quota while a claim adds a window to it, and waits for no claim.
func TestTrimLeavesQuotasThatAreClaimed(t *testing.T) {
	h := &quotaHarness{newClusterHarness(t)}
	h.claim("p", quotaClaim(quotaKey("x"), 10, 1))
	h.exec(`DELETE FROM quota_shares`)
	h.exec(`UPDATE quota_windows SET start = 1, ends = 2`)
	trim := func() {
		t.Helper()
		err := h.db.Update(t.Context(), func(tx control.Tx) error {
			_, err := tx.TrimQuotas(t.Context(), time.Unix(1, 0), 10)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	err := h.db.write(t.Context(), func(tx *tx) error {
		claims := []ratelimit.QuotaClaim{quotaClaim(quotaKey("x"), 10, 1)}
		if _, err := tx.ClaimQuotas(t.Context(), "p", time.Now(), claims, false); err != nil {
			return err
		}
		trim()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	trim()
	if n := h.number(`SELECT count(*) FROM quota_windows JOIN quotas ON n = quota`); n != 1 {
		t.Errorf("there are %d windows, want that of the claim", n)
	}
}

// Guarantee: claims of several nodes and retention may run at once: none fails, and the numbers of quotas stay right.
func TestClaimsAndTrimAtOnce(t *testing.T) {
	h := &quotaHarness{newClusterHarness(t)}
	h.exec(`INSERT INTO account_counts (account_id) VALUES ('acct_0'), ('acct_1'), ('acct_2')`)
	var all sync.WaitGroup
	for p := range 4 {
		all.Go(func() {
			for round := range 30 {
				var claims []ratelimit.QuotaClaim
				for i := range 12 {
					k := quotaKey(fmt.Sprint((i + p + round) % 17))
					k.AccountID = fmt.Sprintf("acct_%d", i%3)
					claims = append(claims, quotaClaim(k, 1000, 1))
				}
				if p%2 == 0 {
					slices.Reverse(claims)
				}
				if _, err := h.db.ClaimQuotas(t.Context(), fmt.Sprint(p), time.Now(), claims); err != nil {
					t.Errorf("claim: %v", err)
				}
			}
		})
	}
	all.Go(func() {
		for range 60 {
			err := h.db.Update(t.Context(), func(tx control.Tx) error {
				_, err := tx.TrimQuotas(t.Context(), time.Now().Add(1000*time.Hour), 7)
				return err
			})
			if err != nil {
				t.Errorf("trim: %v", err)
			}
		}
	})
	all.Wait()
	if n := h.number(`SELECT count(*) FROM account_counts c WHERE quotas <> (SELECT count(*) FROM quotas q WHERE q.account_id = c.account_id)`); n > 0 {
		t.Errorf("the quotas of %d accounts are counted wrongly", n)
	}
	if n := h.number(`SELECT count(*) FROM quotas WHERE NOT EXISTS (SELECT FROM quota_windows WHERE quota = n)`); n > 0 {
		t.Errorf("%d quotas have no window", n)
	}
	if n := h.number(`SELECT count(*) FROM quota_windows w WHERE taken < (SELECT coalesce(sum(taken), 0) FROM quota_shares s WHERE s.quota = w.quota AND s.start = w.start)`); n > 0 {
		t.Errorf("%d windows have less than their shares", n)
	}
}

// Guarantee: an account that has as many quotas as it may have gets no others, and goes on with those that it has. Claims
// of other accounts succeed.
func TestQuotasOfAnAccountAreBounded(t *testing.T) {
	h := &quotaHarness{newClusterHarness(t)}
	h.exec(`INSERT INTO account_counts (account_id) VALUES ('acct_1')`)
	h.claim("p", quotaClaim(quotaKey("old"), 10, 1))
	h.exec(`UPDATE account_counts SET quotas = $1`, control.MaxAccountQuotas)
	other := quotaKey("new")
	other.AccountID = "acct_2"
	got := h.claim("p", quotaClaim(quotaKey("new"), 10, 1), quotaClaim(other, 10, 1), quotaClaim(quotaKey("old"), 10, 1))
	if fault.CodeOf(got[0].Err) != fault.Unavailable || got[0].Granted != 0 || got[1].Granted != 1 || got[1].Err != nil || got[2].Granted != 1 {
		t.Errorf("got %+v; want that only the first is refused", got)
	}
	err := h.db.Update(t.Context(), func(tx control.Tx) error {
		return tx.GrantQuota(t.Context(), quotaKey("new"), got[0].Calendar, time.Now(), &plan.Grant{ID: "grant_1", Units: 1})
	})
	if fault.CodeOf(err) != fault.Conflict {
		t.Errorf("granting: got %v, want a conflict", err)
	}
	if n := h.number(`SELECT count(*) FROM quotas`); n != 2 {
		t.Errorf("there are %d quotas, want 2", n)
	}
}

// Guarantee: a claim goes by the clock of the database, and returns it.
func TestQuotasGoByTheClockOfTheDatabase(t *testing.T) {
	h := &quotaHarness{newClusterHarness(t)}
	c := []ratelimit.QuotaClaim{quotaClaim(quotaKey("x"), 10, 1)}
	at, err := h.db.ClaimQuotas(context.Background(), "p", time.Unix(0, 0), c)
	if err != nil {
		t.Fatal(err)
	}
	var now time.Time
	if err := h.db.writer.QueryRow(t.Context(), `SELECT clock_timestamp()`).Scan(&now); err != nil {
		t.Fatal(err)
	}
	if d := now.Sub(at); d < 0 || d > time.Minute || c[0].Answer.Start.After(now) || !c[0].Answer.End.After(at) {
		t.Errorf("at %v: got the time %v and the window from %v to %v", now, at, c[0].Answer.Start, c[0].Answer.End)
	}
	err = h.db.view(t.Context(), h.db.readers, func(r *readTx) error {
		return r.Query(t.Context(), "read", `SELECT seen FROM quota_processes`, nil, func(row *rows.Row) error {
			var seen int64
			err := row.Scan(&seen)
			if d := at.Sub(time.UnixMicro(seen)).Abs(); d > time.Minute {
				t.Errorf("the process was seen at %v", time.UnixMicro(seen))
			}
			return err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}
