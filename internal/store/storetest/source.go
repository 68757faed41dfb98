package storetest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
)

// dataPlane returns the fields of a key that the data plane needs.
func dataPlane(k *apikey.Key) apikey.Key {
	return apikey.Key{ID: k.ID, AccountID: k.AccountID, Digest: k.Digest, Level: k.Level, Scope: k.Scope, Owner: k.Owner,
		OwnerID: k.OwnerID, PlanID: k.PlanID, GatewayID: k.GatewayID, RateLimit: k.RateLimit, Concurrency: k.Concurrency, Imported: k.Imported, BucketID: k.BucketID, ExpiresAt: k.ExpiresAt, Ended: k.Ended, RevokedAt: k.RevokedAt}
}

// Guarantee: the data plane reads all accounts, all gateways with their routes, oldest first, and
// all keys that are not revoked or were revoked lately, with the fields that it needs.
func testSource(h *harness) {
	a, b := h.insertAccount("a"), h.insertAccount("b")
	g, bare := h.insertGateway(a), h.insertGateway(b)
	routes := []gateway.Route{newRoute(g, "/a", "GET"), newRoute(g, "/b", "GET")}
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertRoutes(ctx, routes) })

	h.run("accounts", func(h *harness) {
		accounts, err := h.Accounts(h.Context())
		h.must(err)
		slices.SortFunc(accounts, func(x, y account.Account) int { return strings.Compare(x.Name, y.Name) })
		same(h, "accounts", accounts, []account.Account{*a, *b})
	})
	h.run("all gateways", func(h *harness) {
		tables := map[string][]gateway.Route{}
		h.must(h.EachGateway(h.Context(), func(got *gateway.Gateway, table []gateway.Route) error {
			want := map[string]*gateway.Gateway{g.ID: g, bare.ID: bare}[got.ID]
			same(h, "gateway", got, want)
			tables[got.ID] = table
			return nil
		}))
		same(h, "route table", tables[g.ID], routes)
		same(h, "gateways", len(tables), 2)
		same(h, "empty route table", len(tables[bare.ID]), 0)
	})
	h.run("one gateway", func(h *harness) {
		one, table, err := h.GatewayByID(h.Context(), g.ID)
		h.must(err)
		same(h, "gateway by id", one, g)
		same(h, "its route table", table, routes)
		if _, _, err := h.GatewayByID(h.Context(), id.New(id.Gateway)); fault.CodeOf(err) != fault.NotFound {
			h.Errorf("reading an unknown gateway returned %v, want not found", err)
		}
	})
	h.run("keys", func(h *harness) { testSourceKeys(h, []*account.Account{a, b}, g) })
}

// testSourceKeys is the part of testSource that reads keys: of two accounts, some restricted to
// g.
func testSourceKeys(h *harness, accounts []*account.Account, g *gateway.Gateway) {
	want := map[string]apikey.Key{}
	for i := range 40 {
		k := h.insertKey(accounts[i%2], func(k *apikey.Key) {
			k.Scope = apikey.Scopes{{Word: apikey.Word(1 + i%3), Resource: []string{"", "orders"}[i%2]}}
			if i%3 == 0 {
				k.Scope = append(k.Scope, apikey.Scope{Word: apikey.Write}, apikey.Scope{Word: apikey.Admin, Resource: "a/b"})
			}
			k.Level = []apikey.Level{apikey.GatewayLevel, apikey.AccountLevel}[i/20]
			k.PlanID, k.GatewayID = []string{"plan_1", "", "plan_2"}[i%3], []string{"", g.ID}[i/4%2]
			setOwner(k, []string{"", "ada"}[i/2%2])
			if i%5 == 0 {
				k.RateLimit, k.ExpiresAt, k.BucketID = ratelimit.RateOf(rate("5/s")), epoch().Add(time.Duration(i)), id.New(id.Key)
			}
			k.Concurrency, k.Imported = []int64{0, 1, ratelimit.MaxConcurrency}[i/2%3], i%5 == 0
			if i%10 == 0 {
				k.Ended = true
			}
		})
		k.ExpiresAt = k.ExpiresAt.Truncate(time.Microsecond)
		want[k.ID] = dataPlane(k)
	}
	gone := h.insertKey(accounts[0], func(k *apikey.Key) { k.RevokedAt = epoch().Add(-time.Microsecond) })
	lately := h.insertKey(accounts[0], revoke)
	want[lately.ID] = dataPlane(lately)
	got := map[string]apikey.Key{}
	h.must(h.EachKey(h.Context(), epoch(), func(k *apikey.Key) error {
		got[k.ID] = dataPlane(k)
		return nil
	}))
	same(h, "keys", got, want)
	k, err := h.KeyByID(h.Context(), gone.ID)
	h.must(err)
	same(h, "revoked key by id", dataPlane(k), dataPlane(gone))
	if _, err := h.KeyByID(h.Context(), id.New(id.Key)); fault.CodeOf(err) != fault.NotFound {
		h.Errorf("reading an unknown key returned %v, want not found", err)
	}
}

// Guarantee: reading stops with the callback's error or when the context ends, returns that error,
// and the store can be used afterwards.
func testSourceStops(h *harness) {
	a := h.insertAccount("a")
	h.insertGateway(a)
	for range 10 { // a mutation may hold up others for a short time only
		h.update(func(ctx context.Context, tx control.Tx) error {
			for range 300 {
				if err := tx.InsertKey(ctx, newKey(a)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	stop := errors.New("enough")
	calls := 0
	if err := h.EachKey(h.Context(), epoch(), func(*apikey.Key) error { calls++; return stop }); !errors.Is(err, stop) || calls != 1 {
		h.Fatalf("EachKey returned %v after %d calls, want the callback's error after 1", err, calls)
	}
	if err := h.EachGateway(h.Context(), func(*gateway.Gateway, []gateway.Route) error { return stop }); !errors.Is(err, stop) {
		h.Fatalf("EachGateway returned %v, want the callback's error", err)
	}
	ctx, cancel := context.WithCancel(h.Context())
	calls = 0
	err := h.EachKey(ctx, epoch(), func(*apikey.Key) error { calls++; cancel(); return nil })
	if !errors.Is(err, context.Canceled) || calls == 3000 {
		h.Fatalf("EachKey returned %v after %d calls, want the error of its context before 3000", err, calls)
	}
	calls = 0
	if err := h.EachKey(h.Context(), epoch(), func(*apikey.Key) error { calls++; return nil }); err != nil || calls != 3000 {
		h.Fatalf("EachKey returned %v after %d calls, want nil after 3000", err, calls)
	}
}
