package control_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
)

// beyond returns tables that exceed a bound of contract 4.2: a path of 65 segments, and 1,001
// templates with text around a parameter at one place.
func beyond() map[string][]string {
	many := make([]string, gateway.MaxTexts+1)
	for i := range many {
		many[i] = fmt.Sprintf("/t/%d-{id}", i)
	}
	return map[string][]string{"segments": {"/ok", strings.Repeat("/a", gateway.MaxSegments+1)}, "texts": many}
}

// configuration is a configuration file with a GET of each path.
func configuration(paths ...string) []byte {
	var b strings.Builder
	b.WriteString("routes:\n")
	for _, p := range paths {
		fmt.Fprintf(&b, "  - {path: %q, methods: [GET]}\n", p)
	}
	return []byte(b.String())
}

// Guarantee: contract 4.2: a table beyond the bounds is refused with 422 in whatever way its routes come:
// a spec or a configuration file, for real or as a dry run, the spec of a new gateway, a rollback, one
// route that is created or changed. Nothing of it is stored.
func TestRouteBounds(t *testing.T) {
	for name, paths := range beyond() {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			caller := h.caller("acme", "admin")
			last, others := paths[len(paths)-1], slices.Clone(paths[:len(paths)-1])
			g := h.gateway(caller)
			h.push(caller, g.ID, spec(append(others, "/other")...))
			routes := h.routes(caller, g.ID)
			h.insertRevision(g.ID, paths)
			h.wantNoRecords(caller.Account.ID, func() {
				for _, dryRun := range []bool{false, true} {
					_, err := h.PushSpec(ctx(), caller, g.ID, spec(paths...), dryRun, nil)
					h.wantCode(err, fault.ValidationFailed, "paths."+last)
					_, err = h.PushConfiguration(ctx(), caller, g.ID, configuration(paths...), dryRun, nil)
					h.wantCode(err, fault.ValidationFailed, fmt.Sprintf("routes[%d].path", len(paths)-1))
				}
				_, err := h.Rollback(ctx(), caller, g.ID, 2, false, nil)
				h.wantCode(err, fault.ValidationFailed, "number")
				_, err = h.CreateGateway(ctx(), caller, newGateway("http://127.0.0.1:9"), string(spec(paths...)))
				h.wantCode(err, fault.ValidationFailed, "spec")
				_, err = h.CreateRoute(ctx(), caller, g.ID, routeSpec(last, "GET"))
				h.wantCode(err, fault.ValidationFailed, "path")
				_, err = h.UpdateRoute(ctx(), caller, g.ID, routes[len(routes)-1].ID, control.RoutePatch{Path: value(last)}, nil)
				h.wantCode(err, fault.ValidationFailed, "path")
			})
			if got := h.routes(caller, g.ID); len(got) != len(routes) || len(must[[]gateway.Gateway](h)(h.Gateways(ctx(), caller, control.GatewayFilter{}, control.Page{Limit: 10}))) != 1 {
				t.Errorf("got %d routes, want the %d from before, and one gateway", len(got), len(routes))
			}
		})
	}
}

// insertRevision stores revision 2 with the paths, as an earlier version may have.
func (h *harness) insertRevision(gatewayID string, paths []string) {
	h.tb.Helper()
	r := &gateway.Revision{ID: id.New(id.Revision), GatewayID: gatewayID, Number: 2, Source: gateway.API, Kind: gateway.SpecDocument, CreatedAt: h.clock.now(), Content: []byte("{}")}
	for _, p := range paths {
		r.Routes = append(r.Routes, gateway.Route{ID: id.New(id.Route), GatewayID: gatewayID, Path: p, Methods: []string{"GET"}, Auth: gateway.AuthKey, Source: gateway.Spec, Version: 1})
	}
	h.must(h.db.Update(ctx(), func(tx control.Tx) error { return tx.InsertRevision(ctx(), r) }))
}

