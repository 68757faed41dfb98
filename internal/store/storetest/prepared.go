package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// newTable returns a revision with a table of n routes that do not compress well.
func newTable(g *gateway.Gateway, number int64, n int) *gateway.Revision {
	r := newRevision(g, number)
	r.Routes = make([]gateway.Route, n)
	rnd := rand.New(rand.NewPCG(uint64(number), uint64(n)))
	for i := range r.Routes {
		r.Routes[i] = newRoute(g, fmt.Sprintf("/%x/%x/{id}", rnd.Uint64(), rnd.Uint64()), "GET", "PUT")
	}
	return r
}

func (h *harness) prepare(r *gateway.Revision) control.Prepared {
	h.Helper()
	p, err := h.Prepare(h.Context(), r)
	h.must(err)
	return p
}

// Guarantee: a prepared revision, small or large, changes nothing until the transaction that inserts it is
// committed; then it is the gateway's revision and its whole route table. A revision that is discarded, or
// that a crash left behind, is never seen. Single routes can be changed afterwards without changing the
// revision.
func testPrepared(h *harness) {
	a := h.insertAccount("a")
	g, other := h.insertGateway(a), h.insertGateway(a)
	h.update(func(ctx context.Context, tx control.Tx) error {
		return tx.InsertRoutes(ctx, []gateway.Route{newRoute(g, "/old", "GET"), newRoute(other, "/other", "GET")})
	})
	before := h.routeTable(g.ID)
	for number, n := range []int{1, 9000, 0, 3000} {
		r := newTable(g, int64(number+1), n)
		p := h.prepare(r)
		same(h, "the table before", h.routeTable(g.ID), before)
		version := h.tableVersion(g.ID)
		stop := errors.New("stop")
		err := h.Update(h.Context(), func(tx control.Tx) error {
			h.must(tx.InsertPrepared(h.Context(), p))
			return stop
		})
		if !errors.Is(err, stop) {
			h.Fatalf("got %v, want the error of the function", err)
		}
		same(h, "the table after a rollback", h.routeTable(g.ID), before)
		same(h, "its version", h.tableVersion(g.ID), version)
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertPrepared(ctx, p) })
		h.must(h.Discard(h.Context(), p)) // does nothing now
		got := h.revision(g.ID, r.Number)
		if n == 0 {
			got.Routes, r.Routes = nil, nil
		}
		same(h, "revision", got, r)
		same(h, "table", h.routeTable(g.ID), r.Routes)
		if h.tableVersion(g.ID) == version {
			h.Error("the version of the table has not changed")
		}
		before = r.Routes
	}
	discarded := h.prepare(newTable(g, 9, 5000))
	h.must(h.Discard(h.Context(), discarded))
	h.trimTables(time.Time{})
	left := h.prepare(newTable(g, 10, 5000)) // as by a crash
	h.trimTables(time.Now().Add(24 * time.Hour))
	h.rejected(fault.Unavailable, func(ctx context.Context, tx control.Tx) error { return tx.InsertPrepared(ctx, left) })
	same(h, "after the removal of what was left behind", h.routeTable(g.ID), before)
	same(h, "routes of an earlier revision", len(h.revision(g.ID, 2).Routes), 9000)
	h.changeSingleRoutes(g, before)
	same(h, "the other gateway", len(h.routeTable(other.ID)), 1)
}

// changeSingleRoutes changes routes of a table of many pages one by one.
func (h *harness) changeSingleRoutes(g *gateway.Gateway, table []gateway.Route) {
	h.Helper()
	want := slices.Clone(table)
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		i := rnd.IntN(len(want))
		changed, added := want[i], newRoute(g, fmt.Sprintf("/added/%d", rnd.Uint64()), "GET")
		changed.Path, changed.Version = changed.Path+"/changed", changed.Version+1
		want[i] = changed
		gone := rnd.IntN(len(want))
		h.update(func(ctx context.Context, tx control.Tx) error {
			if err := tx.UpdateRoutes(ctx, []gateway.Route{changed}); err != nil {
				return err
			}
			if err := tx.DeleteRoutes(ctx, g.ID, []string{want[gone].ID}); err != nil {
				return err
			}
			return tx.InsertRoutes(ctx, []gateway.Route{added})
		})
		want = append(slices.Delete(want, gone, gone+1), added)
	}
	same(h, "table after single changes", h.routeTable(g.ID), want)
	same(h, "its revision", h.revision(g.ID, 4).Routes, table)
}

func (h *harness) tableVersion(gatewayID string) control.TableVersion {
	h.Helper()
	return get(h, func(ctx context.Context, tx control.ReadTx) (control.TableVersion, error) {
		return tx.TableVersion(ctx, gatewayID)
	})
}

// trimTables runs TrimTables to its end.
func (h *harness) trimTables(staged time.Time) {
	h.Helper()
	for more := true; more; {
		h.update(func(ctx context.Context, tx control.Tx) (err error) {
			more, err = tx.TrimTables(ctx, staged, 7)
			return err
		})
	}
}
