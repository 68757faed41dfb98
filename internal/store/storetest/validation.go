package storetest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/validate"
	"github.com/keygate/keygate/internal/validation"
)

// requestsOf returns a report of n requests to a gateway at a time, with one problem each.
func requestsOf(accountID, gatewayID string, n int, at time.Time, schema string) *validation.Report {
	r := &validation.Reports{}
	for range n {
		r.Add(&validation.Entry{
			AccountID: accountID, GatewayID: gatewayID, Method: "POST", Path: "/a", KeyID: "key_1", At: at, Checked: true,
			Problems: []validate.Problem{{In: validate.InBody, Schema: schema, Rule: "type", Message: "must be a string"}},
		})
	}
	return r.Take()[gatewayID]
}

// Guarantee: edge.md, section 6. What nodes report at once adds up to one report of each gateway, which forgets what is older than a day. It
// goes with its gateway, is not made for one that is gone, and is removed when nothing was reported for a day.
func testValidationReports(h *harness) {
	ctx := h.Context()
	a := h.insertAccount("validation")
	g, other := h.insertGateway(a), h.insertGateway(a)
	count := func(gatewayID string) (requests int64, rows int) {
		h.Helper()
		r, err := h.Validation(ctx, gatewayID)
		if err != nil {
			h.Fatal(err)
		}
		return r.Totals.Sum().Requests, len(r.Rows)
	}
	if n, rows := count(g.ID); n != 0 || rows != 0 {
		h.Errorf("got %d requests and %d rows, want none", n, rows)
	}
	var nodes sync.WaitGroup
	errs := make(chan error, 4)
	for node := range 4 {
		nodes.Go(func() {
			for range 5 {
				list := []*validation.Report{requestsOf(a.ID, g.ID, 2, epoch(), fmt.Sprint("/", node%2)), requestsOf(a.ID, other.ID, 1, epoch(), "/")}
				if err := h.MergeValidation(ctx, list, epoch()); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	nodes.Wait()
	close(errs)
	for err := range errs {
		h.Fatal(err)
	}
	if n, rows := count(g.ID); n != 40 || rows != 2 {
		h.Errorf("got %d requests and %d rows, want 40 and 2", n, rows)
	}
	if n, rows := count(other.ID); n != 20 || rows != 1 {
		h.Errorf("got %d requests and %d rows of the other, want 20 and 1", n, rows)
	}
	later := epoch().Add((validation.Hours + 2) * time.Hour)
	if err := h.MergeValidation(ctx, []*validation.Report{requestsOf(a.ID, g.ID, 3, later, "/new")}, later); err != nil {
		h.Fatal(err)
	}
	if n, rows := count(g.ID); n != 3 || rows != 1 {
		h.Errorf("got %d requests and %d rows a day later, want 3 and 1", n, rows)
	}
	if n, rows := count(other.ID); n != 0 || rows != 0 {
		h.Errorf("got %d requests and %d rows of the other a day later, want none", n, rows)
	}
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.DeleteGateway(ctx, a.ID, g.ID) })
	if err := h.MergeValidation(ctx, []*validation.Report{requestsOf(a.ID, g.ID, 3, later, "/new")}, later); err != nil {
		h.Fatal(err)
	}
	if n, rows := count(g.ID); n != 0 || rows != 0 {
		h.Errorf("got %d requests and %d rows of a gateway that is gone, want none", n, rows)
	}
}
