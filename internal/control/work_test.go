package control_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/store/sqlite/sqlitetest"
)

// brokenStore fails each transaction when it writes the kind of record that
// is named by at.
type brokenStore struct {
	control.Store
	at string
}

type brokenTx struct {
	control.Tx
	at string
}

var errBroken = errors.New("broken on purpose")

func (s brokenStore) Update(ctx context.Context, f func(control.Tx) error) error {
	return s.Store.Update(ctx, func(tx control.Tx) error {
		if err := f(brokenTx{tx, s.at}); err != nil {
			return err
		}
		if s.at == "commit" {
			return errBroken
		}
		return nil
	})
}

func (t brokenTx) fails(at string) error {
	if t.at == at {
		return errBroken
	}
	return nil
}

func (t brokenTx) AppendAudit(ctx context.Context, r *audit.Record) error {
	return errors.Join(t.Tx.AppendAudit(ctx, r), t.fails("audit"))
}

func (t brokenTx) AppendEvent(ctx context.Context, e *event.Event) error {
	return errors.Join(t.Tx.AppendEvent(ctx, e), t.fails("event"))
}

func (t brokenTx) AppendChange(ctx context.Context, k snapshot.ChangeKind, id string) error {
	return errors.Join(t.Tx.AppendChange(ctx, k, id), t.fails("change"))
}

func (t brokenTx) PutStoredResponse(ctx context.Context, a *control.StoredResponse) error {
	return errors.Join(t.Tx.PutStoredResponse(ctx, a), t.fails("response"))
}

// Guarantee: a change whose audit record, event, change log entry or kept
// storedResponse cannot be written, or that is not committed, leaves none of them, nor
// its state, and is not published.
func TestRolledBackChangesLeaveNothing(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	g := h.gateway(caller)
	r := h.route(caller, g.ID, "/a", "GET")
	h.push(caller, g.ID, spec("/a", "/b"))
	h.push(caller, g.ID, spec("/a", "/c"))
	k := must[*control.NewKey](h)(h.CreateKey(ctx(), caller, control.KeyInput{Name: "k", Scope: "read", GatewayID: g.ID, ExpiresAt: "2026-03-01T12:00:01Z"}))
	caller.KeyID = "" // what the states are compared by includes every key
	changes := map[string]func(ctx context.Context) error{
		"create key": func(ctx context.Context) error {
			return second(h.CreateKey(ctx, caller, control.KeyInput{Name: "n", Scope: "read"}))
		},
		"update key": func(ctx context.Context) error {
			return second(h.UpdateKey(ctx, caller, k.ID, control.KeyPatch{Name: value("n")}, nil))
		},
		"rotate key": func(ctx context.Context) error { return second(h.RotateKey(ctx, caller, k.ID, 0, "", nil)) },
		"revoke key": func(ctx context.Context) error { return second(h.RevokeKey(ctx, caller, k.ID, nil)) },
		"create gateway": func(ctx context.Context) error {
			return second(h.CreateGateway(ctx, caller, newGateway("https://h"), emptySpec))
		},
		"update gateway": func(ctx context.Context) error {
			return second(h.UpdateGateway(ctx, caller, g.ID, control.GatewayPatch{Name: value("n")}, nil))
		},
		"delete gateway": func(ctx context.Context) error { return second(h.DeleteGateway(ctx, caller, g.ID, nil)) },
		"create route": func(ctx context.Context) error {
			return second(h.CreateRoute(ctx, caller, g.ID, routeSpec("/z", "GET")))
		},
		"update route": func(ctx context.Context) error {
			p := control.LimitPatch{RateLimit: value(control.RateLimitPatch{Sustained: value("5/s")})}
			return second(h.UpdateRouteLimit(ctx, caller, g.ID, r.ID, p, nil))
		},
		"delete route": func(ctx context.Context) error { return second(h.DeleteRoute(ctx, caller, g.ID, r.ID, nil)) },
		"push spec":    func(ctx context.Context) error { return second(h.PushSpec(ctx, caller, g.ID, spec("/d"), false, nil)) },
		"push config": func(ctx context.Context) error {
			return second(h.PushConfiguration(ctx, caller, g.ID, []byte("routes: []"), false, nil))
		},
		"rollback": func(ctx context.Context) error { return second(h.Rollback(ctx, caller, g.ID, 1, nil)) },
		"create account": func(ctx context.Context) error {
			_, _, err := h.CreateAccount(ctx, "new", "scale", nil)
			return err
		},
		"account key": func(ctx context.Context) error { return second(h.CreateAccountKey(ctx, "acme", "n")) },
	}
	kept := &control.Idempotency{KeyID: "key_x", Key: "once", Encode: func(any) (int, map[string]string, []byte, error) { return 201, nil, []byte("{}"), nil }}
	before := h.everything(caller)
	for _, at := range []string{"audit", "event", "change", "response", "commit"} {
		h.serve(brokenStore{h.db, at})
		for name, f := range changes {
			published := h.pub.count()
			err := f(control.WithIdempotency(ctx(), kept))
			if at == "event" && err == nil { // a change without an event
				t.Fatalf("%s wrote no event: it does not belong in this list", name)
			}
			if !errors.Is(err, errBroken) && !(at == "event" && fault.CodeOf(err) == fault.Conflict) {
				t.Errorf("%s with a broken %s: %v", name, at, err)
			}
			if h.pub.count() != published {
				t.Errorf("%s with a broken %s was published", name, at)
			}
			if after := h.everything(caller); !reflect.DeepEqual(after, before) {
				t.Fatalf("%s with a broken %s left\n%v\nafter\n%v", name, at, after, before)
			}
		}
		if at == "audit" {
			for _, name := range []string{"update key", "create gateway", "update gateway", "create route", "update route", "delete route"} {
				delete(changes, name) // these raise no event
			}
		}
	}
}

