package control_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
)

// Guarantee: contract 1, the first start makes the operator's account and one
// key of it; a later one makes nothing.
func TestFirstStart(t *testing.T) {
	h := newHarness(t)
	secret := must[string](h)(h.FirstStart(ctx()))
	if level, ok := apikey.LevelOf(secret); !ok || level != apikey.AccountLevel {
		t.Errorf("first key %q", secret)
	}
	a, caller := h.account(account.Default)
	if a.Plan != account.Platform {
		t.Errorf("plan %s; want platform", a.Plan)
	}
	v := must[*control.Verification](h)(h.VerifyKey(ctx(), caller, secret, "", "DELETE", "/v1/keys/x"))
	if !v.Valid || v.Key.Scope.String() != "admin" {
		t.Errorf("first key %+v", v)
	}
	left := h.records(a.ID)
	for _, r := range left.audits {
		for name, values := range r.Diff {
			if values[0] == nil && values[1] == nil {
				t.Errorf("%s tells of %s, which did not change", r.Action, name)
			}
		}
	}
	audits, events, changes := left.summary()
	if want := [][]string{{"account.create " + a.ID, "key.create " + v.Key.ID}, {"key.created " + v.Key.ID}, {"account " + a.ID, "key " + v.Key.ID}}; !reflect.DeepEqual([][]string{audits, events, changes}, want) {
		t.Errorf("left %q, %q, %q; want %q", audits, events, changes, want)
	}
	h.reopen()
	h.wantNoRecords(a.ID, func() {
		if again := must[string](h)(h.FirstStart(ctx())); again != "" {
			t.Errorf("a second start made %q", again)
		}
	})
}

// Guarantee: contract 1, the offline commands: unique names, valid plans and
// patterns, and keys for accounts that exist.
func TestAccounts(t *testing.T) {
	h := newHarness(t)
	a, k, err := h.CreateAccount(ctx(), "acme", account.Starter, []string{"*.Acme.example"})
	h.must(err)
	if !a.MayUse("x.acme.example") || a.MayUse("acme.example") || !strings.HasPrefix(k.Secret, "kga_") || k.AccountID != a.ID {
		t.Errorf("account %+v with key %+v", a, k.Key)
	}
	h.wantNoRecords(a.ID, func() {
		for _, tc := range []struct {
			name, plan, host string
			code             fault.Code
			field            string
		}{
			{"acme", "starter", "", fault.Conflict, "name"},
			{"", "starter", "", fault.ValidationFailed, "name"},
			{"n", "free", "", fault.ValidationFailed, "plan"},
			{"n", "scale", "*", fault.ValidationFailed, "host"},
		} {
			var hosts []string
			if tc.host != "" {
				hosts = []string{tc.host}
			}
			_, _, err := h.CreateAccount(ctx(), tc.name, account.Plan(tc.plan), hosts)
			h.wantCode(err, tc.code, tc.field)
		}
		_, err := h.CreateAccountKey(ctx(), "none", "k")
		h.wantCode(err, fault.NotFound, "")
		_, err = h.CreateAccountKey(ctx(), "acme", "")
		h.wantCode(err, fault.ValidationFailed, "name")
	})
	made := must[*control.NewKey](h)(h.CreateAccountKey(ctx(), "acme", "ops"))
	if made.AccountID != a.ID || made.Level != apikey.AccountLevel || made.Scope.String() != "admin" || made.Name != "ops" {
		t.Errorf("made %+v", made.Key)
	}
}
