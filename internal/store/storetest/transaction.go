package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/snapshot"
)

// everything makes one change of every kind. A transaction that is rolled back must leave no
// trace of it.
type everything struct {
	account *account.Account
	gateway *gateway.Gateway
	key     *apikey.Key
}

func (e *everything) write(ctx context.Context, h *harness, tx control.Tx, a *account.Account, g *gateway.Gateway, k *apikey.Key) error {
	e.account = &account.Account{ID: id.New(id.Account), Name: "rolled back", Tier: account.Scale, CreatedAt: epoch()}
	e.gateway, e.key = newGateway(e.account), newKey(e.account)
	changedGateway, changedKey := *g, *k
	changedGateway.Name, changedKey.Name = "changed", "changed"
	return errors.Join(
		tx.InsertAccount(ctx, e.account),
		tx.InsertGateway(ctx, e.gateway),
		tx.InsertKey(ctx, e.key),
		tx.UpdateGateway(ctx, &changedGateway),
		tx.UpdateKey(ctx, &changedKey),
		tx.TouchKeys(ctx, map[string]time.Time{k.ID: epoch()}),
		tx.InsertRoutes(ctx, []gateway.Route{newRoute(g, "/rolled/back", "GET")}),
		tx.InsertRevision(ctx, newRevision(g, 1)),
		tx.AppendAudit(ctx, newAudit(a, k.ID)),
		tx.AppendEvent(ctx, newEvent(h, a)),
		appendChange(ctx, tx, snapshot.KeyChange, k.ID),
		tx.PutStoredResponse(ctx, &control.StoredResponse{KeyID: k.ID, Key: "rolled back", Status: 200, CreatedAt: epoch()}),
		tx.ReserveDaily(ctx, "node", 1, []ratelimit.DailyClaim{{LimitID: "rt", Cap: 10, Used: 1}}),
	)
}

// nothing checks that e left no trace and that the other records are unchanged.
func (e *everything) nothing(h *harness, a *account.Account, g *gateway.Gateway, k *apikey.Key) {
	h.Helper()
	missing(h, "account", func(ctx context.Context, tx control.ReadTx) (*account.Account, error) {
		return tx.AccountByName(ctx, "rolled back")
	})
	missing(h, "gateway", func(ctx context.Context, tx control.ReadTx) (*gateway.Gateway, error) {
		return tx.Gateway(ctx, e.account.ID, e.gateway.ID)
	})
	missing(h, "key", func(ctx context.Context, tx control.ReadTx) (*apikey.Key, error) {
		return tx.KeyByDigest(ctx, e.key.Digest)
	})
	missing(h, "revision", func(ctx context.Context, tx control.ReadTx) (*gateway.Revision, error) {
		return tx.Revision(ctx, g.ID, 1)
	})
	missing(h, "stored response", func(ctx context.Context, tx control.ReadTx) (*control.StoredResponse, error) {
		return tx.StoredResponse(ctx, k.ID, "rolled back")
	})
	same(h, "gateway", h.gateway(a.ID, g.ID), g)
	same(h, "key", h.key(a.ID, k.ID), k)
	same(h, "routes", len(h.routeTable(g.ID)), 0)
	same(h, "audit log", len(h.auditLog(a.ID)), 0)
	same(h, "events", len(h.events(a.ID)), 0)
	same(h, "change log", h.lastSeq(), int64(0))
	counts, err := h.LoadDailyCounts(h.Context(), "node", 1)
	same(h, "daily counts", fmt.Sprint(len(counts), err), "0 <nil>")
}

