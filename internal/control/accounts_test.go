package control_test

import (
	"crypto/rand"
	"reflect"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
)

// Guarantee: contract 1, the first start creates the operator's account and one key; a later
// start creates nothing.
func TestFirstStart(t *testing.T) {
	h := newHarness(t)
	secret := must[string](h)(h.FirstStart(ctx(), ""))
	if level, ok := apikey.LevelOf(secret); !ok || level != apikey.AccountLevel {
		t.Errorf("got first key %q; want an account-level key", secret)
	}
	a, caller := h.account(account.Default)
	if a.Tier != account.Platform {
		t.Errorf("got plan %s; want platform", a.Tier)
	}
	v := must[*control.Verification](h)(h.VerifyKey(ctx(), caller, secret, "", "DELETE", "/v1/keys/x"))
	if !v.Valid || v.Key.Scope.String() != "admin" {
		t.Errorf("got verification %+v of the first key; want it valid, with the scope admin", v)
	}
	written := h.records(a.ID)
	for _, r := range written.audits {
		for name, values := range r.Diff {
			if values[0] == nil && values[1] == nil {
				t.Errorf("got %s in the diff of %s; want changed fields only", name, r.Action)
			}
		}
	}
	audits, events, changes := written.summary()
	if want := [][]string{{"account.create " + a.ID, "key.create " + v.Key.ID}, {"key.created " + v.Key.ID}, {"account " + a.ID, "key " + v.Key.ID}}; !reflect.DeepEqual([][]string{audits, events, changes}, want) {
		t.Errorf("got audit records %q, events %q and changes %q; want %q", audits, events, changes, want)
	}
	h.reopen()
	h.wantNoRecords(a.ID, func() {
		if again := must[string](h)(h.FirstStart(ctx(), "")); again != "" {
			t.Errorf("got key %q from a second start; want none", again)
		}
	})
}

// Guarantee: contract 1, the first key may be given. A first start that was interrupted before it
// knew the given key is completed with it, once.
func TestFirstStartWithGivenKey(t *testing.T) {
	given, err := apikey.Generate(apikey.AccountLevel, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, before := range map[string]func(h *harness){
		"at the first start":         func(*harness) {},
		"after one with another key": func(h *harness) { must[string](h)(h.FirstStart(ctx(), "")) },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			before(h)
			for range 2 {
				if got := must[string](h)(h.FirstStart(ctx(), given)); got != given {
					t.Errorf("got the key %q, want the given one", got)
				}
			}
			_, caller := h.account(account.Default)
			v := must[*control.Verification](h)(h.VerifyKey(ctx(), caller, given, "", "DELETE", "/v1/keys/x"))
			if !v.Valid || v.Key.Scope.String() != "admin" {
				t.Errorf("got verification %+v of the given key; want it valid, with the scope admin", v)
			}
		})
	}
}

// Guarantee: contract 1, an account has a unique name, a valid plan and valid host patterns,
// and a key is created only for an account that exists.
func TestCreateAccount(t *testing.T) {
	h := newHarness(t)
	a, k, err := h.CreateAccount(ctx(), "acme", account.Starter, []string{"*.Acme.example"})
	h.must(err)
	if !a.MayUse("x.acme.example") || a.MayUse("acme.example") || !strings.HasPrefix(k.Secret, "kga_") || k.AccountID != a.ID {
		t.Errorf("got account %+v with key %+v; want the pattern in lower case, and an account-level key of the account", a, k.Key)
	}
	h.wantNoRecords(a.ID, func() {
		for _, tc := range []struct {
			name, plan, host string
			code             fault.Code
			field            string
		}{
			{"acme", "starter", "", fault.Conflict, "name"},
			{"", "starter", "", fault.ValidationFailed, "name"},
			{"  ", "starter", "", fault.ValidationFailed, "name"},
			{"acm\u202ee", "starter", "", fault.ValidationFailed, "name"},
			{"n", "free", "", fault.ValidationFailed, "plan"},
			{"n", "scale", "*", fault.ValidationFailed, "hosts[0]"},
		} {
			var hosts []string
			if tc.host != "" {
				hosts = []string{tc.host}
			}
			_, _, err := h.CreateAccount(ctx(), tc.name, account.Tier(tc.plan), hosts)
			h.wantCode(err, tc.code, tc.field)
		}
		_, err := h.CreateAccountKey(ctx(), "none", "k")
		h.wantCode(err, fault.NotFound, "")
		_, err = h.CreateAccountKey(ctx(), "acme", "")
		h.wantCode(err, fault.ValidationFailed, "name")
	})
	made := must[*control.NewKey](h)(h.CreateAccountKey(ctx(), "acme", "ops"))
	if made.AccountID != a.ID || made.Level != apikey.AccountLevel || made.Scope.String() != "admin" || made.Name != "ops" {
		t.Errorf("got key %+v; want the account-level key ops with the scope admin", made.Key)
	}
}
