package storetest

import (
	"context"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/canary"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
)

func newCanary(g *gateway.Gateway) *canary.Canary {
	return &canary.Canary{ID: id.New(id.Canary), AccountID: g.AccountID, GatewayID: g.ID, State: canary.Running, Number: 1, Since: epoch(), CreatedAt: epoch(), Version: 1}
}

func (h *harness) insertCanary(g *gateway.Gateway, s canary.State) *canary.Canary {
	h.Helper()
	c := newCanary(g)
	c.State = s
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertCanary(ctx, c) })
	return c
}

func (h *harness) canary(c *canary.Canary) *canary.Canary {
	h.Helper()
	return get(h, func(ctx context.Context, tx control.ReadTx) (*canary.Canary, error) {
		return tx.Canary(ctx, c.AccountID, c.GatewayID, c.ID)
	})
}

// canaryOf draws a canary of g.
func canaryOf(g *gateway.Gateway) *rapid.Generator[*canary.Canary] {
	return rapid.Custom(func(t *rapid.T) *canary.Canary {
		c := newCanary(g)
		c.State = rapid.SampledFrom([]canary.State{canary.Running, canary.Paused, canary.Held, canary.Promoted, canary.Aborted}).Draw(t, "state")
		c.Step, c.Number = rapid.IntRange(0, canary.MaxSteps).Draw(t, "step"), rapid.IntRange(1, 1<<40).Draw(t, "number")
		c.Ran = time.Duration(rapid.Int64Range(0, 1<<40).Draw(t, "ran")) * time.Microsecond
		c.Since, c.CreatedAt, c.EndedAt = moment().Draw(t, "since"), moment().Draw(t, "created"), maybe(moment()).Draw(t, "ended")
		c.Plan = canary.Plan{
			Upstream: text().Draw(t, "upstream"), Other: text().Draw(t, "other"), Routes: rapid.SliceOfN(text(), 1, 3).Draw(t, "routes"),
			Steps: []gateway.Percent{1, gateway.Percent(rapid.Int64Range(2, 9999).Draw(t, "percent"))}, Hold: "10m",
			MoreThan: rapid.Ptr(rapid.Float64Range(0, 100), true).Draw(t, "more than"), P95Ratio: rapid.Ptr(rapid.Float64Range(1, 100), true).Draw(t, "ratio"),
			MinRequests: rapid.Uint64().Draw(t, "min"), Promote: rapid.Bool().Draw(t, "promote"),
		}
		c.Progress = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) canary.Progress {
			figures := rapid.Make[canary.Figures]()
			return canary.Progress{Step: 1, Weight: 5, Since: moment().Draw(t, "began"), Next: figures.Draw(t, "next"), Other: figures.Draw(t, "other")}
		}), 1, 3).Draw(t, "progress")
		c.Explanation, c.Lines = text().Draw(t, "explanation"), maybe(rapid.SliceOfN(text(), 1, 3)).Draw(t, "lines")
		c.Version = rapid.Int64Min(1).Draw(t, "version")
		return c
	})
}

// Guarantee: a canary is returned as it was inserted and as it was updated.
func testCanaryRoundTrip(h *harness) {
	g := h.insertGateway(h.insertAccount("a"))
	rapid.Check(h, func(t *rapid.T) {
		c, changed := canaryOf(g).Draw(t, "canary"), canaryOf(g).Draw(t, "changed")
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertCanary(ctx, c) })
		same(t, "inserted", h.canary(c), c)
		changed.ID = c.ID
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.UpdateCanary(ctx, changed) })
		changed.CreatedAt = c.CreatedAt
		same(t, "updated", get(h, func(ctx context.Context, tx control.ReadTx) (*canary.Canary, error) { return tx.CanaryByID(ctx, c.ID) }), changed)
	})
}

