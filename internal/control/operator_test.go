package control_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/webhook"
)

// operator returns the account default and a caller with one of its keys.
func (h *harness) operator() *control.Actor {
	h.tb.Helper()
	must[string](h)(h.FirstStart(ctx(), ""))
	return h.caller(account.Default, "admin")
}

func state(s account.State) control.AccountPatch {
	return control.AccountPatch{State: value(string(s))}
}

func (h *harness) patch(c *control.Actor, accountID string, p control.AccountPatch) *account.Account {
	h.tb.Helper()
	return must[*account.Account](h)(h.UpdateAccount(ctx(), c, accountID, p, nil))
}

// Guarantee: every operator's action on an account is in both audit logs, without the
// operator's key and address in the account's own, and is published once.
func TestOperatorsActionsAreAudited(t *testing.T) {
	h := newHarness(t)
	op := h.operator()
	made := must[*control.NewAccount](h)(h.AddAccount(ctx(), op, control.AccountInput{Name: "acme", Tier: "starter", Hosts: []string{"*.Acme.example"}}))
	if made.Key.AccountID != made.ID || made.Key.Scope.String() != "admin" || made.State != account.Active || made.Version != 1 || made.Hosts[0] != "*.acme.example" {
		t.Errorf("got account %+v with key %+v; want an active one with an admin key and patterns in lower case", made.Account, made.Key.Key)
	}
	published := h.pub.count()
	h.patch(op, made.ID, control.AccountPatch{Name: value("acme 2"), Tier: value("scale"), State: value("suspended")})
	h.patch(op, made.ID, state(account.Suspended)) // changes nothing
	h.patch(op, made.ID, state(account.Active))
	h.patch(op, made.ID, state(account.Suspended))
	must[*account.Account](h)(h.DeleteAccount(ctx(), op, made.ID, nil))
	if got := h.pub.count() - published; got != 4 {
		t.Errorf("got %d publications; want 4", got)
	}
	want := []string{"account.create", "account.suspend", "account.update", "account.resume", "account.suspend", "account.delete"}
	for _, log := range []struct {
		account string
		keyID   string
		path    string
	}{{op.Account.ID, op.KeyID, op.Path}, {made.ID, "", ""}} {
		var got []string
		for _, r := range h.logs(log.account).audits {
			if r.Target != made.ID {
				continue
			}
			got = append(got, string(r.Action))
			if r.ActorKeyID != log.keyID || r.KeyID != log.keyID || r.Path != log.path || (r.ClientIP == "") != (log.keyID == "") {
				t.Errorf("log of %s: %s has the actor %q, path %q and address %q; want %q and %q", log.account, r.Action, r.ActorKeyID, r.Path, r.ClientIP, log.keyID, log.path)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("log of %s: got %q; want %q", log.account, got, want)
		}
	}
}

// Guarantee: a rejected change of an account names what is wrong and leaves nothing: the
// account default is protected, a given hostname stays allowed, and an active account is not
// deleted.
func TestRejectedChangesOfAccounts(t *testing.T) {
	h := newHarness(t)
	op := h.operator()
	acme, owner := h.account("acme")
	h.patch(op, acme.ID, control.AccountPatch{Hosts: value([]string{"*.acme.example", "acme.example"})})
	p := newGateway("https://orders.internal")
	p.Hostname = value("api.acme.example")
	must[any](h)(h.CreateGateway(ctx(), owner, p, ""))
	stale := func(version int64) bool { return version == 99 }
	for name, tc := range map[string]struct {
		id     string
		patch  control.AccountPatch
		match  control.Match
		code   fault.Code
		field  string
		naming string
	}{
		"a name that is taken":      {acme.ID, control.AccountPatch{Name: value("default")}, nil, fault.Conflict, "name", ""},
		"a name like an identifier": {acme.ID, control.AccountPatch{Name: value(acme.ID)}, nil, fault.ValidationFailed, "name", ""},
		"no name":                   {acme.ID, control.AccountPatch{Name: null[string]()}, nil, fault.ValidationFailed, "name", ""},
		"an unknown plan":           {acme.ID, control.AccountPatch{Tier: value("free")}, nil, fault.ValidationFailed, "plan", ""},
		"an unknown state":          {acme.ID, state("deleted"), nil, fault.ValidationFailed, "state", ""},
		"a bad pattern":             {acme.ID, control.AccountPatch{Hosts: value([]string{"acme.example", "a b"})}, nil, fault.ValidationFailed, "hosts[1]", ""},
		"a pattern that is in use":  {acme.ID, control.AccountPatch{Hosts: value([]string{"acme.example"})}, nil, fault.Conflict, "hosts", "api.acme.example"},
		"no patterns":               {acme.ID, control.AccountPatch{Hosts: null[[]string]()}, nil, fault.Conflict, "hosts", "api.acme.example"},
		"another version":           {acme.ID, state(account.Suspended), stale, fault.PreconditionFailed, "", ""},
		"an unknown account":        {"acct_x", state(account.Suspended), nil, fault.NotFound, "", ""},
		"suspending the operator":   {op.Account.ID, state(account.Suspended), nil, fault.Conflict, "", "suspended"},
		"renaming the operator":     {op.Account.ID, control.AccountPatch{Name: value("root")}, nil, fault.Conflict, "", "renamed"},
		"restricting the operator":  {op.Account.ID, control.AccountPatch{Hosts: value([]string{"a.example"})}, nil, fault.Conflict, "", "hostname"},
		"412 before 409":            {op.Account.ID, state(account.Suspended), stale, fault.PreconditionFailed, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			h.wantNoRecords(op.Account.ID, func() {
				_, err := h.UpdateAccount(ctx(), op, tc.id, tc.patch, tc.match)
				h.wantCode(err, tc.code, tc.field)
				var f *fault.Error
				if errors.As(err, &f) && !strings.Contains(f.Message, tc.naming) {
					t.Errorf("got message %q; want it to name %s", f.Message, tc.naming)
				}
			})
		})
	}
	for id, m := range map[string]control.Match{acme.ID: nil, op.Account.ID: nil} {
		_, err := h.DeleteAccount(ctx(), op, id, m)
		h.wantCode(err, fault.Conflict, "")
	}
	_, err := h.AddAccount(ctx(), h.caller(account.Default, "admin:accounts"), control.AccountInput{Name: "n", Tier: "scale"})
	h.wantCode(err, fault.Forbidden, "")
}

