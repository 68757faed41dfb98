package control_test

import (
	"context"
	"encoding/json"
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
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/store/sqlite/sqlitetest"
)

// brokenStore fails every transaction that writes a record of the kind at.
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

func (t brokenTx) AppendChange(ctx context.Context, k snapshot.ChangeKind, id string) (int64, error) {
	seq, err := t.Tx.AppendChange(ctx, k, id)
	return seq, errors.Join(err, t.fails("change"))
}

func (t brokenTx) AppendRevocation(ctx context.Context, id string, d apikey.Digest) (int64, error) {
	seq, err := t.Tx.AppendRevocation(ctx, id, d)
	return seq, errors.Join(err, t.fails("change"))
}

func (t brokenTx) PutStoredResponse(ctx context.Context, a *control.StoredResponse) error {
	return errors.Join(t.Tx.PutStoredResponse(ctx, a), t.fails("response"))
}

// change is a call that changes something.
type change struct {
	name   string
	events bool // whether it writes an event
	call   func(ctx context.Context) error
}

// everyChange returns every call that changes something, on a new gateway of the caller that
// has routes, two revisions and a key.
func (h *harness) everyChange(caller *control.Actor) []change {
	h.tb.Helper()
	g := h.gateway(caller)
	r := h.route(caller, g.ID, "/a", "GET")
	h.push(caller, g.ID, spec("/a", "/b"))
	h.push(caller, g.ID, spec("/a", "/c"))
	k := must[*control.NewKey](h)(h.CreateKey(ctx(), caller, control.KeyInput{Name: "k", Scope: "read", GatewayID: g.ID, ExpiresAt: "2026-03-01T12:00:01Z"}))
	of := h.gateway(caller)
	h.route(caller, of.ID, "/a", "GET")
	for _, gatewayID := range []string{g.ID, of.ID} {
		h.must(second(h.PutUpstream(ctx(), caller, gatewayID, upstreamPatch("next", "https://next"), nil)))
	}
	canaryOf, canaryID := of.ID, must[*control.StartedCanary](h)(h.StartCanary(ctx(), caller, of.ID, control.CanaryInput{Upstream: "next"})).ID
	return []change{
		{"create key", true, func(ctx context.Context) error {
			return second(h.CreateKey(ctx, caller, control.KeyInput{Name: "n", Scope: "read"}))
		}},
		{"update key", false, func(ctx context.Context) error {
			return second(h.UpdateKey(ctx, caller, k.ID, control.KeyPatch{Name: value("n")}, nil))
		}},
		{"rotate key", true, func(ctx context.Context) error { return second(h.RotateKey(ctx, caller, k.ID, 0, "", nil)) }},
		{"revoke key", true, func(ctx context.Context) error { return second(h.RevokeKey(ctx, caller, k.ID, nil)) }},
		{"create gateway", false, func(ctx context.Context) error {
			return second(h.CreateGateway(ctx, caller, newGateway("https://h"), emptySpec))
		}},
		{"update gateway", false, func(ctx context.Context) error {
			return second(h.UpdateGateway(ctx, caller, g.ID, gateway.Patch{Name: value("n")}, nil))
		}},
		{"start canary", false, func(ctx context.Context) error {
			return second(h.StartCanary(ctx, caller, g.ID, control.CanaryInput{Upstream: "next", Routes: []string{r.ID}}))
		}},
		{"pause canary", true, func(ctx context.Context) error {
			return second(h.PauseCanary(ctx, caller, canaryOf, canaryID, nil))
		}},
		{"promote canary", true, func(ctx context.Context) error {
			return second(h.PromoteCanary(ctx, caller, canaryOf, canaryID, nil))
		}},
		{"abort canary", true, func(ctx context.Context) error {
			return second(h.AbortCanary(ctx, caller, canaryOf, canaryID, nil))
		}},
		{"delete gateway", true, func(ctx context.Context) error { return second(h.DeleteGateway(ctx, caller, g.ID, nil)) }},
		{"create route", false, func(ctx context.Context) error {
			return second(h.CreateRoute(ctx, caller, g.ID, routeSpec("/z", "GET")))
		}},
		{"update route", false, func(ctx context.Context) error {
			p := control.LimitPatch{RateLimit: value(control.RateLimitPatch{Sustained: value("5/s")})}
			return second(h.UpdateRouteLimit(ctx, caller, g.ID, r.ID, p, nil))
		}},
		{"move route", false, func(ctx context.Context) error {
			return second(h.UpdateRoute(ctx, caller, g.ID, r.ID, control.RoutePatch{Path: value("/moved")}, nil))
		}},
		{"delete route", false, func(ctx context.Context) error { return second(h.DeleteRoute(ctx, caller, g.ID, r.ID, nil)) }},
		{"push spec", true, func(ctx context.Context) error {
			return second(h.PushSpec(ctx, caller, g.ID, spec("/d"), false, nil))
		}},
		{"push config", true, func(ctx context.Context) error {
			return second(h.PushConfiguration(ctx, caller, g.ID, []byte("routes: []"), false, nil))
		}},
		{"rollback", true, func(ctx context.Context) error { return second(h.Rollback(ctx, caller, g.ID, 1, false, nil)) }},
		{"create account", true, func(ctx context.Context) error {
			_, _, err := h.CreateAccount(ctx, "new", "scale", nil)
			return err
		}},
		{"account key", true, func(ctx context.Context) error { return second(h.CreateAccountKey(ctx, "acme", "n")) }},
	}
}

