package storetest

import (
	"context"
	"errors"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/owner"
)

// Guarantee: no reader finds the keys of an import that is not complete, except HaveDigests, StrayKey and the counts of the
// account; from the moment that it is complete, all do. Deleted pieces leave nothing.
func testKeyImport(h *harness) {
	a := h.insertAccount("a")
	g, p := h.insertGateway(a), h.insertPlan(a, "p")
	had, made := h.insertOwner(a, "had", nil), h.insertOwner(a, "made", nil)
	m := &control.KeyImport{ID: "imp_1", AccountID: a.ID, Call: control.RecordedCall{Kind: control.KeyActor, KeyID: "key_1", Path: "/v1/keys/import"}}
	of := func(o *owner.Owner) apikey.Key {
		k := newKey(a)
		k.Imported, k.Owner, k.OwnerID, k.PlanID, k.GatewayID, k.ExpiresAt = true, o.ExternalID, o.ID, p.ID, g.ID, epoch().Add(time.Hour)
		return *k
	}
	pieces := [][]apikey.Key{{of(had), of(made)}, {of(made)}}
	var ids []string
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertKeyImport(ctx, m) })
	for n, keys := range pieces {
		piece := &control.ImportPiece{ImportID: m.ID, Number: n, OwnerIDs: []string{made.ID}}
		for i := range keys {
			piece.KeyIDs = append(piece.KeyIDs, keys[i].ID)
		}
		ids = append(ids, piece.KeyIDs...)
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertPiece(ctx, a.ID, piece, keys) })
	}
	m.Pieces = 2
	k := &pieces[0][0]
	check := func(when string, exist bool) {
		h.Helper()
		n := 0
		if exist {
			n = len(ids)
		}
		ctx := h.Context()
		if err := h.View(ctx, func(tx control.ReadTx) error {
			_, byID := tx.Key(ctx, a.ID, k.ID)
			_, byDigest := tx.KeyByDigest(ctx, k.Digest)
			same(h, when+": found", []bool{fault.CodeOf(byID) == fault.NotFound, fault.CodeOf(byDigest) == fault.NotFound}, []bool{!exist, !exist})
			for _, f := range []control.KeyFilter{{}, {State: apikey.Active}, {Level: apikey.GatewayLevel}, {GatewayID: g.ID}, {PlanID: p.ID}, {Name: "partner"}, {Query: "artne"}} {
				f.Now = epoch()
				keys, err := tx.Keys(ctx, a.ID, f, control.Page{Limit: 10})
				if err != nil {
					return err
				}
				same(h, when+": listed", len(keys), n)
			}
			use, err := tx.PlanUse(ctx, a.ID, p.ID, 10)
			if err != nil {
				return err
			}
			same(h, when+": keys of the plan", use.Keys, n)
			active, err := tx.OwnerHasActiveKeys(ctx, a.ID, made.ID, epoch())
			if err != nil {
				return err
			}
			same(h, when+": the owner has active keys", active, exist)
			expired, err := tx.KeysToNotify(ctx, epoch().Add(2*time.Hour), 10)
			if err != nil {
				return err
			}
			same(h, when+": to notify", len(expired), n)
			have, err := tx.HaveDigests(ctx, a.ID, []apikey.Digest{k.Digest})
			if err != nil {
				return err
			}
			same(h, when+": digests", len(have), 1)
			stray, err := tx.StrayKey(ctx, ids)
			same(h, when+": stray", stray, false)
			return err
		}); err != nil {
			h.Errorf("%s: %v", when, err)
		}
		_, err := h.KeyByID(ctx, k.ID)
		same(h, when+": found by the data plane", fault.CodeOf(err) == fault.NotFound, !exist)
		loaded := 0
		if err := h.EachKey(ctx, epoch(), func(*apikey.Key) error { loaded++; return nil }); err != nil {
			h.Errorf("%s: %v", when, err)
		}
		same(h, when+": loaded", loaded, n)
	}
	imports := func() []control.KeyImport {
		return get(h, func(ctx context.Context, tx control.ReadTx) ([]control.KeyImport, error) {
			return tx.KeyImports(ctx, 10)
		})
	}
	first := func() *control.ImportPiece {
		return get(h, func(ctx context.Context, tx control.ReadTx) (*control.ImportPiece, error) {
			return tx.FirstPiece(ctx, m.ID)
		})
	}
	same(h, "imports", imports(), []control.KeyImport{*m})
	check("being written", false)
	h.update(func(ctx context.Context, tx control.Tx) error {
		return tx.SetImportState(ctx, m.ID, control.ImportGivenUp)
	})
	check("given up", false)
	unused := get(h, func(ctx context.Context, tx control.ReadTx) ([]owner.Owner, error) {
		return tx.UnusedOwners(ctx, first())
	})
	same(h, "unused owners", unused, []owner.Owner{*made})
	h.update(func(ctx context.Context, tx control.Tx) error {
		return tx.SetImportState(ctx, m.ID, control.ImportComplete)
	})
	check("complete", true)
	used := get(h, func(ctx context.Context, tx control.ReadTx) ([]owner.Owner, error) {
		return tx.UnusedOwners(ctx, first())
	})
	same(h, "unused owners when complete", len(used), 0)
	of1 := get(h, func(ctx context.Context, tx control.ReadTx) ([]apikey.Key, error) {
		return tx.ImportedKeys(ctx, first())
	})
	same(h, "keys of the first piece", sortedIDs(of1), sortedOf(&pieces[0][0], &pieces[0][1]))
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.DeleteOwner(ctx, a.ID, had.ID) })
	same(h, "stray without an owner", get(h, func(ctx context.Context, tx control.ReadTx) (bool, error) { return tx.StrayKey(ctx, ids) }), true)
	for piece := first(); piece != nil; piece = first() {
		h.update(func(ctx context.Context, tx control.Tx) error {
			return errors.Join(tx.DeleteImportedKeys(ctx, piece), tx.DeletePiece(ctx, piece))
		})
	}
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.DeleteKeyImport(ctx, m.ID) })
	same(h, "imports at the end", len(imports()), 0)
	counts := get(h, func(ctx context.Context, tx control.ReadTx) (control.AccountCounts, error) {
		return tx.AccountCounts(ctx, a.ID)
	})
	same(h, "counted keys at the end", counts.Keys+counts.LiveKeys+counts.KeyBytes, int64(0))
	gone := get(h, func(ctx context.Context, tx control.ReadTx) (*control.KeyImport, error) {
		return tx.KeyImport(ctx, m.ID)
	})
	same(h, "the import is gone", gone == nil, true)
}