// Guarantee: a call that was authenticated before its account was suspended changes nothing
// afterwards, and the account is in the change log, so that senders hand back its deliveries.
func TestSuspensionStopsCallsUnderWay(t *testing.T) {
	h := newHarness(t)
	var recalled []string
	h.pub.follow = func(_ context.Context, only ...snapshot.Change) error {
		for _, c := range only {
			if c.Kind == snapshot.AccountChange {
				recalled = append(recalled, c.ID)
			}
		}
		return nil
	}
	woken := 0
	h.wake = func() { woken++ }
	h.serve(h.db)
	op, tenant := h.operator(), h.caller("acme", "admin")
	recalled = nil
	h.patch(op, tenant.Account.ID, state(account.Suspended))
	if want := []string{tenant.Account.ID}; !slices.Equal(recalled, want) {
		t.Errorf("got changes of the accounts %q; want %q", recalled, want)
	}
	_, err := h.CreateKey(ctx(), tenant, control.KeyInput{Name: "k", Scope: "read"})
	if h.wantCode(err, fault.Unauthorized, ""); authOf(err) != fault.KeyInvalid {
		t.Errorf("got %v; want key_invalid", err)
	}
	woken = 0
	h.patch(op, tenant.Account.ID, state(account.Active))
	if woken != 1 {
		t.Errorf("the sender was woken %d times when the account was resumed; want 1", woken)
	}
	must[*control.NewKey](h)(h.CreateKey(ctx(), tenant, control.KeyInput{Name: "k", Scope: "read"}))
}

