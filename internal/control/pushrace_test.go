package control_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// Guarantee: pushes, changes of single routes and of settings of one gateway at the same time all succeed,
// one after the other: each push replaces the whole table as it is then, and none undoes a change that
// came after it.
func TestPushesAndSingleChangesAtTheSameTime(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	g := h.gateway(caller)
	const rounds = 15
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() {
			for n := range rounds {
				_, err := h.PushSpec(ctx(), caller, g.ID, spec("/pushed", fmt.Sprintf("/%d/%d", i, n)), false, nil)
				h.check(err)
			}
		})
	}
	wg.Go(func() {
		for n := range rounds {
			r, err := h.CreateRoute(ctx(), caller, g.ID, routeSpec(fmt.Sprintf("/single/%d", n), "GET"))
			if h.check(err); err != nil {
				return
			}
			if _, err := h.DeleteRoute(ctx(), caller, g.ID, r.ID, nil); err != nil && fault.CodeOf(err) != fault.NotFound {
				t.Error(err) // a push may have removed it
			}
		}
	})
	wg.Go(func() {
		for n := range rounds {
			_, err := h.UpdateGateway(ctx(), caller, g.ID, gateway.Patch{Name: value(fmt.Sprint("name", n))}, nil)
			h.check(err)
		}
	})
	wg.Wait()
	now, err := h.Gateway(ctx(), caller, g.ID)
	h.must(err)
	if now.Name != fmt.Sprint("name", rounds-1) || now.Revision != 2*rounds {
		t.Errorf("got name %s and revision %d, want name%d and %d", now.Name, now.Revision, rounds-1, 2*rounds)
	}
	if routes := h.routes(caller, g.ID); len(routes) != 2 && len(routes) != 3 {
		t.Errorf("got %d routes, want the 2 of one push, and perhaps a single one", len(routes))
	}
}

// check reports an error; it may be called in any goroutine.
func (h *harness) check(err error) {
	if err != nil {
		h.tb.Errorf("got error %v, want none", err)
	}
}