// Guarantee: a change whose audit record, event, change log entry or stored response cannot
// be written, or that is not committed, writes nothing and is not published.
func TestRolledBackChangesLeaveNothing(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	changes := h.everyChange(caller)
	caller.Kind, caller.KeyID = control.OfflineActor, "" // a command presents no key
	idempotency := &control.Idempotency{KeyID: "key_x", Key: "once", Encode: func(any) (int, map[string]string, []byte, error) { return 201, nil, []byte("{}"), nil }}
	before := h.everything(caller)
	for _, at := range []string{"audit", "event", "change", "response", "commit"} {
		h.serve(brokenStore{h.db, at})
		for _, c := range changes {
			if at == "event" && !c.events {
				continue
			}
			t.Run(c.name+" with a broken "+at, func(t *testing.T) {
				published := h.pub.count()
				if err := c.call(control.WithIdempotency(ctx(), idempotency)); !errors.Is(err, errBroken) {
					t.Errorf("got error %v; want %v", err, errBroken)
				}
				if got := h.pub.count() - published; got != 0 {
					t.Errorf("got %d publications; want none", got)
				}
				if after := h.everything(caller); !reflect.DeepEqual(after, before) {
					t.Fatalf("got state\n%v\nwant that of before\n%v", after, before)
				}
			})
		}
	}
}

// everything returns the state of the account and all its records as text.
func (h *harness) everything(c *control.Actor) []string {
	h.tb.Helper()
	var all []string
	h.must(h.db.View(ctx(), func(tx control.ReadTx) error {
		keys, err := tx.Keys(ctx(), c.Account.ID, control.KeyFilter{}, control.Page{Limit: 1000})
		h.must(err)
		gateways, err := tx.Gateways(ctx(), c.Account.ID, control.Page{Limit: 1000})
		h.must(err)
		texts, err := json.Marshal(gateways) // with the shares of canaries
		h.must(err)
		all = append(all, fmt.Sprint(keys), string(texts))
		for _, g := range gateways {
			routes, err := tx.RouteTable(ctx(), g.ID)
			h.must(err)
			revisions, err := tx.Revisions(ctx(), g.ID, 1000, 0)
			h.must(err)
			canaries, err := tx.Canaries(ctx(), g.ID, control.Page{Limit: 100})
			h.must(err)
			texts, err := json.Marshal(canaries)
			h.must(err)
			all = append(all, fmt.Sprint(routes), fmt.Sprint(revisions), string(texts))
		}
		_, err = tx.AccountByName(ctx(), "new")
		_, responseErr := tx.StoredResponse(ctx(), "key_x", "once")
		all = append(all, fmt.Sprint(err), fmt.Sprint(responseErr))
		return nil
	}))
	r := h.records(c.Account.ID)
	return append(all, fmt.Sprint(r.audits), fmt.Sprint(r.events), fmt.Sprint(r.changes))
}