// everything is the state of the account and its ledger, as text.
func (h *harness) everything(c *control.Caller) []string {
	h.tb.Helper()
	var all []string
	h.must(h.db.View(ctx(), func(tx control.ReadTx) error {
		keys, err := tx.Keys(ctx(), c.Account.ID, control.KeyFilter{}, control.Page{Limit: 1000})
		h.must(err)
		gateways, err := tx.Gateways(ctx(), c.Account.ID, control.Page{Limit: 1000})
		h.must(err)
		all = append(all, fmt.Sprint(keys), fmt.Sprint(gateways))
		for _, g := range gateways {
			routes, err := tx.RouteTable(ctx(), g.ID)
			h.must(err)
			revisions, err := tx.Revisions(ctx(), g.ID, 1000, 0)
			h.must(err)
			all = append(all, fmt.Sprint(routes), fmt.Sprint(revisions))
		}
		_, err = tx.AccountByName(ctx(), "new")
		_, answerErr := tx.StoredResponse(ctx(), "key_x", "once")
		all = append(all, fmt.Sprint(err), fmt.Sprint(answerErr))
		return nil
	}))
	t := h.records(c.Account.ID)
	return append(all, fmt.Sprint(t.audits), fmt.Sprint(t.events), fmt.Sprint(t.changes))
}

