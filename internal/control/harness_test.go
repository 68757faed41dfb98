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

// clock is a wall clock that moves only by advance.
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

// publisher counts its calls. If fail is set, calls return the result of fail.
type publisher struct {
	mu    sync.Mutex
	calls int
	fail  func(ctx context.Context) error
	// follow, if set, puts the changes in force.
	follow func(ctx context.Context, only ...snapshot.Change) error
}

func (p *publisher) CatchUp(ctx context.Context, only ...snapshot.Change) error {
	p.mu.Lock()
	p.calls++
	fail := p.fail
	p.mu.Unlock()
	if fail != nil {
		return fail(ctx)
	}
	if p.follow != nil {
		return p.follow(ctx, only...)
	}
	return ctx.Err()
}

func (p *publisher) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls
}

// harness is a service on a real store in a temporary directory.
type harness struct {
	signIn *control.SignInPolicy // read by serve
	*control.Service
	tb    tb
	path  string
	db    *sqlite.DB
	store control.Store // db, or a wrapper of it
	clock *clock
	pub   *publisher
	box   *secret.Box
	wake  func()
	// maxRoutes is Config.MaxAccountRoutes from the next serve on.
	maxRoutes int
	// maxGateways is Config.MaxAccountGateways from the next serve on.
	maxGateways int
	// bounds is Config.Bounds from the next serve on.
	bounds control.AccountBounds
	// full is Config.EventsFull from the next serve on.
	full func(accountID string) bool
	// quotas is Config.Quotas from the next serve on.
	quotas control.Quotas
	// targets is Config.Targets from the next serve on.
	targets control.Targets
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

// serve replaces the service by one on store.
func (h *harness) serve(store control.Store) {
	h.tb.Helper()
	h.store = store
	svc, err := control.New(control.Config{
		Store: store, Publisher: h.pub, Sealer: h.box, Now: h.clock.now, Random: rand.Reader, GatewayDomain: domain, Wake: h.wake,
		MaxAccountRoutes: h.maxRoutes, MaxAccountGateways: h.maxGateways, Bounds: h.bounds, EventsFull: h.full, Quotas: h.quotas, Targets: h.targets,
		Repositories: noSyncer{}, ACME: true, SignIn: h.signIn,
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

// wantCode reports an error unless err has the code and, if field is not "", the field.
func (h *harness) wantCode(err error, code fault.Code, field string) {
	h.tb.Helper()
	var f *fault.Error
	if fault.CodeOf(err) != code || field != "" && (!errors.As(err, &f) || f.Field != field) {
		h.tb.Errorf("got error %v; want %s %s", err, code, field)
	}
}

// caller returns the caller of a new account-level key with the scope. It creates the
// account if it does not exist.
func (h *harness) caller(name, scope string) *control.Actor {
	h.tb.Helper()
	a, owner := h.account(name)
	k := must[*control.NewKey](h)(h.CreateKey(ctx(), owner, control.KeyInput{Name: name + " " + scope, Scope: scope, Level: "account"}))
	return callerOf(a, k)
}

// callerOf returns the caller that presents the key.
func callerOf(a *account.Account, k *control.NewKey) *control.Actor {
	return &control.Actor{
		Kind: control.KeyActor, Account: a, KeyID: k.ID, KeyPrefix: k.Prefix, Scope: k.Scope, Source: gateway.API,
		Method: "POST", Path: "/v1/test", ClientIP: "192.0.2.1", RequestID: "req_test",
	}
}

// account returns the account with that name, and a caller with the permissions of an
// offline command. It creates the account if it does not exist.
func (h *harness) account(name string) (*account.Account, *control.Actor) {
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
	return a, &control.Actor{Kind: control.OfflineActor, Account: a, Scope: apikey.Scopes{{Word: apikey.Admin}}}
}

func must[T any](h *harness) func(v T, err error) T {
	return func(v T, err error) T {
		h.tb.Helper()
		h.must(err)
		return v
	}
}

func ctx() context.Context { return context.Background() }

// records are the audit records and events of an account, and the entries of the change
// log, each oldest first.
type records struct {
	audits  []audit.Record
	events  []event.Event
	changes []snapshot.Change
}

// records returns all records of the account, and the whole change log.
func (h *harness) records(accountID string) records {
	h.tb.Helper()
	r := h.logs(accountID)
	h.must(h.store.View(ctx(), func(tx control.ReadTx) (err error) {
		r.changes, _, err = tx.Changes(ctx(), 0, 100000)
		return err
	}))
	return r
}

// logs returns the audit records and events of the account. It leaves out the change log,
// which is of all accounts.
func (h *harness) logs(accountID string) records {
	h.tb.Helper()
	return h.newest(accountID, 10000, 10000)
}

// newest returns the newest audit records and events of the account.
func (h *harness) newest(accountID string, audits, events int) records {
	h.tb.Helper()
	var r records
	h.must(h.store.View(ctx(), func(tx control.ReadTx) (err error) {
		if r.audits, err = tx.Audit(ctx(), accountID, control.Page{Limit: audits}); err != nil {
			return err
		}
		r.events, err = tx.Events(ctx(), accountID, control.EventFilter{}, control.Page{Limit: events})
		return err
	}))
	slices.Reverse(r.audits)
	slices.Reverse(r.events)
	return r
}

// since returns the records written after before.
func (r records) since(before records) records {
	return records{r.audits[len(before.audits):], r.events[len(before.events):], r.changes[len(before.changes):]}
}

// summary returns one line for each record: "key.revoke key_1", "key.revoked key_1", "key key_1".
func (r records) summary() (audits, events, changes []string) {
	for _, a := range r.audits {
		audits = append(audits, string(a.Action)+" "+a.Target)
	}
	for _, e := range r.events {
		data := dataOf(e)
		subject := ""
		for _, name := range []string{"gateway_id", "owner_id", "key_id"} {
			if id, ok := data[name].(string); ok {
				subject = id
			}
		}
		events = append(events, string(e.Type)+" "+subject)
	}
	for _, c := range r.changes {
		changes = append(changes, string(c.Kind)+" "+c.ID)
	}
	return audits, events, changes
}

// fanOut writes the deliveries of all events.
func (h *harness) fanOut() {
	h.tb.Helper()
	for {
		accountID, _, err := h.db.FanOut(ctx(), "", h.clock.now(), 200)
		h.must(err)
		if accountID == "" {
			return
		}
	}
}

func dataOf(e event.Event) map[string]any {
	var envelope struct{ Data map[string]any }
	if err := json.Unmarshal(e.Payload, &envelope); err != nil {
		panic(err)
	}
	return envelope.Data
}

// wantRecords runs f, and fails unless f wrote exactly these records of the account and published
// them once; without a change they must not be published.
func (h *harness) wantRecords(accountID string, f func(), audits, events, changes []string) {
	h.tb.Helper()
	before, published := h.records(accountID), h.pub.count()
	f()
	gotAudits, gotEvents, gotChanges := h.records(accountID).since(before).summary()
	if !slices.Equal(gotAudits, audits) {
		h.tb.Errorf("got audit records %q; want %q", gotAudits, audits)
	}
	if !slices.Equal(gotEvents, events) {
		h.tb.Errorf("got events %q; want %q", gotEvents, events)
	}
	if !slices.Equal(gotChanges, changes) {
		h.tb.Errorf("got changes %q; want %q", gotChanges, changes)
	}
	want := 0
	if len(changes) > 0 {
		want = 1
	}
	if got := h.pub.count() - published; got != want {
		h.tb.Errorf("got %d publications; want %d", got, want)
	}
}

// wantNoRecords runs f, and fails if f wrote any record of the account or published.
func (h *harness) wantNoRecords(accountID string, f func()) {
	h.tb.Helper()
	h.wantRecords(accountID, f, nil, nil, nil)
}