// Guarantee: the canaries of a gateway are listed newest first, and those that run by their identifiers; no account finds or
// changes those of another one; those that have not ended and those that run are counted; the oldest that have ended are
// removed, and all of a gateway with it.
func testCanaries(h *harness) {
	a, b := h.insertAccount("a"), h.insertAccount("b")
	g, second, other := h.insertGateway(a), h.insertGateway(a), h.insertGateway(b)
	states := []canary.State{canary.Promoted, canary.Aborted, canary.Promoted, canary.Aborted, canary.Running}
	var ids []string
	for _, s := range states {
		ids = append(ids, h.insertCanary(g, s).ID)
	}
	ofSecond, ofOther := h.insertCanary(second, canary.Running), h.insertCanary(other, canary.Running)
	h.insertCanary(second, canary.Paused)
	h.insertCanary(second, canary.Held)
	list := func(what string, f func(ctx context.Context, tx control.ReadTx) ([]canary.Canary, error), want ...string) {
		h.Helper()
		got := []string{}
		for _, c := range get(h, f) {
			got = append(got, c.ID)
		}
		same(h, what, got, append([]string{}, want...))
	}
	of := func(g *gateway.Gateway, p control.Page) func(ctx context.Context, tx control.ReadTx) ([]canary.Canary, error) {
		return func(ctx context.Context, tx control.ReadTx) ([]canary.Canary, error) {
			return tx.Canaries(ctx, g.ID, p)
		}
	}
	list("newest first", of(g, control.Page{Limit: 2}), ids[4], ids[3])
	list("the next page", of(g, control.Page{Limit: 9, After: ids[3]}), ids[2], ids[1], ids[0])
	running := func(after string, limit int) func(ctx context.Context, tx control.ReadTx) ([]canary.Canary, error) {
		return func(ctx context.Context, tx control.ReadTx) ([]canary.Canary, error) {
			return tx.RunningCanaries(ctx, after, limit)
		}
	}
	list("running", running("", 9), ids[4], ofSecond.ID, ofOther.ID)
	list("running, the next one", running(ids[4], 1), ofSecond.ID)
	has := func(what string, want bool, f func(ctx context.Context, tx control.ReadTx) (bool, error)) {
		h.Helper()
		same(h, what, get(h, f), want)
	}
	has("4 of the account", true, func(ctx context.Context, tx control.ReadTx) (bool, error) { return tx.HasCanaries(ctx, a.ID, 4) })
	has("5 of the account", false, func(ctx context.Context, tx control.ReadTx) (bool, error) { return tx.HasCanaries(ctx, a.ID, 5) })
	has("3 running", true, func(ctx context.Context, tx control.ReadTx) (bool, error) { return tx.HasRunningCanaries(ctx, 3) })
	has("4 running", false, func(ctx context.Context, tx control.ReadTx) (bool, error) { return tx.HasRunningCanaries(ctx, 4) })
	missing(h, "of another account", func(ctx context.Context, tx control.ReadTx) (*canary.Canary, error) {
		return tx.Canary(ctx, b.ID, g.ID, ids[0])
	})
	missing(h, "of another gateway", func(ctx context.Context, tx control.ReadTx) (*canary.Canary, error) {
		return tx.Canary(ctx, a.ID, second.ID, ids[0])
	})
	h.rejected(fault.NotFound, func(ctx context.Context, tx control.Tx) error {
		stolen := *ofOther
		stolen.AccountID = a.ID
		return tx.UpdateCanary(ctx, &stolen)
	})
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.TrimCanaries(ctx, a.ID, g.ID, 3, 100) })
	list("without the oldest of the gateway", of(g, control.Page{Limit: 9}), ids[4], ids[3], ids[2], ids[1])
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.TrimCanaries(ctx, a.ID, second.ID, 100, 1) })
	list("without the oldest of the account", of(g, control.Page{Limit: 9}), ids[4], ids[3])
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.DeleteGateway(ctx, a.ID, g.ID) })
	list("after the gateway was deleted", of(g, control.Page{Limit: 9}))
	same(h, "who judges", get(h, func(ctx context.Context, tx control.ReadTx) (canary.Lead, error) { return tx.CanaryLead(ctx) }), canary.Lead{})
}

// Guarantee: the share of a canary is part of the gateway that the data plane reads. It neither changes with the settings of
// the gateway nor changes them.
func testCanaryShare(h *harness) {
	a, b := h.insertAccount("a"), h.insertAccount("b")
	g := h.insertGateway(a)
	share := &gateway.CanaryShare{ID: id.New(id.Canary), Upstream: "next", Routes: []string{id.New(id.Route)}, Weight: 525, Step: 3, Counts: true}
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.SetCanaryShare(ctx, a.ID, g.ID, share) })
	g.Name = "renamed"
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.UpdateGateway(ctx, g) })
	g.Canary = share
	same(h, "with a share", h.gateway(a.ID, g.ID), g)
	read, _, err := h.GatewayByID(h.Context(), g.ID)
	same(h, "for the data plane", []any{read, err}, []any{g, error(nil)})
	h.rejected(fault.NotFound, func(ctx context.Context, tx control.Tx) error { return tx.SetCanaryShare(ctx, b.ID, g.ID, nil) })
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.SetCanaryShare(ctx, a.ID, g.ID, nil) })
	g.Canary = nil
	same(h, "without a share", h.gateway(a.ID, g.ID), g)
}