// Guarantee: contract 2, the answer to a call with an Idempotency-Key is kept
// with the change itself, for 24 hours and through restarts, and belongs to one
// call alone.
func TestIdempotency(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	call := &control.Idempotency{KeyID: caller.KeyID, Key: "once", Fingerprint: [32]byte{1}}
	call.Encode = func(result any) (int, map[string]string, []byte, error) {
		k, ok := result.(*control.NewKey)
		if !ok {
			return 0, nil, nil, fmt.Errorf("result is a %T", result)
		}
		return 201, map[string]string{"Location": "/v1/keys/" + k.ID}, []byte(k.ID), nil
	}
	answer := func(fingerprint byte) (*control.StoredResponse, error) {
		return h.StoredResponse(ctx(), caller.KeyID, "once", [32]byte{fingerprint})
	}
	if a, err := answer(1); a != nil || err != nil {
		t.Errorf("answer before the call: %v, %v", a, err)
	}
	create := func() (*control.NewKey, error) {
		return h.CreateKey(control.WithIdempotency(ctx(), call), caller, control.KeyInput{Name: "k", Scope: "read"})
	}
	_, err := h.CreateKey(control.WithIdempotency(ctx(), call), caller, control.KeyInput{Name: "k"})
	h.wantCode(err, fault.ValidationFailed, "scope")
	k := must[*control.NewKey](h)(create())
	h.reopen()
	a := must[*control.StoredResponse](h)(answer(1))
	if a == nil || a.Status != 201 || string(a.Body) != k.ID || a.Header["Location"] != "/v1/keys/"+k.ID {
		t.Fatalf("kept %+v", a)
	}
	_, err = answer(2)
	h.wantCode(err, fault.ValidationFailed, "")
	h.wantNoRecords(caller.Account.ID, func() { // a second process that had not seen it
		_, err = create()
		h.wantCode(err, fault.Conflict, "")
	})
	h.clock.advance(24*time.Hour - time.Microsecond)
	if a := must[*control.StoredResponse](h)(answer(1)); a == nil {
		t.Error("the answer is gone before 24 hours")
	}
	h.clock.advance(time.Microsecond)
	if a := must[*control.StoredResponse](h)(answer(2)); a != nil {
		t.Error("the answer is kept after 24 hours")
	}
	must[*control.NewKey](h)(create())

	// Operations that change nothing keep their answer as well.
	g := h.gateway(caller)
	h.push(caller, g.ID, spec("/a"))
	for name, f := range map[string]func(ctx context.Context) error{
		"rollback": func(ctx context.Context) error { return second(h.Rollback(ctx, caller, g.ID, 1, nil)) },
		"verify":   func(ctx context.Context) error { return second(h.VerifyKey(ctx, caller, k.Secret, "", "", "")) },
	} {
		quiet := *call
		quiet.Key = name
		quiet.Encode = func(any) (int, map[string]string, []byte, error) { return 200, nil, []byte(name), nil }
		h.must(f(control.WithIdempotency(ctx(), &quiet)))
		if a := must[*control.StoredResponse](h)(h.StoredResponse(ctx(), caller.KeyID, name, quiet.Fingerprint)); a == nil || string(a.Body) != name {
			t.Errorf("%s kept %+v", name, a)
		}
	}
}

// Guarantee: a change is in force before its call answers, even if the caller
// leaves as soon as it is stored.
func TestPublishedThoughTheCallerLeft(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	leaving, leave := context.WithCancel(ctx())
	h.serve(leavingStore{h.db, leave})
	published := h.pub.count()
	k, err := h.CreateKey(leaving, caller, control.KeyInput{Name: "k", Scope: "read"})
	if err != nil || h.pub.count() != published+1 {
		t.Fatalf("%v, published %d times", err, h.pub.count()-published)
	}
	must[*apikey.Key](h)(h.Key(ctx(), caller, k.ID))
	if _, err := h.CreateKey(leaving, caller, control.KeyInput{Name: "k", Scope: "read"}); !errors.Is(err, context.Canceled) {
		t.Errorf("a call of a caller that is gone: %v", err)
	}
}

// leavingStore is a store whose caller leaves as soon as a commit is done.
type leavingStore struct {
	control.Store
	leave func()
}

func (s leavingStore) Update(ctx context.Context, f func(control.Tx) error) error {
	defer s.leave()
	return s.Store.Update(ctx, f)
}

// Guarantee: a publication that fails is tried again for five seconds; then
// the call says that the change is stored, which it is.
func TestPublicationFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openHarness(t, sqlitetest.Path(t))
		defer h.close()
		caller := h.caller("acme", "admin")
		h.pub.fail = func(context.Context) error {
			if h.pub.count()%4 == 0 {
				return nil
			}
			return errBroken
		}
		began := time.Now()
		must[*control.NewKey](h)(h.CreateKey(ctx(), caller, control.KeyInput{Name: "again", Scope: "read"}))
		if waited := time.Since(began); waited == 0 || waited > time.Second {
			t.Errorf("waited %v for a publisher that recovers", waited)
		}
		h.pub.fail = func(context.Context) error { return errBroken }
		began = time.Now()
		_, err := h.CreateKey(ctx(), caller, control.KeyInput{Name: "stored", Scope: "read"})
		h.wantCode(err, fault.Unavailable, "")
		if !strings.Contains(fmt.Sprint(err), "stored") || time.Since(began) != 5*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		keys := must[[]apikey.Key](h)(h.Keys(ctx(), caller, control.KeyFilter{Query: "stored"}, control.Page{Limit: 2}))
		if len(keys) != 1 {
			t.Errorf("%d keys are stored; want 1", len(keys))
		}
	})
}

// Guarantee: New refuses to serve without what it needs.
func TestNewRequires(t *testing.T) {
	if _, err := control.New(control.Config{}); err == nil {
		t.Error("a service without a store was made")
	}
}