// Guarantee: a transaction that does not commit changes nothing at all, whether it ended with an
// error, a panic, or a statement that failed. The store can be used afterwards.
func testRollback(h *harness) {
	a := h.insertAccount("a")
	g, k := h.insertGateway(a), h.insertKey(a, nil)
	refusal := fault.New(fault.Conflict, "no")
	var e everything

	err := h.Update(h.Context(), func(tx control.Tx) error {
		return errors.Join(e.write(h.Context(), h, tx, a, g, k), refusal)
	})
	if !errors.Is(err, refusal) {
		h.Fatalf("Update returned %v, want the function's error", err)
	}
	e.nothing(h, a, g, k)

	func() {
		defer func() {
			if r := recover(); r != "boom" {
				h.Errorf("recovered %v, want the function's panic", r)
			}
		}()
		err := h.Update(h.Context(), func(tx control.Tx) error {
			if err := e.write(h.Context(), h, tx, a, g, k); err != nil {
				return err
			}
			panic("boom")
		})
		h.Errorf("Update returned %v, want a panic", err)
	}()
	e.nothing(h, a, g, k)

	h.conflict("name", func(ctx context.Context, tx control.Tx) error {
		if err := e.write(ctx, h, tx, a, g, k); err != nil {
			return err
		}
		// The caller ignores that a statement failed, which the store may notice only with the next read.
		err := tx.InsertAccount(ctx, &account.Account{ID: id.New(id.Account), Name: "a", Tier: account.Scale, CreatedAt: epoch()})
		if _, readErr := tx.Account(ctx, a.ID); err == nil && readErr == nil {
			h.Error("a taken name was accepted")
		}
		return nil
	})
	e.nothing(h, a, g, k)

	h.update(func(ctx context.Context, tx control.Tx) error { return e.write(ctx, h, tx, a, g, k) })
	same(h, "after a commit: audit log", len(h.auditLog(a.ID)), 1)
	same(h, "after a commit: events", len(h.events(a.ID)), 1)
	list, _ := h.changes(0, 10)
	same(h, "after a commit: changes", changed(list), []string{k.ID})
}

// Guarantee: if the context ends before the commit begins, Update returns its error and changes nothing.
func testCancellation(h *harness) {
	a := h.insertAccount("a")
	g, k := h.insertGateway(a), h.insertKey(a, nil)
	var e everything
	ctx, cancel := context.WithCancel(h.Context())
	err := h.Update(ctx, func(tx control.Tx) error {
		if err := e.write(ctx, h, tx, a, g, k); err != nil {
			return err
		}
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		h.Fatalf("Update returned %v, want context.Canceled", err)
	}
	e.nothing(h, a, g, k)

	ran := func(control.Tx) error { h.Error("the function was called although the context had ended"); return nil }
	if err := h.Update(ctx, ran); !errors.Is(err, context.Canceled) {
		h.Fatalf("Update returned %v, want context.Canceled", err)
	}
	err = h.View(ctx, func(control.ReadTx) error {
		h.Error("the function was called although the context had ended")
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		h.Fatalf("View returned %v, want context.Canceled", err)
	}
	h.insertKey(a, nil)
}

// Guarantee: whenever the context ends, the result of Update is true: nil means committed, and an
// error means that nothing was changed.
func testCancellationAtRandom(h *harness) {
	a := h.insertAccount("a")
	random := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		ctx, cancel := context.WithCancel(h.Context())
		k := newKey(a)
		stop := time.AfterFunc(time.Duration(random.Int64N(int64(4*time.Millisecond))), cancel)
		err := h.Update(ctx, func(tx control.Tx) error {
			return errors.Join(tx.InsertKey(ctx, k), appendChange(ctx, tx, snapshot.KeyChange, k.ID))
		})
		stop.Stop()
		cancel()
		_, readErr := try(h, func(ctx context.Context, tx control.ReadTx) (*apikey.Key, error) { return tx.Key(ctx, a.ID, k.ID) })
		switch {
		case err == nil && readErr != nil:
			h.Fatalf("Update returned nil, but reading the key returned %v", readErr)
		case err != nil && fault.CodeOf(readErr) != fault.NotFound:
			h.Fatalf("Update returned %v, but the key exists (%v)", err, readErr)
		case err != nil && !errors.Is(err, context.Canceled):
			h.Fatalf("Update returned %v, want the context's error", err)
		}
	}
}

// Guarantee: a transaction cannot be used after its end.
func testEndedTransaction(h *harness) {
	a := h.insertAccount("a")
	var kept control.Tx
	h.update(func(_ context.Context, tx control.Tx) error { kept = tx; return nil })
	k := newKey(a)
	if err := kept.InsertKey(h.Context(), k); err == nil {
		h.Error("a write after the end succeeded")
	}
	if _, err := kept.Account(h.Context(), a.ID); err == nil {
		h.Error("a read after the end succeeded")
	}
	missing(h, "key", func(ctx context.Context, tx control.ReadTx) (*apikey.Key, error) { return tx.Key(ctx, a.ID, k.ID) })
}

// Guarantee: concurrent Updates are serializable: no increment is lost, and the change log has the
// order of the commits.
func testSerializableUpdates(h *harness) {
	const workers, rounds = 8, 15
	a := h.insertAccount("a")
	g := h.insertGateway(a)
	g.Version = 0
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.UpdateGateway(ctx, g) })
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range rounds {
				err := h.Update(h.Context(), func(tx control.Tx) error {
					g, err := tx.Gateway(h.Context(), a.ID, g.ID)
					if err != nil {
						return err
					}
					g.Version++
					return errors.Join(tx.UpdateGateway(h.Context(), g), appendChange(h.Context(), tx, snapshot.GatewayChange, fmt.Sprint(g.Version)))
				})
				if err != nil {
					h.Error(err)
				}
			}
		})
	}
	wg.Wait()
	same(h, "increments", h.gateway(a.ID, g.ID).Version, int64(workers*rounds))
	list, _ := h.changes(0, workers*rounds+1)
	for i, c := range list {
		same(h, "position in the change log", c.ID, fmt.Sprint(i+1))
	}
	same(h, "entries", len(list), workers*rounds)
}