// Guarantee: contract 2, the response to a call with an Idempotency-Key is stored in the
// transaction of the change, for 24 hours and through restarts, and is returned only for
// the same request.
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
	response := func(fingerprint byte) (*control.StoredResponse, error) {
		return h.StoredResponse(ctx(), caller.KeyID, "once", [32]byte{fingerprint})
	}
	if a, err := response(1); a != nil || err != nil {
		t.Errorf("got response %v, %v before the call; want none", a, err)
	}
	create := func() (*control.NewKey, error) {
		return h.CreateKey(control.WithIdempotency(ctx(), call), caller, control.KeyInput{Name: "k", Scope: "read"})
	}
	_, err := h.CreateKey(control.WithIdempotency(ctx(), call), caller, control.KeyInput{Name: "k"})
	h.wantCode(err, fault.ValidationFailed, "scope")
	k := must[*control.NewKey](h)(create())
	h.reopen()
	a := must[*control.StoredResponse](h)(response(1))
	if a == nil || a.Status != 201 || string(a.Body) != k.ID || a.Header["Location"] != "/v1/keys/"+k.ID {
		t.Fatalf("got stored response %+v; want 201 with the key's identifier and location", a)
	}
	_, err = response(2)
	h.wantCode(err, fault.ValidationFailed, "")
	h.wantNoRecords(caller.Account.ID, func() { // as a second process does, which has not read the response
		_, err = create()
		h.wantCode(err, fault.Conflict, "")
	})
	h.clock.advance(24*time.Hour - time.Microsecond)
	if a := must[*control.StoredResponse](h)(response(1)); a == nil {
		t.Error("got no response before 24 hours; want it")
	}
	h.clock.advance(time.Microsecond)
	if a := must[*control.StoredResponse](h)(response(2)); a != nil {
		t.Error("got a response after 24 hours; want none")
	}
	must[*control.NewKey](h)(create())

	// The response is also stored if the operation changes nothing.
	g := h.gateway(caller)
	h.push(caller, g.ID, spec("/a"))
	for name, f := range map[string]func(ctx context.Context) error{
		"rollback": func(ctx context.Context) error { return second(h.Rollback(ctx, caller, g.ID, 1, false, nil)) },
		"verify":   func(ctx context.Context) error { return second(h.VerifyKey(ctx, caller, k.Secret, "", "", "")) },
	} {
		quiet := *call
		quiet.Key = name
		quiet.Encode = func(any) (int, map[string]string, []byte, error) { return 200, nil, []byte(name), nil }
		h.must(f(control.WithIdempotency(ctx(), &quiet)))
		if a := must[*control.StoredResponse](h)(h.StoredResponse(ctx(), caller.KeyID, name, quiet.Fingerprint)); a == nil || string(a.Body) != name {
			t.Errorf("got stored response %+v of %s; want the body %q", a, name, name)
		}
	}
}

// Guarantee: a change is published before its call returns, even if the client closes its
// connection right after the commit.
func TestChangeIsPublishedAfterTheClientCloses(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	closing, hangUp := context.WithCancel(ctx())
	h.serve(closingStore{h.db, hangUp})
	published := h.pub.count()
	k, err := h.CreateKey(closing, caller, control.KeyInput{Name: "k", Scope: "read"})
	if got := h.pub.count() - published; err != nil || got != 1 {
		t.Fatalf("got error %v and %d publications; want no error and 1", err, got)
	}
	must[*apikey.Key](h)(h.Key(ctx(), caller, k.ID))
	if _, err := h.CreateKey(closing, caller, control.KeyInput{Name: "k", Scope: "read"}); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v of a call after that; want %v", err, context.Canceled)
	}
}

// closingStore is a store whose client closes its connection right after each commit.
type closingStore struct {
	control.Store
	hangUp func()
}

