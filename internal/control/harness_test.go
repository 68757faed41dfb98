package control_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/secret"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/store/sqlite"
	"github.com/keygate/keygate/internal/store/sqlite/sqlitetest"
)

// tb is what both *testing.T and *rapid.T offer.
type tb interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

// clock is a wall clock that stands until it is moved.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// publisher records how often it was asked to catch up; fail, if set, decides
// about each call.
type publisher struct {
	mu    sync.Mutex
	calls int
	fail  func(ctx context.Context) error
}

func (p *publisher) CatchUp(ctx context.Context) error {
	p.mu.Lock()
	p.calls++
	fail := p.fail
	p.mu.Unlock()
	if fail != nil {
		return fail(ctx)
	}
	return ctx.Err()
}

func (p *publisher) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls
}

// harness is a service over a real store in a temporary directory.
type harness struct {
	*control.Service
	tb     tb
	path   string
	db     *sqlite.DB
	store  control.Store // db, or what stands before it
	clock  *clock
	pub    *publisher
	box    *secret.Box
	wake   func()
	recall func(webhookID string)
}

const domain = "gw.localhost"

func newHarness(t *testing.T) *harness {
	t.Helper()
	h := openHarness(t, sqlitetest.Path(t))
	t.Cleanup(h.close)
	return h
}

func openHarness(t tb, path string) *harness {
	t.Helper()
	h := &harness{
		tb: t, path: path, pub: &publisher{},
		clock: &clock{at: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)},
	}
	var err error
	h.box, err = secret.New(bytes.Repeat([]byte{7}, secret.KeySize))
	h.must(err)
	h.open()
	return h
}

func (h *harness) open() {
	h.tb.Helper()
	db, err := sqlite.Open(context.Background(), sqlite.Config{Path: h.path, Now: h.clock.now})
	h.must(err)
	h.db = db
	h.serve(db)
}

// serve makes the service over store.
func (h *harness) serve(store control.Store) {
	h.tb.Helper()
	h.store = store
	svc, err := control.New(control.Config{
		Store: store, Publisher: h.pub, Sealer: h.box, Now: h.clock.now, Random: rand.Reader, GatewayDomain: domain, Wake: h.wake, Recall: h.recall,
	})
	h.must(err)
	h.Service = svc
}

func (h *harness) close() { h.must(h.db.Close()) }

func (h *harness) reopen() {
	h.tb.Helper()
	h.close()
	h.open()
}

func (h *harness) must(err error) {
	h.tb.Helper()
	if err != nil {
		h.tb.Fatal(err)
	}
}

// wantCode fails unless err has the code and, if field is not "", the field.
func (h *harness) wantCode(err error, code fault.Code, field string) {
	h.tb.Helper()
	var f *fault.Error
	if fault.CodeOf(err) != code || field != "" && (!errors.As(err, &f) || f.Field != field) {
		h.tb.Errorf("error %v; want %s %s", err, code, field)
	}
}

// caller makes an account of that name, if there is none, and returns the holder of
// a new account-level key of it with the scope.
func (h *harness) caller(name, scope string) *control.Caller {
	h.tb.Helper()
	a, owner := h.account(name)
	k := must[*control.NewKey](h)(h.CreateKey(ctx(), owner, control.KeyInput{Name: name + " " + scope, Scope: scope, Level: "account"}))
	return holder(a, k)
}

func holder(a *account.Account, k *control.NewKey) *control.Caller {
	return &control.Caller{
		Account: a, KeyID: k.ID, KeyPrefix: k.Prefix, Scope: k.Scope, Source: gateway.API,
		Method: "POST", Path: "/v1/test", ClientIP: "192.0.2.1", RequestID: "req_test",
	}
}

// account returns the account of that name, and a caller that may do
// everything in it, as an offline command may.
func (h *harness) account(name string) (*account.Account, *control.Caller) {
	h.tb.Helper()
	var a *account.Account
	err := h.store.View(ctx(), func(tx control.ReadTx) (err error) {
		a, err = tx.AccountByName(ctx(), name)
		return err
	})
	if fault.CodeOf(err) == fault.NotFound {
		a, _, err = h.CreateAccount(ctx(), name, account.Starter, []string{"*." + name + ".example"})
	}
	h.must(err)
	return a, &control.Caller{Account: a, Scope: apikey.Scope{Word: apikey.Admin}}
}

func must[T any](h *harness) func(v T, err error) T {
	return func(v T, err error) T {
		h.tb.Helper()
		h.must(err)
		return v
	}
}

func ctx() context.Context { return context.Background() }

// trace is what an account's ledger holds, oldest first, and how long the
// change log is.
type trace struct {
	audits  []audit.Record
	events  []event.Event
	changes []snapshot.Change
}

func (h *harness) trace(accountID string) trace {
	h.tb.Helper()
	t := h.ledger(accountID)
	h.must(h.store.View(ctx(), func(tx control.ReadTx) (err error) {
		t.changes, _, err = tx.Changes(ctx(), 0, 100000)
		return err
	}))
	return t
}

// ledger is trace without the changes, which are of all accounts.
func (h *harness) ledger(accountID string) trace {
	h.tb.Helper()
	var t trace
	h.must(h.store.View(ctx(), func(tx control.ReadTx) (err error) {
		if t.audits, err = tx.Audit(ctx(), accountID, control.Page{Limit: 10000}); err != nil {
			return err
		}
		t.events, err = tx.Events(ctx(), accountID, control.EventFilter{}, control.Page{Limit: 10000})
		return err
	}))
	slices.Reverse(t.audits)
	slices.Reverse(t.events)
	return t
}

// since returns what came after before.
func (t trace) since(before trace) trace {
	return trace{t.audits[len(before.audits):], t.events[len(before.events):], t.changes[len(before.changes):]}
}

// story tells the trace in one line each: "key.revoke key_1", "key.revoked key_1", "key key_1".
func (t trace) story() (audits, events, changes []string) {
	for _, r := range t.audits {
		audits = append(audits, string(r.Action)+" "+r.Target)
	}
	for _, e := range t.events {
		data := dataOf(e)
		subject, _ := data["key_id"].(string)
		if subject == "" {
			subject, _ = data["gateway_id"].(string)
		}
		events = append(events, string(e.Type)+" "+subject)
	}
	for _, c := range t.changes {
		changes = append(changes, string(c.Kind)+" "+c.ID)
	}
	return audits, events, changes
}

func dataOf(e event.Event) map[string]any {
	var envelope struct{ Data map[string]any }
	if err := json.Unmarshal(e.Payload, &envelope); err != nil {
		panic(err)
	}
	return envelope.Data
}

// wantStory runs f and compares what it left in the account's ledger.
func (h *harness) wantStory(accountID string, f func(), audits, events, changes []string) {
	h.tb.Helper()
	before, published := h.trace(accountID), h.pub.count()
	f()
	gotAudits, gotEvents, gotChanges := h.trace(accountID).since(before).story()
	if !slices.Equal(gotAudits, audits) {
		h.tb.Errorf("audit records %q; want %q", gotAudits, audits)
	}
	if !slices.Equal(gotEvents, events) {
		h.tb.Errorf("events %q; want %q", gotEvents, events)
	}
	if !slices.Equal(gotChanges, changes) {
		h.tb.Errorf("changes %q; want %q", gotChanges, changes)
	}
	want := 0
	if len(changes) > 0 {
		want = 1
	}
	if got := h.pub.count() - published; got != want {
		h.tb.Errorf("published %d times; want %d", got, want)
	}
}
