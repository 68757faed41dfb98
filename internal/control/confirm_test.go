package control_test

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/keygatetest/postgrestest"
	"github.com/keygate/keygate/internal/secret"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/store/postgres"
)

// everywhere records what is waited for.
type everywhere struct {
	awaited []snapshot.Position
	fail    error
}

func (e *everywhere) Await(_ context.Context, p snapshot.Position) error {
	e.awaited = append(e.awaited, p)
	return e.fail
}

func (e *everywhere) Acknowledged(context.Context, snapshot.Position) (have, of int, err error) {
	return 1, 3, nil
}

// sharedHarness is a service on a database that several nodes share.
type sharedHarness struct {
	*control.Service
	*everywhere
	t      *testing.T
	db     *postgres.DB
	caller *control.Actor
}

func newSharedHarness(t *testing.T) *sharedHarness {
	t.Helper()
	h := &sharedHarness{t: t, everywhere: &everywhere{}}
	db, err := postgres.Open(t.Context(), postgres.Config{URL: postgrestest.Empty(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	box, err := secret.New(make([]byte, secret.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	h.db = db
	h.Service, err = control.New(control.Config{
		Store: db, Publisher: &publisher{}, Everywhere: h.everywhere, Sealer: box, Now: time.Now, Random: rand.Reader, GatewayDomain: domain,
	})
	if err != nil {
		t.Fatal(err)
	}
	a, _, err := h.CreateAccount(t.Context(), "acme", account.Starter, nil)
	if err != nil {
		t.Fatal(err)
	}
	admin, err := apikey.ParseScopes("admin")
	if err != nil {
		t.Fatal(err)
	}
	h.caller = &control.Actor{Kind: control.OfflineActor, Account: a, Scope: admin}
	return h
}

// head returns the newest change.
func (h *sharedHarness) head() snapshot.Position {
	h.t.Helper()
	p, err := h.db.LastPosition(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	return p
}

// Guarantee: every operation that may succeed waits until all nodes have the changes that its transaction
// saw, even if it changes nothing because an earlier call did, and even if it repeats a stored response.
func TestEverySuccessWaitsForAllNodes(t *testing.T) {
	h := newSharedHarness(t)
	const spec = "openapi: 3.0.3\ninfo: {title: t, version: '1'}\npaths: {/a: {get: {responses: {'200': {description: ok}}}}}\n"
	var gatewayID, keyID string
	told := int64(0)
	for _, step := range []struct {
		name    string
		changes bool
		do      func(ctx context.Context) error
	}{
		{"create a gateway", true, func(ctx context.Context) error {
			g, err := h.CreateGatewayFrom(ctx, h.caller, control.NewGateway{Settings: gateway.Patch{Name: text("g"), UpstreamURL: text("https://example.com")}})
			if err == nil {
				gatewayID = g.ID
			}
			return err
		}},
		{"push a spec", true, func(ctx context.Context) error {
			_, err := h.PushSpec(ctx, h.caller, gatewayID, []byte(spec), false, nil)
			return err
		}},
		{"push it again", false, func(ctx context.Context) error {
			_, err := h.PushSpec(ctx, h.caller, gatewayID, []byte(spec), false, nil)
			return err
		}},
		{"create a key", true, func(ctx context.Context) error {
			k, err := h.CreateKey(ctx, h.caller, control.KeyInput{Name: "k", Scope: "read"})
			if err == nil {
				keyID = k.ID
			}
			return err
		}},
		{"revoke it", true, func(ctx context.Context) error {
			_, err := h.RevokeKey(ctx, h.caller, keyID, nil)
			return err
		}},
		{"revoke it again", false, func(ctx context.Context) error {
			_, err := h.RevokeKey(ctx, h.caller, keyID, nil)
			return err
		}},
		{"repeat a stored response", false, func(ctx context.Context) error { return h.Confirm(ctx, h.caller.Account.ID) }},
	} {
		before := h.head()
		h.awaited = nil
		var receipt control.Receipt
		if err := step.do(control.WithReceipt(t.Context(), &receipt)); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		now := h.head()
		if (now != before) != step.changes {
			t.Errorf("%s: the head went from %v to %v", step.name, before, now)
		}
		if len(h.awaited) == 0 || h.awaited[len(h.awaited)-1] != now {
			t.Errorf("%s: waited for %v, want %v", step.name, h.awaited, now)
		}
		if (receipt.Change > told) != step.changes || receipt.Change < told {
			t.Errorf("%s: told change %d after %d", step.name, receipt.Change, told)
		}
		told = receipt.Change
	}
}

// Guarantee: the number of a change tells an account nothing of the changes of others.
func TestNumbersOfChangesAreOfTheAccount(t *testing.T) {
	h := newSharedHarness(t)
	change := func(c *control.Actor) int64 {
		t.Helper()
		var receipt control.Receipt
		if _, err := h.CreateKey(control.WithReceipt(t.Context(), &receipt), c, control.KeyInput{Name: "k", Scope: "admin"}); err != nil {
			t.Fatal(err)
		}
		return receipt.Change
	}
	first := change(h.caller)
	other, _, err := h.CreateAccount(t.Context(), "other", account.Starter, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		change(&control.Actor{Kind: control.OfflineActor, Account: other, Scope: h.caller.Scope})
	}
	if next := change(h.caller); next != first+1 {
		t.Errorf("the numbers of two changes of an account are %d and %d, with others between them; want the next one", first, next)
	}
}

// Guarantee: if a change cannot be confirmed everywhere, the call is a 503 that says that it is stored, and
// to repeat it; if a failover lost it, the 503 says so. A call that does not wait succeeds.
func TestUnconfirmedChangeIsUnavailable(t *testing.T) {
	h := newSharedHarness(t)
	create := func(ctx context.Context) error {
		_, err := h.CreateKey(ctx, h.caller, control.KeyInput{Name: "k", Scope: "admin"})
		return err
	}
	for _, tt := range []struct {
		fail error
		want string
	}{
		{context.DeadlineExceeded, "is stored, but not confirmed everywhere"},
		{control.ErrChangeLost, "does not have the change"},
	} {
		h.fail = tt.fail
		err := create(t.Context())
		var public *fault.Error
		if !errors.As(err, &public) || public.Code != fault.Unavailable || !strings.Contains(public.Message, tt.want) {
			t.Errorf("%v: got %v, want a 503 with %q", tt.fail, err, tt.want)
		}
	}
	receipt := control.Receipt{NoWait: true}
	if err := create(control.WithReceipt(t.Context(), &receipt)); err != nil || receipt.Acknowledged != 1 || receipt.Nodes != 3 {
		t.Errorf("without waiting: got %v and %+v, want 1 of 3", err, receipt)
	}
}

func text(s string) control.Optional[string] {
	return control.Optional[string]{Present: true, Value: s}
}
