package storetest

import (
	"context"
	"crypto/sha256"
	"errors"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
)

// epoch is the time of the tests. It has microseconds, which every store must keep.
func epoch() time.Time { return time.Date(2026, 3, 4, 5, 6, 7, 890123000, time.UTC) }

// faultOf returns the fault.Error in err, or an empty one.
func faultOf(err error) *fault.Error {
	var e *fault.Error
	if errors.As(err, &e) {
		return e
	}
	return &fault.Error{}
}

// rate parses a valid rate.
func rate(s string) ratelimit.Rate {
	r, err := ratelimit.ParseRate(s)
	if err != nil {
		panic(err)
	}
	return r
}

// insertAccount inserts an account.
func (h *harness) insertAccount(name string) *account.Account {
	h.Helper()
	a := &account.Account{ID: id.New(id.Account), Name: name, Tier: account.Platform, State: account.Active, CreatedAt: epoch(), Version: 1}
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertAccount(ctx, a) })
	return a
}

func newGateway(a *account.Account) *gateway.Gateway {
	gatewayID := id.New(id.Gateway)
	return &gateway.Gateway{
		ID: gatewayID, AccountID: a.ID, Name: "orders", Upstream: gateway.Upstream{URL: "https://orders.internal/v1"},
		Hostname: strings.ReplaceAll(gatewayID, "_", "-") + ".localhost", Timeout: "60s", CreatedAt: epoch(), Version: 1,
	}
}

func (h *harness) insertGateway(a *account.Account) *gateway.Gateway {
	h.Helper()
	g := newGateway(a)
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertGateway(ctx, g) })
	return g
}

func newRoute(g *gateway.Gateway, path string, methods ...string) gateway.Route {
	return gateway.Route{ID: id.New(id.Route), GatewayID: g.ID, Path: path, Methods: methods, Auth: gateway.AuthKey,
		Source: gateway.API, CreatedAt: epoch(), Version: 1}
}

func newKey(a *account.Account) *apikey.Key {
	keyID := id.New(id.Key)
	return &apikey.Key{
		ID: keyID, AccountID: a.ID, Digest: sha256.Sum256([]byte(keyID)), Prefix: "kg_" + keyID[len(keyID)-6:], Name: "partner",
		Level: apikey.GatewayLevel, Scope: apikey.Scopes{{Word: apikey.Read}}, BucketID: keyID, CreatedAt: epoch(), Version: 1,
	}
}

// insertKey inserts a key after applying change, which may be nil.
func (h *harness) insertKey(a *account.Account, change func(*apikey.Key)) *apikey.Key {
	h.Helper()
	k := newKey(a)
	if change != nil {
		change(k)
	}
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertKey(ctx, k) })
	return k
}

func newAudit(a *account.Account, target string) *audit.Record {
	return &audit.Record{
		AccountID: a.ID, Time: epoch(), Kind: audit.Management, Outcome: audit.Success, Method: "POST", Path: "/v1/keys",
		ClientIP: "127.0.0.1", RequestID: id.New(id.Request), Action: audit.KeyCreate, Target: target,
	}
}

func newEvent(h *harness, a *account.Account) *event.Event {
	h.Helper()
	e, err := event.New(a.ID, event.KeyCreated, epoch(), event.Key{KeyID: id.New(id.Key)})
	if err != nil {
		h.Fatal(err)
	}
	return &e
}

// text draws a text that every store must keep: Unicode without NUL.
func text() *rapid.Generator[string] {
	return rapid.StringOf(rapid.Rune().Filter(func(r rune) bool { return r != 0 }))
}

// moment draws a time like the product's: in UTC, in whole microseconds, up to the year 9999.
func moment() *rapid.Generator[time.Time] {
	return rapid.Custom(func(t *rapid.T) time.Time {
		return time.UnixMicro(rapid.Int64Range(-1e15, 253402300799999999).Draw(t, "microseconds")).UTC()
	})
}

// maybe draws from g or, half of the time, the zero value.
func maybe[T any](g *rapid.Generator[T]) *rapid.Generator[T] {
	return rapid.Custom(func(t *rapid.T) (v T) {
		if rapid.Bool().Draw(t, "present") {
			v = g.Draw(t, "value")
		}
		return v
	})
}

// keyLimitOf draws the limit of a key, in both forms.
func keyLimitOf() *rapid.Generator[ratelimit.KeyLimit] {
	return rapid.Custom(func(t *rapid.T) ratelimit.KeyLimit {
		r := rateOf().Draw(t, "sustained")
		if rapid.Bool().Draw(t, "single") {
			return ratelimit.RateOf(r)
		}
		l, err := ratelimit.ParseKeyObject(r.String(), maybe(rateOf()).Draw(t, "burst").String(), maybe(rapid.Just("7/day")).Draw(t, "daily"))
		if err != nil {
			t.Fatal(err)
		}
		return l
	})
}

// rateOf draws rates in different spellings.
func rateOf() *rapid.Generator[ratelimit.Rate] {
	return rapid.Custom(func(t *rapid.T) ratelimit.Rate {
		return rate(rapid.SampledFrom([]string{"1/s", "7/sec", "600/min", "600/minute", "5/hour", "1000000000/h", "3/day"}).Draw(t, "rate"))
	})
}
