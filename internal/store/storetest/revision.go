package storetest

import (
	"bytes"
	"context"
	"fmt"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
)

func newRevision(g *gateway.Gateway, number int64) *gateway.Revision {
	return &gateway.Revision{ID: id.New(id.Revision), GatewayID: g.ID, Number: number, Source: gateway.CLI, Kind: gateway.SpecDocument,
		CreatedAt: epoch(), Added: 1, Content: []byte("openapi: 3.1.0"), Routes: []gateway.Route{newRoute(g, "/a", "GET")}}
}

func (h *harness) revision(gatewayID string, number int64) *gateway.Revision {
	h.Helper()
	return get(h, func(ctx context.Context, tx control.ReadTx) (*gateway.Revision, error) {
		return tx.Revision(ctx, gatewayID, number)
	})
}

// Guarantee: a revision is stored with its document byte for byte and its route table with limits.
func testRevisionRoundTrip(h *harness) {
	g := h.insertGateway(h.insertAccount("a"))
	number := int64(0)
	check := func(t fataler, r *gateway.Revision) {
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertRevision(ctx, r) })
		got := h.revision(g.ID, r.Number)
		if !bytes.Equal(got.Content, r.Content) {
			t.Fatalf("a content of %d bytes came back as %d different bytes", len(r.Content), len(got.Content))
		}
		if len(got.Content) == 0 {
			got.Content, r.Content = nil, nil
		}
		same(t, "revision", got, r)
	}
	rapid.Check(h, func(t *rapid.T) {
		number++
		r := newRevision(g, number)
		r.Source = rapid.SampledFrom([]gateway.Source{gateway.CLI, gateway.API, gateway.Rollback}).Draw(t, "source")
		r.Kind = rapid.SampledFrom([]gateway.DocumentKind{gateway.SpecDocument, gateway.ConfigDocument}).Draw(t, "kind")
		r.Author, r.Commit = text().Draw(t, "author"), text().Draw(t, "commit")
		r.CreatedAt = moment().Draw(t, "created_at")
		r.Added, r.Removed, r.Changed = rapid.IntMin(0).Draw(t, "added"), rapid.IntMin(0).Draw(t, "removed"), rapid.IntMin(0).Draw(t, "changed")
		r.Content = bytes.Repeat(rapid.SliceOf(rapid.Byte()).Draw(t, "content"), rapid.SampledFrom([]int{1, 1, 500}).Draw(t, "times"))
		r.Routes[0].Path = text().Draw(t, "path")
		r.Routes[0].CreatedAt = moment().Draw(t, "route created_at")
		r.Routes[0].RateLimit = ratelimit.Config{Sustained: maybe(rateOf()).Draw(t, "sustained"), Burst: maybe(rateOf()).Draw(t, "burst")}
		r.Routes[0].LimitByAPI, r.Routes[0].CostByAPI = rapid.Bool().Draw(t, "limit_by_api"), rapid.Bool().Draw(t, "cost_by_api")
		r.Routes[0].Concurrency.Max, r.Routes[0].ConcurrencyByAPI = rapid.Int64Range(0, 5).Draw(t, "concurrency"), rapid.Bool().Draw(t, "concurrency_by_api")
		if price := rapid.Int64Range(-1, 5).Draw(t, "price"); price >= 0 {
			r.Routes[0].Cost = costOf(t, fmt.Sprintf("[{meter: tokens, from: {request: %d}}]", price))
		}
		check(t, r)
	})
	large := newRevision(g, number+1)
	large.Content = bytes.Repeat([]byte(`{"paths":{"/a":{}}}`+"\x00\xff"), 300_000) // 6 MB
	check(h, large)
}

// Guarantee: revisions are listed newest first without their content, and numbers are unique for
// each gateway.
func testRevisions(h *harness) {
	a := h.insertAccount("a")
	g, other := h.insertGateway(a), h.insertGateway(a)
	var want []gateway.Revision
	h.update(func(ctx context.Context, tx control.Tx) error {
		for n := int64(1); n <= 5; n++ {
			r := newRevision(g, n)
			if err := tx.InsertRevision(ctx, r); err != nil {
				return err
			}
			listed := *r
			listed.Content, listed.Routes = nil, nil
			want = append([]gateway.Revision{listed}, want...)
		}
		return tx.InsertRevision(ctx, newRevision(other, 1))
	})
	list := func(limit int, before int64) []gateway.Revision {
		return get(h, func(ctx context.Context, tx control.ReadTx) ([]gateway.Revision, error) {
			return tx.Revisions(ctx, g.ID, limit, before)
		})
	}
	same(h, "first page", list(2, 0), want[:2])
	same(h, "second page", list(2, 4), want[2:4])
	same(h, "last page", list(2, 2), want[4:])
	same(h, "beyond", len(list(2, 1)), 0)
	h.conflict("number", func(ctx context.Context, tx control.Tx) error { return tx.InsertRevision(ctx, newRevision(g, 3)) })
	missing(h, "unknown number", func(ctx context.Context, tx control.ReadTx) (*gateway.Revision, error) {
		return tx.Revision(ctx, g.ID, 6)
	})
}