// Guarantee: a View sees one state from its first read to its last while others commit, and it
// sees everything that was committed before it began.
func testConsistentViews(h *harness) {
	const rounds = 40
	a := h.insertAccount("a")
	one, two := h.insertGateway(a), h.insertGateway(a)
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for seen := int64(0); ; {
				select {
				case <-done:
					return
				default:
				}
				err := h.View(h.Context(), func(tx control.ReadTx) error {
					first, err := tx.Gateway(h.Context(), a.ID, one.ID)
					if err != nil {
						return err
					}
					keys, err := tx.Keys(h.Context(), a.ID, control.KeyFilter{Now: epoch()}, control.Page{Limit: 100})
					if err != nil {
						return err
					}
					second, err := tx.Gateway(h.Context(), a.ID, two.ID)
					if err != nil {
						return err
					}
					if first.Version != second.Version || int64(len(keys)) != first.Version-1 {
						h.Errorf("one View saw versions %d and %d and %d keys", first.Version, second.Version, len(keys))
					}
					if first.Version < seen {
						h.Errorf("a View saw version %d after %d", first.Version, seen)
					}
					seen = first.Version
					return nil
				})
				if err != nil {
					h.Error(err)
					return
				}
			}
		})
	}
	defer wg.Wait()
	defer close(done)
	for v := int64(2); v < 2+rounds; v++ {
		h.update(func(ctx context.Context, tx control.Tx) error {
			one.Version, two.Version = v, v
			return errors.Join(tx.UpdateGateway(ctx, one), tx.UpdateGateway(ctx, two), tx.InsertKey(ctx, newKey(a)))
		})
		same(h, "version after its commit", h.gateway(a.ID, one.ID).Version, v)
	}
}

// appendChange appends an entry to the change log.
func appendChange(ctx context.Context, tx control.Tx, k snapshot.ChangeKind, recordID string) error {
	_, err := tx.AppendChange(ctx, k, recordID)
	return err
}
