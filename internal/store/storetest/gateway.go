package storetest

import (
	"context"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
)

func (h *harness) gateway(accountID, gatewayID string) *gateway.Gateway {
	h.Helper()
	return get(h, func(ctx context.Context, tx control.ReadTx) (*gateway.Gateway, error) {
		return tx.Gateway(ctx, accountID, gatewayID)
	})
}

func gatewayOf(a *account.Account) *rapid.Generator[*gateway.Gateway] {
	return rapid.Custom(func(t *rapid.T) *gateway.Gateway {
		g := newGateway(a)
		g.Name = text().Draw(t, "name")
		g.Upstream = upstreamOf().Draw(t, "upstream")
		g.Others = rapid.SliceOfN(upstreamOf(), 0, 3).Draw(t, "others")
		if len(g.Others) == 0 {
			g.Others = nil
		}
		g.HostGiven = rapid.Bool().Draw(t, "host_given")
		g.GlobalLimit = ratelimit.Config{Sustained: maybe(rateOf()).Draw(t, "sustained"), Burst: maybe(rateOf()).Draw(t, "burst")}
		g.Timeout = rapid.SampledFrom([]string{"1s", "60s", "1h"}).Draw(t, "timeout")
		g.MaxBodyBytes = rapid.Int64Min(0).Draw(t, "max_body_bytes")
		r := &g.Requests
		*r = rapid.Make[gateway.Requests]().Draw(t, "requests")
		r.Issuers = rapid.SliceOfN(rapid.StringMatching(`[a-z0-9-]{1,8}`), 0, 3).Draw(t, "issuers") // a column of its own has no other names
		lists := []*[]string{&r.KeyHeaders, &r.Issuers, &r.AllowIPs, &r.DenyIPs}
		if r.Maintenance != nil {
			lists = append(lists, &r.Maintenance.Allow)
		}
		for _, list := range lists {
			if len(*list) == 0 {
				*list = nil // an empty list is stored as none
			}
		}
		r.RequestHeaders, r.ResponseHeaders = r.RequestHeaders.Normal(), r.ResponseHeaders.Normal()
		if g.Requests.Split = nil; rapid.Bool().Draw(t, "has a split") {
			g.Requests.Split = aSplit()
		}
		g.Requests.AnonymousLimit = gateway.AnonymousLimit{Sustained: maybe(rateOf()).Draw(t, "anonymous"), Burst: maybe(rateOf()).Draw(t, "anonymous burst")}
		g.Revision = rapid.Int64Min(0).Draw(t, "revision")
		g.CreatedAt = moment().Draw(t, "created_at")
		g.DefaultPlanID = maybe(rapid.Just(id.New(id.Plan))).Draw(t, "default_plan")
		g.Version = rapid.Int64Min(1).Draw(t, "version")
		if rapid.Bool().Draw(t, "has cors") {
			texts := rapid.SliceOfN(text(), 0, 3)
			g.CORS = &gateway.CORS{Origins: texts.Draw(t, "origins"), Methods: texts.Draw(t, "methods"), Headers: texts.Draw(t, "headers"),
				MaxAge: rapid.IntRange(0, 1<<30).Draw(t, "max_age")}
		}
		return g
	})
}

// aSplit returns a split with all fields.
func aSplit() gateway.Split {
	return gateway.Split{
		{Upstream: "next", Fallback: true, When: &gateway.SplitWhen{Header: map[string]string{"X-Beta": "ü\\"}}},
		{Upstream: "next", When: &gateway.SplitWhen{Key: []string{"key_01jz8y5c3te9b8r2m6q4v7x0dd"}, Buckets: []string{"key_01jz8y5c3te9b8r2m6q4v7x0ee"}}},
		{Upstream: "next", When: &gateway.SplitWhen{Owner: []string{"customer 42"}}},
		{Upstream: "default", Weight: new(gateway.ParsePercent("0.25")), Random: true},
	}
}

