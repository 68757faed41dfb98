package storetest

import (
	"context"
	"fmt"
	"strconv"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/webhook"
)

// pager is a list and a way to add to it.
type pager struct {
	name string
	// add inserts record number i and returns its name in a page.
	add func(ctx context.Context, tx control.Tx, i int) (string, error)
	// list returns the names of a page.
	list func(ctx context.Context, tx control.ReadTx, p control.Page) ([]string, error)
}

// Guarantee: every list is newest first, and its pages have no gaps or duplicates while records
// are added between them.
func testPaging(h *harness) {
	for _, p := range pagers(h) {
		var made []string
		add := func(n int) {
			for range n {
				h.update(func(ctx context.Context, tx control.Tx) error {
					name, err := p.add(ctx, tx, len(made))
					made = append(made, name)
					return err
				})
			}
		}
		add(7)
		var want []string
		for i := len(made) - 1; i >= 0; i-- {
			want = append(want, made[i])
		}
		var got []string
		for after := ""; ; {
			page := get(h, func(ctx context.Context, tx control.ReadTx) ([]string, error) {
				return p.list(ctx, tx, control.Page{Limit: 3, After: after})
			})
			got = append(got, page...)
			if len(page) < 3 {
				break
			}
			if len(got) > len(want) {
				h.Fatalf("%s: the pages do not end", p.name)
			}
			after = page[2]
			add(2)
		}
		same(h, p.name, got, want)
		none := get(h, func(ctx context.Context, tx control.ReadTx) ([]string, error) { return p.list(ctx, tx, control.Page{}) })
		same(h, p.name+" with a limit of 0", len(none), 0)
	}
}

func pagers(h *harness) []pager {
	a := h.insertAccount("a")
	g := h.insertGateway(h.insertAccount("b"))
	return []pager{
		{"gateways", func(ctx context.Context, tx control.Tx, _ int) (string, error) {
			r := newGateway(a)
			return r.ID, tx.InsertGateway(ctx, r)
		}, func(ctx context.Context, tx control.ReadTx, p control.Page) ([]string, error) {
			list, err := tx.Gateways(ctx, a.ID, p)
			return names(list, func(r *gateway.Gateway) string { return r.ID }), err
		}},
		{"routes", func(ctx context.Context, tx control.Tx, i int) (string, error) {
			r := newRoute(g, fmt.Sprintf("/%d", i), "GET")
			return r.ID, tx.InsertRoutes(ctx, []gateway.Route{r})
		}, func(ctx context.Context, tx control.ReadTx, p control.Page) ([]string, error) {
			list, err := tx.Routes(ctx, g.ID, p)
			return names(list, func(r *gateway.Route) string { return r.ID }), err
		}},
		{"keys", func(ctx context.Context, tx control.Tx, _ int) (string, error) {
			r := newKey(a)
			return r.ID, tx.InsertKey(ctx, r)
		}, func(ctx context.Context, tx control.ReadTx, p control.Page) ([]string, error) {
			list, err := tx.Keys(ctx, a.ID, control.KeyFilter{Now: epoch()}, p)
			return names(list, func(r *apikey.Key) string { return r.ID }), err
		}},
		{"webhooks", func(ctx context.Context, tx control.Tx, _ int) (string, error) {
			r := newWebhook(a)
			return r.ID, tx.InsertWebhook(ctx, r)
		}, func(ctx context.Context, tx control.ReadTx, p control.Page) ([]string, error) {
			list, err := tx.Webhooks(ctx, a.ID, p)
			return names(list, func(r *webhook.Webhook) string { return r.ID }), err
		}},
		{"events", func(ctx context.Context, tx control.Tx, _ int) (string, error) {
			r := newEvent(h, a)
			return r.ID, tx.AppendEvent(ctx, r)
		}, func(ctx context.Context, tx control.ReadTx, p control.Page) ([]string, error) {
			list, err := tx.Events(ctx, a.ID, control.EventFilter{}, p)
			return names(list, func(r *event.Event) string { return r.ID }), err
		}},
		{"audit", func(ctx context.Context, tx control.Tx, i int) (string, error) {
			return strconv.Itoa(i + 1), tx.AppendAudit(ctx, newAudit(a, "x"))
		}, func(ctx context.Context, tx control.ReadTx, p control.Page) ([]string, error) {
			list, err := tx.Audit(ctx, a.ID, p)
			return names(list, func(r *audit.Record) string { return strconv.FormatInt(r.Seq, 10) }), err
		}},
	}
}

func names[T any](list []T, name func(*T) string) []string {
	var all []string
	for i := range list {
		all = append(all, name(&list[i]))
	}
	return all
}