func (s closingStore) Update(ctx context.Context, f func(control.Tx) error) error {
	defer s.hangUp()
	return s.Store.Update(ctx, f)
}

// Guarantee: a publication that fails is retried for five seconds. Then the call fails with
// an error that says that the change is stored, and it is.
func TestFailedPublicationIsRetried(t *testing.T) {
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
		start := time.Now()
		must[*control.NewKey](h)(h.CreateKey(ctx(), caller, control.KeyInput{Name: "again", Scope: "read"}))
		if waited := time.Since(start); waited == 0 || waited > time.Second {
			t.Errorf("got a call of %v with a publisher that recovers; want more than 0 and at most 1s", waited)
		}
		h.pub.fail = func(context.Context) error { return errBroken }
		start = time.Now()
		_, err := h.CreateKey(ctx(), caller, control.KeyInput{Name: "stored", Scope: "read"})
		h.wantCode(err, fault.Unavailable, "")
		if !strings.Contains(fmt.Sprint(err), "stored") || time.Since(start) != 5*time.Second {
			t.Errorf("got error %v after %v; want one with the word stored, after 5s", err, time.Since(start))
		}
		keys := must[[]apikey.Key](h)(h.Keys(ctx(), caller, control.KeyFilter{Query: "stored"}, control.Page{Limit: 2}))
		if len(keys) != 1 {
			t.Errorf("got %d stored keys; want 1", len(keys))
		}
	})
}

// Guarantee: New fails without a store.
func TestNewRequiresAStore(t *testing.T) {
	if _, err := control.New(control.Config{}); err == nil {
		t.Error("got a service without a store; want an error")
	}
}

// Guarantee: when a change is stored but the data plane could not apply it, the message of the 503 says
// what holds meanwhile: for a key, whether it is still accepted.
func TestMessageOfAChangeThatIsNotInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openHarness(t, sqlitetest.Path(t))
		defer h.close()
		caller := h.caller("acme", "admin")
		g := h.gateway(caller)
		k := must[*control.NewKey](h)(h.CreateKey(ctx(), caller, control.KeyInput{Name: "k", Scope: "read"}))
		h.pub.fail = func(context.Context) error { return errBroken }
		for name, tc := range map[string]struct {
			call func() error
			want string
		}{
			"key": {func() error { _, err := h.RevokeKey(ctx(), caller, k.ID, nil); return err }, "revoked or has a new expiry is still accepted"},
			"gateway": {func() error {
				_, err := h.UpdateGateway(ctx(), caller, g.ID, gateway.Patch{Name: value("new")}, nil)
				return err
			}, "the gateway works as before the call"},
		} {
			err := tc.call()
			h.wantCode(err, fault.Unavailable, "")
			for _, part := range []string{"the change is stored but not in force yet", tc.want, "do not repeat the call"} {
				var public *fault.Error
				if !errors.As(err, &public) || !strings.Contains(public.Message, part) {
					t.Errorf("%s: got %v, want %q in the message", name, err, part)
				}
			}
		}
	})
}

// Guarantee: a 503 of a change that the store refused says that nothing was changed, and nothing was.
func TestMessageOfAChangeThatIsNotStored(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	k := must[*control.NewKey](h)(h.CreateKey(ctx(), caller, control.KeyInput{Name: "k", Scope: "read"}))
	full := &fault.Error{Code: fault.Unavailable, Message: "the disk is full"}
	h.serve(fullStore{h.db, full})
	_, err := h.RevokeKey(ctx(), caller, k.ID, nil)
	var public *fault.Error
	if !errors.As(err, &public) || public.Message != "the disk is full. Nothing was changed" {
		t.Errorf("got %v, want the message of the store and that nothing was changed", err)
	}
	if !errors.Is(err, full) {
		t.Errorf("got %v, want an error that wraps %v", err, full)
	}
}

// fullStore is a store whose transactions cannot be committed.
type fullStore struct {
	control.Store
	err error
}

func (s fullStore) Update(ctx context.Context, f func(control.Tx) error) error {
	return s.Store.Update(ctx, func(tx control.Tx) error { return errors.Join(f(tx), s.err) })
}