// upstreamOf draws all fields of an upstream, including those added later.
func upstreamOf() *rapid.Generator[gateway.Upstream] {
	return rapid.Custom(func(t *rapid.T) gateway.Upstream {
		u := rapid.Make[gateway.Upstream]().Draw(t, "fields")
		if len(u.Headers) == 0 {
			u.Headers = nil
		}
		if len(u.TLS.ClientKey) == 0 {
			u.TLS.ClientKey = nil
		}
		if len(u.Targets) == 0 {
			u.Targets = nil
		}
		if u.Ejection != nil && len(u.Ejection.On) == 0 {
			u.Ejection.On = nil
		}
		if u.Health != nil {
			if u.Health.Headers = nil; len(u.Health.Sealed) == 0 { // headers in clear are not stored
				u.Health.Sealed = nil
			}
		}
		return u
	})
}

// Guarantee: a gateway is returned as it was inserted and as it was updated. An update does not
// change fixed fields.
func testGatewayRoundTrip(h *harness) {
	a := h.insertAccount("a")
	rapid.Check(h, func(t *rapid.T) {
		g := gatewayOf(a).Draw(t, "gateway")
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertGateway(ctx, g) })
		same(t, "inserted", h.gateway(a.ID, g.ID), g)
		changed := gatewayOf(a).Draw(t, "changed")
		changed.ID, changed.Hostname = g.ID, "new-"+g.Hostname
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.UpdateGateway(ctx, changed) })
		changed.CreatedAt = g.CreatedAt
		same(t, "updated", h.gateway(a.ID, g.ID), changed)
	})
}

// Guarantee: a hostname is unique across accounts, and a gateway that does not exist cannot be
// changed.
func testGatewayRules(h *harness) {
	a, b := h.insertAccount("a"), h.insertAccount("b")
	g, other := h.insertGateway(a), h.insertGateway(b)
	for _, owner := range []*account.Account{a, b} {
		taken := newGateway(owner)
		taken.Hostname = g.Hostname
		h.conflict("hostname", func(ctx context.Context, tx control.Tx) error { return tx.InsertGateway(ctx, taken) })
	}
	moved := *other
	moved.Hostname = g.Hostname
	for hostname, want := range map[string]string{g.Hostname: a.ID, other.Hostname: b.ID, "free.example": ""} {
		owner := ""
		if err := h.View(h.Context(), func(tx control.ReadTx) (err error) {
			owner, err = tx.HostnameOwner(h.Context(), hostname)
			return err
		}); err != nil {
			h.Fatal(err)
		}
		if owner != want {
			h.Errorf("got owner %q of %s; want %q", owner, hostname, want)
		}
	}
	h.conflict("hostname", func(ctx context.Context, tx control.Tx) error { return tx.UpdateGateway(ctx, &moved) })
	same(h, "after the conflict", h.gateway(b.ID, other.ID), other)

	// A name is unique in an account, but for gateways that share theirs.
	named := func(owner *account.Account, shares bool) *gateway.Gateway {
		g := newGateway(owner)
		g.Name, g.SharesName = "sole", shares
		return g
	}
	first := named(a, false)
	for _, g := range []*gateway.Gateway{first, named(b, false), named(a, true), named(a, true)} {
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertGateway(ctx, g) })
	}
	h.conflict("name", func(ctx context.Context, tx control.Tx) error { return tx.InsertGateway(ctx, named(a, false)) })
	renamed := *g
	renamed.Name, renamed.SharesName = "sole", false
	h.conflict("name", func(ctx context.Context, tx control.Tx) error { return tx.UpdateGateway(ctx, &renamed) })
	for name, want := range map[string]bool{"sole": true, "free": false, "orders": true} {
		found := get(h, func(ctx context.Context, tx control.ReadTx) (string, error) {
			return tx.GatewayNamed(ctx, a.ID, name, first.ID)
		})
		if (found != "") != want || found == first.ID {
			h.Errorf("got %q for the name %s; want another gateway of the account: %v", found, name, want)
		}
	}

	gone := newGateway(a)
	h.rejected(fault.NotFound, func(ctx context.Context, tx control.Tx) error { return tx.UpdateGateway(ctx, gone) })
	h.rejected(fault.NotFound, func(ctx context.Context, tx control.Tx) error { return tx.DeleteGateway(ctx, a.ID, gone.ID) })
	h.rejected(fault.NotFound, func(ctx context.Context, tx control.Tx) error {
		return tx.InsertGateway(ctx, newGateway(&account.Account{ID: id.New(id.Account)}))
	})
	missing(h, "unknown gateway", func(ctx context.Context, tx control.ReadTx) (*gateway.Gateway, error) {
		return tx.Gateway(ctx, a.ID, gone.ID)
	})
}