// Guarantee: contract 4.2: the routes of all gateways of an account are bounded, in whatever way they
// come. Other accounts have bounds of their own, and a table that does not grow is always accepted.
func TestRoutesOfAnAccountAreBounded(t *testing.T) {
	h := newHarness(t)
	h.maxRoutes = 5
	h.serve(h.db)
	caller, other := h.caller("acme", "admin"), h.caller("other", "admin")
	g, second := h.gateway(caller), h.gateway(caller)
	h.push(caller, g.ID, spec("/a", "/b", "/c"))
	h.push(caller, second.ID, spec("/a", "/b"))
	h.wantNoRecords(caller.Account.ID, func() {
		for _, dryRun := range []bool{false, true} {
			_, err := h.PushSpec(ctx(), caller, g.ID, spec("/a", "/b", "/c", "/d"), dryRun, nil)
			h.wantCode(err, fault.ValidationFailed, "paths")
			_, err = h.PushConfiguration(ctx(), caller, g.ID, configuration("/a", "/b", "/c", "/d"), dryRun, nil)
			h.wantCode(err, fault.ValidationFailed, "routes")
		}
		_, err := h.CreateRoute(ctx(), caller, g.ID, routeSpec("/d", "GET"))
		h.wantCode(err, fault.ValidationFailed, "path")
		_, err = h.CreateGateway(ctx(), caller, newGateway("http://127.0.0.1:9"), string(spec("/a")))
		h.wantCode(err, fault.ValidationFailed, "spec")
	})
	h.push(other, h.gateway(other).ID, spec("/a", "/b", "/c", "/d", "/e"))
	h.push(caller, g.ID, spec("/a", "/b", "/d"))
	h.push(caller, second.ID, spec("/a"))
	h.route(caller, g.ID, "/e", "GET")
	_, err := h.Rollback(ctx(), caller, second.ID, 1, false, nil)
	h.wantCode(err, fault.ValidationFailed, "number")
	h.maxRoutes = 2 // the account has more already
	h.serve(h.db)
	h.push(caller, g.ID, spec("/x", "/y", "/z", "/zz"))
	must[*gateway.Gateway](h)(h.DeleteGateway(ctx(), caller, g.ID, nil))
	h.route(caller, second.ID, "/b", "GET")
}

// Guarantee: however pushes, new routes and deletions of several gateways of an account run at the same
// time, its routes never exceed the bound, and the number that is checked against the bound is the
// number of stored routes.
func TestBoundOfAnAccountUnderConcurrency(t *testing.T) {
	const most, gateways = 12, 3
	h := newHarness(t)
	h.maxRoutes = most
	h.serve(h.db)
	accounts := 0
	rapid.Check(t, func(t *rapid.T) {
		accounts++
		caller := h.caller(fmt.Sprint("acme-", accounts), "admin")
		var wg sync.WaitGroup
		for i := range gateways {
			g := h.gateway(caller)
			sizes := rapid.SliceOfN(rapid.IntRange(0, most), 1, 3).Draw(t, fmt.Sprint("sizes ", i))
			wg.Go(func() {
				for _, n := range sizes {
					paths := make([]string, n)
					for i := range paths {
						paths[i] = fmt.Sprintf("/r%d", i)
					}
					_, err := h.PushSpec(ctx(), caller, g.ID, spec(paths...), false, nil)
					_, more := h.CreateRoute(ctx(), caller, g.ID, routeSpec("/more", "GET"))
					for _, err := range []error{err, more} {
						if err != nil && fault.CodeOf(err) != fault.ValidationFailed {
							t.Errorf("got %v, want success or a refusal", err)
						}
					}
				}
			})
		}
		wg.Wait()
		stored := 0
		for _, g := range must[[]gateway.Gateway](h)(h.Gateways(ctx(), caller, control.GatewayFilter{}, control.Page{Limit: gateways})) {
			stored += len(h.routes(caller, g.ID))
		}
		counted := 0
		h.must(h.db.View(ctx(), func(tx control.ReadTx) (err error) {
			counted, err = tx.CountRoutes(context.Background(), caller.Account.ID)
			return err
		}))
		if stored > most || counted != stored {
			t.Fatalf("got %d routes, counted as %d, want at most %d", stored, counted, most)
		}
	})
}
