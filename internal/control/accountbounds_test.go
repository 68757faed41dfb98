package control_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
)

// createKeys lets clients create a key each at the same time and returns the keys that they got. All
// others must be refused with fault.Conflict.
func (h *harness) createKeys(caller *control.Actor, clients int) (made []string) {
	h.tb.Helper()
	var creating sync.WaitGroup
	keys, errs := make([]*control.NewKey, clients), make([]error, clients)
	for i := range clients {
		creating.Go(func() { keys[i], errs[i] = h.CreateKey(ctx(), caller, control.KeyInput{Name: "k", Scope: "read"}) })
	}
	creating.Wait()
	for i, err := range errs {
		if err == nil {
			made = append(made, keys[i].ID)
			continue
		}
		h.wantCode(err, fault.Conflict, "")
	}
	return made
}

// Guarantee: the keys of an account that are not revoked, and its keys in all, are bounded, also if many
// are created at the same time. A further key, even from a rotation, is fault.Conflict and changes
// nothing. Revoking makes room in the first bound only. Other accounts have bounds of their own, an
// account that has more already keeps them, and an admin key can be issued offline in any case.
func TestKeysOfAnAccountAreBounded(t *testing.T) {
	h := newHarness(t)
	caller, other := h.caller("acme", "admin"), h.caller("other", "admin") // with two keys each
	h.bounds = control.AccountBounds{LiveKeys: 5, Keys: 7}
	h.serve(h.db)
	made := h.createKeys(caller, 8)
	if len(made) != 3 {
		t.Fatalf("made %d keys; want 3", len(made))
	}
	h.wantCode(second(h.RotateKey(ctx(), caller, made[0], 1, "", nil)), fault.Conflict, "")
	if k := must[*apikey.Key](h)(h.Key(ctx(), caller, made[0])); k.RotatedTo != "" {
		t.Error("the refused rotation changed the key")
	}
	if n := len(h.createKeys(other, 1)); n != 1 {
		t.Fatalf("the other account made %d keys; want 1", n)
	}
	for _, id := range made[1:] {
		h.must(second(h.RevokeKey(ctx(), caller, id, nil)))
	}
	h.must(second(h.RotateKey(ctx(), caller, made[0], 1, "", nil))) // the sixth in all
	if n := len(h.createKeys(caller, 4)); n != 1 {
		t.Fatalf("made %d keys when two were revoked and there were six; want 1", n)
	}
	h.bounds = control.AccountBounds{LiveKeys: 1, Keys: 1}
	h.serve(h.db)
	if n := len(h.createKeys(caller, 1)); n != 0 {
		t.Fatalf("made %d keys beyond the bound; want none", n)
	}
	h.must(second(h.CreateAccountKey(ctx(), "acme", "again")))
}

// Guarantee: the number and the bytes of the responses that are kept for an account's calls with an
// Idempotency-Key are bounded. The next such call is fault.RateLimitExceeded with the scope account and
// does nothing. Kept responses are found, other accounts, and calls without the header, are not
// affected, and there is room again when responses are past their retention and removed.
func TestResponsesOfAnAccountAreBounded(t *testing.T) {
	for _, c := range []struct {
		name   string
		bounds control.AccountBounds
	}{
		{"number", control.AccountBounds{Responses: 2}},
		{"bytes", control.AccountBounds{ResponseBytes: 50}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHarness(t)
			caller, other := h.caller("acme", "admin"), h.caller("other", "admin")
			h.bounds = c.bounds
			h.serve(h.db)
			create := func(caller *control.Actor, key string) error {
				call := ctx()
				if key != "" {
					call = control.WithIdempotency(call, &control.Idempotency{KeyID: caller.KeyID, Key: key,
						Encode: func(any) (int, map[string]string, []byte, error) { return 201, nil, make([]byte, 20), nil }})
				}
				return second(h.CreateKey(call, caller, control.KeyInput{Name: "k", Scope: "read"}))
			}
			h.must(create(caller, "1"))
			h.must(create(caller, "2"))
			before := h.everything(caller)
			err := create(caller, "3")
			h.wantCode(err, fault.RateLimitExceeded, "")
			if after := h.everything(caller); fmt.Sprint(after) != fmt.Sprint(before) {
				t.Error("the refused call changed something")
			}
			if a := must[*control.StoredResponse](h)(h.StoredResponse(ctx(), caller.KeyID, "1", [32]byte{})); a == nil {
				t.Error("the first response is gone")
			}
			h.must(create(caller, ""))
			h.must(create(other, "1"))
			h.clock.advance(25 * time.Hour)
			h.must(h.db.Update(ctx(), func(tx control.Tx) error {
				_, err := tx.Trim(context.Background(), h.clock.now().Add(-24*time.Hour), time.Time{}, time.Time{}, 0, 10)
				return err
			}))
			h.must(create(caller, "3"))
		})
	}
}

// Guarantee: while too many events of an account wait for their deliveries to be written, its calls that would raise
// another event are refused, and have no effect. Calls that end keys, calls that raise no event, and other accounts
// are not refused.
func TestCallsWaitForEventsToBeFannedOut(t *testing.T) {
	h := newHarness(t)
	caller, other := h.caller("acme", "admin"), h.caller("other", "admin")
	full := ""
	h.full = func(accountID string) bool { return accountID == full }
	h.serve(h.db)
	create := func(c *control.Actor) (*control.NewKey, error) {
		return h.CreateKey(ctx(), c, control.KeyInput{Name: "k", Scope: "read"})
	}
	k := must[*control.NewKey](h)(create(caller))
	g := h.gateway(caller)
	h.push(caller, g.ID, spec("/a"))
	h.push(caller, g.ID, spec("/b"))
	full = caller.Account.ID
	h.wantNoRecords(caller.Account.ID, func() {
		_, err := create(caller)
		h.wantFull(err)
		_, err = h.RotateKey(ctx(), caller, k.ID, 1, "", nil)
		h.wantFull(err)
		_, err = h.PushSpec(ctx(), caller, g.ID, spec("/c"), false, nil)
		h.wantFull(err)
		_, err = h.Rollback(ctx(), caller, g.ID, 1, false, nil)
		h.wantFull(err)
	})
	h.must(second(create(other)))
	h.must(second(h.UpdateKey(ctx(), caller, k.ID, control.KeyPatch{Name: value("new")}, nil)))
	h.must(second(h.RevokeKey(ctx(), caller, k.ID, nil)))
	h.must(second(h.DeleteGateway(ctx(), caller, g.ID, nil)))
	full = ""
	h.must(second(create(caller)))
}
