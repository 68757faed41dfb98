package control_test

import (
	"context"
	"testing"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/store"
)

// tableReads counts how often transactions that write read a whole route table, and calls before in front of each.
type tableReads struct {
	store.Engine
	reads  int
	before func()
}

func (s *tableReads) Update(ctx context.Context, f func(control.Tx) error) error {
	if before := s.before; before != nil {
		s.before = nil
		before()
	}
	return s.Engine.Update(ctx, func(tx control.Tx) error { return f(&tableReader{tx, s}) })
}

type tableReader struct {
	control.Tx
	s *tableReads
}

// RouteTable implements control.RouteReader.
func (t *tableReader) RouteTable(ctx context.Context, gatewayID string) ([]gateway.Route, error) {
	t.s.reads++
	return t.Tx.RouteTable(ctx, gatewayID)
}

// Guarantee: a change of one route is compared with the other routes of its gateway, perhaps 100,000, before its
// transaction, for which all changes of all accounts wait. If the other routes have changed in between, it is compared
// again.
func TestRouteIsComparedBeforeItsTransaction(t *testing.T) {
	h := newHarness(t)
	reads := &tableReads{Engine: h.db}
	h.serve(reads)
	c := h.caller("acme", "admin")
	g := must[*gateway.Gateway](h)(h.CreateGateway(ctx(), c, newGateway("https://h"), string(spec("/a", "/b"))))
	reads.reads = 0
	in := func(path string) gateway.RouteSpec { return gateway.RouteSpec{Path: path, Methods: []string{"GET"}} }
	r := must[*gateway.Route](h)(h.CreateRoute(ctx(), c, g.ID, in("/c")))
	if _, err := h.UpdateRoute(ctx(), c, g.ID, r.ID, control.RoutePatch{Path: value("/d")}, nil); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/a", "/{x}", "/d"} {
		_, err := h.CreateRoute(ctx(), c, g.ID, in(path))
		if want := path != "/{x}"; (fault.CodeOf(err) == fault.ValidationFailed) != want {
			t.Errorf("%s: got %v, want a conflict: %v", path, err, want)
		}
	}
	if _, err := h.UpdateRoute(ctx(), c, g.ID, r.ID, control.RoutePatch{Path: value("/b")}, nil); fault.CodeOf(err) != fault.ValidationFailed {
		t.Errorf("moving a route to the path of another: %v", err)
	}
	if reads.reads != 0 {
		t.Errorf("transactions have read the route table %d times, want 0", reads.reads)
	}
	// Another node adds the same route between the comparison and the transaction.
	other := newHarness(t)
	other.serve(reads.Engine)
	reads.before = func() {
		must[*gateway.Route](h)(other.CreateRoute(ctx(), c, g.ID, in("/e")))
	}
	if _, err := h.CreateRoute(ctx(), c, g.ID, in("/e")); fault.CodeOf(err) != fault.ValidationFailed {
		t.Errorf("a route that another node has just added: %v", err)
	}
}