// Guarantee: at most one gateway of all accounts is the default gateway; the store finds it and
// refuses a second one.
func testDefaultGateway(h *harness) {
	a, b := h.insertAccount("a"), h.insertAccount("b")
	found := func(want *gateway.Gateway) {
		h.Helper()
		find := func(ctx context.Context, tx control.ReadTx) (*gateway.Gateway, error) { return tx.DefaultGateway(ctx) }
		if want == nil {
			missing(h, "default gateway", find)
			return
		}
		same(h, "default gateway", get(h, find), want)
	}
	first, other := h.insertGateway(a), h.insertGateway(b)
	found(nil)
	first.Default = true
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.UpdateGateway(ctx, first) })
	found(first)
	second := newGateway(a)
	second.Default = true
	h.conflict("is_default", func(ctx context.Context, tx control.Tx) error { return tx.InsertGateway(ctx, second) })
	other.Default = true
	h.conflict("is_default", func(ctx context.Context, tx control.Tx) error { return tx.UpdateGateway(ctx, other) })
	h.update(func(ctx context.Context, tx control.Tx) error {
		first.Default = false
		if err := tx.UpdateGateway(ctx, first); err != nil {
			return err
		}
		return tx.InsertGateway(ctx, second)
	})
	found(second)
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.DeleteGateway(ctx, a.ID, second.ID) })
	found(nil)
}

// Guarantee: deleting a gateway deletes its routes and revisions, keeps its keys and the records
// of other gateways, and frees its hostname.
func testGatewayDelete(h *harness) {
	a := h.insertAccount("a")
	g, stays := h.insertGateway(a), h.insertGateway(a)
	k := newKey(a)
	k.GatewayID = g.ID
	h.update(func(ctx context.Context, tx control.Tx) error {
		for _, owner := range []*gateway.Gateway{g, stays} {
			if err := tx.InsertRoutes(ctx, []gateway.Route{newRoute(owner, "/a", "GET"), newRoute(owner, "/b", "GET")}); err != nil {
				return err
			}
			if err := tx.InsertRevision(ctx, newRevision(owner, 1)); err != nil {
				return err
			}
		}
		return tx.InsertKey(ctx, k)
	})
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.DeleteGateway(ctx, a.ID, g.ID) })

	missing(h, "deleted gateway", func(ctx context.Context, tx control.ReadTx) (*gateway.Gateway, error) {
		return tx.Gateway(ctx, a.ID, g.ID)
	})
	missing(h, "its revision", func(ctx context.Context, tx control.ReadTx) (*gateway.Revision, error) {
		return tx.Revision(ctx, g.ID, 1)
	})
	same(h, "its routes", len(h.routeTable(g.ID)), 0)
	same(h, "the other's routes", len(h.routeTable(stays.ID)), 2)
	same(h, "the other's revision", h.revision(stays.ID, 1).Number, int64(1))
	same(h, "its key", h.key(a.ID, k.ID), k)
	again := newGateway(a)
	again.Hostname = g.Hostname
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertGateway(ctx, again) })
}
