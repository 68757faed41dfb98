package sqlite_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/calendar"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/plan"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/store/sqlite"
	"github.com/keygate/keygate/internal/store/state"
)

// quotaClaim is the claim of a process that knows nothing of the quota yet.
func quotaClaim(accountID, limit string, want int64) ratelimit.QuotaClaim {
	return ratelimit.QuotaClaim{
		QuotaKey: ratelimit.QuotaKey{QuotaName: ratelimit.QuotaName{AccountID: accountID, Limit: limit, Meter: ratelimit.Requests, Unit: calendar.Total}, Subject: "own_1"},
		Terms:    &ratelimit.QuotaTerms{Plan: "free", Count: 1000}, Want: want, Need: want, Calendar: calendar.Calendar{Unit: calendar.Total},
	}
}

func claimQuotas(t *testing.T, db *sqlite.DB, process string, claims ...ratelimit.QuotaClaim) []ratelimit.QuotaClaim {
	t.Helper()
	if _, err := db.ClaimQuotas(t.Context(), process, time.Unix(1e9, 0), claims); err != nil {
		t.Fatal(err)
	}
	return claims
}

// Guarantee: an account that has as many quotas as it may have gets no others, and goes on with those that it has. Claims
// of other accounts succeed.
func TestQuotasOfAnAccountAreBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keygate.db")
	db, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	a := account.Account{ID: id.New(id.Account), Name: "a", Tier: account.Platform, State: account.Active, CreatedAt: time.Unix(1, 0)}
	if err := db.Update(t.Context(), func(tx control.Tx) error { return tx.InsertAccount(t.Context(), &a) }); err != nil {
		t.Fatal(err)
	}
	claimQuotas(t, db, "p", quotaClaim(a.ID, "old", 1))
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	execRaw(t, raw(t, path), fmt.Sprintf(`INSERT INTO account_counts (account_id, quotas) VALUES ('%s', %d)`, a.ID, control.MaxAccountQuotas))
	db = open(t, path)
	got := claimQuotas(t, db, "p", quotaClaim(a.ID, "new", 1), quotaClaim("acct_2", "new", 1), quotaClaim(a.ID, "old", 1))
	if fault.CodeOf(got[0].Err) != fault.Unavailable || got[0].Granted != 0 || got[1].Granted != 1 || got[1].Err != nil || got[2].Granted != 1 {
		t.Errorf("got %+v; want that only the first is refused", got)
	}
	err = db.Update(t.Context(), func(tx control.Tx) error {
		return tx.GrantQuota(t.Context(), got[0].QuotaKey, got[0].Calendar, time.Unix(1e9, 0), &plan.Grant{ID: "grant_1", Units: 1})
	})
	if fault.CodeOf(err) != fault.Conflict {
		t.Errorf("granting: got %v, want a conflict", err)
	}
}

// Guarantee: a claim writes two rows for each quota, and none for one of which nothing has changed.
func TestRowsOfClaims(t *testing.T) {
	var last state.Counted
	db := openWith(t, sqlite.Config{Path: filepath.Join(t.TempDir(), "keygate.db"), Counted: func(c state.Counted) { last = c }})
	claims := make([]ratelimit.QuotaClaim, 100)
	for i := range claims {
		claims[i] = quotaClaim("acct_1", fmt.Sprint(i), 5)
	}
	claimQuotas(t, db, "p", claims...)
	for i := range claims {
		c := &claims[i]
		c.Window, c.Own = c.Answer.Start, c.Share.Own
		if c.Want, c.Need = 0, 0; i%2 == 0 {
			c.Own.Reserved = 0
		}
	}
	claimQuotas(t, db, "p", claims...)
	if last.Rows != 100 {
		t.Errorf("50 of 100 quotas were used, and %d rows were written; want 100", last.Rows)
	}
	claimQuotas(t, db, "p", claims...)
	if last.Rows != 0 {
		t.Errorf("a repeated claim has written %d rows, want none", last.Rows)
	}
}
