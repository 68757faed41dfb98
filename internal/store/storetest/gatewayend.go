package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/gateway"
)

// Guarantee: from EndGateway on, a key that is restricted to the gateway is read as revoked, with the version that it
// gets, by everything except KeysToRevoke; other keys are not. Once it is stored as revoked, it is read in the same
// way. The routes stay until FinishGateway.
func testEndedGateway(h *harness) {
	a := h.insertAccount("a")
	g, other := h.insertGateway(a), h.insertGateway(a)
	of := func(gatewayID string, more func(*apikey.Key)) *apikey.Key {
		return h.insertKey(a, func(k *apikey.Key) {
			k.GatewayID = gatewayID
			if more != nil {
				more(k)
			}
		})
	}
	active, expired := of(g.ID, nil), of(g.ID, func(k *apikey.Key) { k.ExpiresAt = epoch() })
	notified := of(g.ID, func(k *apikey.Key) { k.ExpiresAt, k.ExpiryNotified = epoch(), epoch() })
	revoked, elsewhere, free := of(g.ID, revoke), of(other.ID, nil), of("", nil)
	ending := []*apikey.Key{active, expired, notified}
	var routes []gateway.Route
	for i := range 30 {
		routes = append(routes, newRoute(g, fmt.Sprintf("/r%d", i), "GET"))
	}
	slices.SortFunc(routes, func(x, y gateway.Route) int { return strings.Compare(x.ID, y.ID) })
	e := &control.EndedGateway{ID: g.ID, AccountID: a.ID, At: epoch().Add(time.Minute), Call: control.RecordedCall{Kind: control.KeyActor, KeyID: "key_1", Path: "/v1/gateways"}}
	h.update(func(ctx context.Context, tx control.Tx) error {
		return errors.Join(tx.InsertRoutes(ctx, routes), tx.EndGateway(ctx, e), tx.DeleteGateway(ctx, a.ID, g.ID))
	})
	same(h, "ended", get(h, func(ctx context.Context, tx control.ReadTx) (*control.EndedGateway, error) {
		return tx.EndedGateway(ctx, g.ID)
	}), e)
	same(h, "stored", sortedIDs(h.toRevoke(g.ID, 10)), sortedOf(ending...))
	same(h, "some of them", len(h.toRevoke(g.ID, 2)), 2)
	for _, k := range ending {
		k.RevokedAt, k.Version = e.At, k.Version+1
	}
	check := func(when string) {
		h.Helper()
		for _, k := range []*apikey.Key{active, expired, notified, revoked, elsewhere, free} {
			same(h, "key "+when, get(h, func(ctx context.Context, tx control.ReadTx) (*apikey.Key, error) { return tx.Key(ctx, a.ID, k.ID) }), k)
		}
		same(h, "to notify "+when, len(get(h, func(ctx context.Context, tx control.ReadTx) ([]apikey.Key, error) {
			return tx.KeysToNotify(ctx, epoch().Add(time.Hour), 10)
		})), 0)
		same(h, "of the bucket "+when, len(get(h, func(ctx context.Context, tx control.ReadTx) ([]apikey.Key, error) {
			return tx.KeysOfBucket(ctx, a.ID, active.BucketID, epoch(), 10)
		})), 0)
		streamed := 0
		if err := h.EachKey(h.Context(), epoch(), func(k *apikey.Key) error {
			if streamed++; k.GatewayID == g.ID && k.RevokedAt.IsZero() {
				h.Errorf("%s the data plane gets a key that is not revoked", when)
			}
			return nil
		}); err != nil || streamed != 6 {
			h.Errorf("%s the data plane gets %d keys and %v, want 6", when, streamed, err)
		}
	}
	check("before it is stored")
	h.trimTables(epoch())
	h.checkEndedRoutes(e, routes)
	h.update(func(ctx context.Context, tx control.Tx) error {
		for _, k := range ending {
			if err := tx.UpdateKey(ctx, k); err != nil {
				return err
			}
		}
		return tx.FinishGateway(ctx, g.ID)
	})
	check("after it is stored")
	same(h, "left", len(get(h, func(ctx context.Context, tx control.ReadTx) ([]control.EndedGateway, error) {
		return tx.EndedGateways(ctx, 10)
	})), 0)
	same(h, "routes left", len(h.endedRoutes(e, 10)), 0)
}

// checkEndedRoutes reads the routes of a gateway that has ended, some at a time.
func (h *harness) checkEndedRoutes(e *control.EndedGateway, want []gateway.Route) {
	h.Helper()
	var got []gateway.Route
	for {
		some := h.endedRoutes(e, 7)
		if len(some) == 0 {
			break
		}
		got = append(got, some...)
		e.RoutesTo = some[len(some)-1].ID
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.UpdateEndedGateway(ctx, e) })
	}
	same(h, "routes", got, want)
}

func (h *harness) endedRoutes(e *control.EndedGateway, limit int) []gateway.Route {
	h.Helper()
	return get(h, func(ctx context.Context, tx control.ReadTx) ([]gateway.Route, error) {
		return tx.EndedRoutes(ctx, e, limit)
	})
}

func (h *harness) toRevoke(gatewayID string, limit int) []apikey.Key {
	h.Helper()
	return get(h, func(ctx context.Context, tx control.ReadTx) ([]apikey.Key, error) {
		return tx.KeysToRevoke(ctx, gatewayID, limit)
	})
}