// Guarantee: deleting an account frees its name and hostnames, leaves its audit log, and
// survives a crash after any of its transactions.
func TestDeleteAccount(t *testing.T) {
	h := newHarness(t)
	op, tenant := h.operator(), h.caller("acme", "admin")
	p := newGateway("https://orders.internal")
	p.Hostname = value("api.acme.example")
	must[any](h)(h.CreateGateway(ctx(), tenant, p, ""))
	must[any](h)(h.CreateWebhook(ctx(), tenant, control.WebhookInput{URL: "https://a.example", Events: []string{"key.created"}}))
	for range 20 {
		must[any](h)(h.CreateKey(ctx(), tenant, control.KeyInput{Name: "k", Scope: "read"}))
	}
	h.patch(op, tenant.Account.ID, state(account.Suspended))
	// The process dies after the first transaction.
	h.serve(&dying{Store: h.db, updates: 1})
	gone := must[*account.Account](h)(h.DeleteAccount(ctx(), op, tenant.Account.ID, nil))
	if gone.Name != "acme" || gone.State != account.Suspended {
		t.Errorf("got %+v; want the account as it was", gone)
	}
	h.reopen()
	_, err := h.Service.Account(ctx(), tenant.Account.ID)
	h.wantCode(err, fault.NotFound, "")
	_, err = h.DeleteAccount(ctx(), op, tenant.Account.ID, nil)
	h.wantCode(err, fault.NotFound, "")
	_, err = h.UpdateAccount(ctx(), op, tenant.Account.ID, state(account.Active), nil)
	h.wantCode(err, fault.NotFound, "")
	h.removeDeleted()
	again := must[*control.NewAccount](h)(h.AddAccount(ctx(), op, control.AccountInput{Name: "acme", Tier: "scale", Hosts: []string{"*.acme.example"}}))
	must[any](h)(h.CreateGateway(ctx(), callerOf(&again.Account, again.Key), p, ""))
	for _, left := range []struct {
		what string
		list func() (int, error)
	}{
		{"keys", func() (int, error) {
			l, err := h.Keys(ctx(), tenant, control.KeyFilter{}, control.Page{Limit: 100})
			return len(l), err
		}},
		{"gateways", func() (int, error) {
			l, err := h.Gateways(ctx(), tenant, control.GatewayFilter{}, control.Page{Limit: 100})
			return len(l), err
		}},
		{"webhooks", func() (int, error) { l, err := h.Webhooks(ctx(), tenant, control.Page{Limit: 100}); return len(l), err }},
		{"deliveries", func() (int, error) {
			l, err := h.Deliveries(ctx(), tenant, control.DeliveryFilter{State: webhook.Pending}, control.Page{Limit: 100})
			return len(l), err
		}},
	} {
		if n, err := left.list(); n != 0 || err != nil {
			t.Errorf("got %d %s of the deleted account (%v); want none", n, left.what, err)
		}
	}
	log := h.logs(tenant.Account.ID).audits
	if last := log[len(log)-1]; last.Action != audit.AccountDelete || len(log) < 23 {
		t.Errorf("got %d records in the log of the deleted account, the last %s; want all of them and account.delete", len(log), last.Action)
	}
}

// removeDeleted runs the maintenance until no deleted account has records to remove.
func (h *harness) removeDeleted() {
	h.tb.Helper()
	m, err := control.NewMaintenance(control.MaintenanceConfig{Service: h.Service, Store: h.db, Now: h.clock.now, ExpiryPeriod: time.Millisecond})
	h.must(err)
	h.must(m.Start(ctx()))
	awaittest.True(h.tb, "no deleted account has records", func() bool {
		var pending []string
		h.must(h.db.View(ctx(), func(tx control.ReadTx) (err error) {
			pending, err = tx.DeletedAccounts(ctx())
			return err
		}))
		return len(pending) == 0
	})
	h.must(m.Stop(ctx()))
}

// dying is a store that fails every transaction after the given number.
type dying struct {
	control.Store
	updates int
}

var errDead = errors.New("the process died")

func (s *dying) Update(c context.Context, f func(control.Tx) error) error {
	if s.updates--; s.updates < 0 {
		return errDead
	}
	return s.Store.Update(c, f)
}
