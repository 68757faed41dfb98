package control_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// someUpdates is a store that fails after a number of transactions.
type someUpdates struct {
	control.Store
	left int
}

func (s *someUpdates) Update(ctx context.Context, f func(control.Tx) error) error {
	if s.left--; s.left < 0 {
		return fault.New(fault.Unavailable, "crashed")
	}
	return s.Store.Update(ctx, f)
}

// keysOf creates keys that are restricted to a gateway.
func (h *harness) keysOf(c *control.Actor, gatewayID string, n int) (keys []*control.NewKey) {
	h.tb.Helper()
	for i := range n {
		keys = append(keys, must[*control.NewKey](h)(h.CreateKey(ctx(), c, control.KeyInput{Name: fmt.Sprintf("k%d", i), Scope: "read", GatewayID: gatewayID})))
	}
	return keys
}

// manyPaths returns n paths.
func manyPaths(n int) (paths []string) {
	for i := range n {
		paths = append(paths, fmt.Sprintf("/r%d", i))
	}
	return paths
}

// Guarantee: when DELETE of a gateway with many keys and routes returns, all of the keys are revoked for every reader,
// whatever crashes then. Records that were not written yet are written later: each key gets its event and its audit
// record once, and each route its audit record. No record changes again.
func TestDeletionGoesOnAfterACrash(t *testing.T) {
	const keys, routes = 130, 320
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	g := must[*gateway.Gateway](h)(h.CreateGateway(ctx(), caller, newGateway("https://h"), string(spec(manyPaths(routes)...))))
	made, free := h.keysOf(caller, g.ID, keys), h.keysOf(caller, "", 1)[0]
	before := h.records(caller.Account.ID)
	crashing := &someUpdates{Store: h.db, left: 2}
	h.serve(crashing)
	must[*gateway.Gateway](h)(h.DeleteGateway(ctx(), caller, g.ID, nil))
	crashing.left = keys
	deleted := h.clock.now()
	h.clock.advance(time.Second)
	list := func(state apikey.State) []apikey.Key {
		return must[[]apikey.Key](h)(h.Keys(ctx(), caller, control.KeyFilter{State: state, Level: apikey.GatewayLevel}, control.Page{Limit: 1000}))
	}
	first := map[string]int64{}
	check := func(when string) {
		t.Helper()
		if active, revoked := list(apikey.Active), list(apikey.Revoked); len(active) != 1 || active[0].ID != free.ID || len(revoked) != keys {
			t.Errorf("%s %d keys are active and %d revoked; want 1 and %d", when, len(active), len(revoked), keys)
		}
		for _, k := range made {
			got := must[*apikey.Key](h)(h.Key(ctx(), caller, k.ID))
			if first[k.ID] == 0 {
				first[k.ID] = got.Version
			}
			if !got.RevokedAt.Equal(deleted) || got.Version != first[k.ID] {
				t.Fatalf("%s a key was revoked at %v with version %d; want %v and %d", when, got.RevokedAt, got.Version, deleted, first[k.ID])
			}
		}
		_, err := h.UpdateKey(ctx(), caller, made[keys-1].ID, control.KeyPatch{Name: value("x")}, nil)
		h.wantCode(err, fault.Conflict, "")
		_, err = h.RotateKey(ctx(), caller, made[keys-1].ID, 1, "", nil)
		h.wantCode(err, fault.Conflict, "")
	}
	check("after the crash")
	h.reopen()
	h.must(h.FinishDeletions(ctx()))
	check("at the end")
	audits, events, _ := h.records(caller.Account.ID).since(before).summary()
	seen := map[string]int{}
	for _, line := range append(audits, events...) {
		seen[line]++
	}
	for _, k := range made {
		if seen["key.revoke "+k.ID] != 1 || seen["key.revoked "+k.ID] != 1 {
			t.Fatalf("a key has %d audit records and %d events; want 1 of each", seen["key.revoke "+k.ID], seen["key.revoked "+k.ID])
		}
	}
	if len(events) != keys || len(audits) != keys+routes+1 {
		t.Errorf("got %d events and %d audit records; want %d and %d", len(events), len(audits), keys, keys+routes+1)
	}
}
