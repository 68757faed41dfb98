package storetest

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// Guarantee: calls for an account do not find, list or change records of another account.
func testIsolation(h *harness) {
	a, b := h.insertAccount("a"), h.insertAccount("b")
	g := h.insertGateway(a)
	k := h.insertKey(a, func(k *apikey.Key) {
		k.GatewayID, k.PlanID, k.HolderRoot = g.ID, "plan_1", "key_root"
		setOwner(k, "ada")
	})
	h.update(func(ctx context.Context, tx control.Tx) error {
		if err := tx.InsertRoutes(ctx, []gateway.Route{newRoute(g, "/a", "GET")}); err != nil {
			return err
		}
		if err := tx.AppendAudit(ctx, newAudit(a, k.ID)); err != nil {
			return err
		}
		return tx.AppendEvent(ctx, newEvent(h, a))
	})

	missing(h, "Gateway", func(ctx context.Context, tx control.ReadTx) (*gateway.Gateway, error) {
		return tx.Gateway(ctx, b.ID, g.ID)
	})
	missing(h, "Key", func(ctx context.Context, tx control.ReadTx) (*apikey.Key, error) { return tx.Key(ctx, b.ID, k.ID) })
	page := control.Page{Limit: 10}
	empty(h, "Gateways", func(ctx context.Context, tx control.ReadTx) ([]gateway.Gateway, error) {
		return tx.Gateways(ctx, b.ID, page)
	})
	empty(h, "KeysOfBucket", func(ctx context.Context, tx control.ReadTx) ([]apikey.Key, error) {
		return tx.KeysOfBucket(ctx, b.ID, k.BucketID, epoch(), 10)
	})
	same(h, "CountKeysOfBucket", get(h, func(ctx context.Context, tx control.ReadTx) (int, error) {
		return tx.CountKeysOfBucket(ctx, b.ID, k.BucketID, epoch(), 10)
	}), 0)
	empty(h, "KeysByHolders", func(ctx context.Context, tx control.ReadTx) ([]apikey.Key, error) {
		return tx.KeysByHolders(ctx, b.ID, k.BucketID, k.HolderRoot, time.Time{}, 10)
	})
	empty(h, "Audit", func(ctx context.Context, tx control.ReadTx) ([]audit.Record, error) { return tx.Audit(ctx, b.ID, page) })
	empty(h, "Events", func(ctx context.Context, tx control.ReadTx) ([]event.Event, error) {
		return tx.Events(ctx, b.ID, control.EventFilter{}, page)
	})
	for _, f := range []control.KeyFilter{
		{}, {State: apikey.Active}, {Level: apikey.GatewayLevel}, {Owner: "ada"}, {GatewayID: g.ID}, {PlanID: "plan_1"}, {Query: "partner"}, {Query: "kg_"},
		{GatewayID: g.ID, Owner: "ada", State: apikey.Active, Level: apikey.GatewayLevel, Query: "partner"},
	} {
		f.Now = epoch()
		empty(h, "Keys", func(ctx context.Context, tx control.ReadTx) ([]apikey.Key, error) { return tx.Keys(ctx, b.ID, f, page) })
		if len(h.keyPage(a.ID, f, page)) != 1 {
			h.Fatalf("the key's own account does not find it by %+v", f)
		}
	}

	stolenGateway, stolenKey := *g, *k
	stolenGateway.AccountID, stolenGateway.Name, stolenKey.AccountID, stolenKey.Name = b.ID, "stolen", b.ID, "stolen"
	h.rejected(fault.NotFound, func(ctx context.Context, tx control.Tx) error { return tx.UpdateGateway(ctx, &stolenGateway) })
	h.rejected(fault.NotFound, func(ctx context.Context, tx control.Tx) error { return tx.DeleteGateway(ctx, b.ID, g.ID) })
	h.rejected(fault.NotFound, func(ctx context.Context, tx control.Tx) error { return tx.UpdateKey(ctx, &stolenKey) })
	// Even if the caller ignores the error, nothing is removed. A store may find it only at the end.
	if err := h.Update(h.Context(), func(tx control.Tx) error {
		if err := tx.DeleteGateway(h.Context(), b.ID, g.ID); fault.CodeOf(err) != fault.NotFound {
			return err
		}
		return nil
	}); err != nil && fault.CodeOf(err) != fault.NotFound {
		h.Fatal(err)
	}
	same(h, "gateway", h.gateway(a.ID, g.ID), g)
	same(h, "key", h.key(a.ID, k.ID), k)
	same(h, "routes", len(h.routeTable(g.ID)), 1)
}

// empty checks that f lists nothing.
func empty[T any](h *harness, what string, f func(ctx context.Context, tx control.ReadTx) ([]T, error)) {
	h.Helper()
	if list := get(h, f); len(list) != 0 {
		h.Fatalf("%s lists %d records, want none", what, len(list))
	}
}
