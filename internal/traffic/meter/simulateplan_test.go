package meter_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/store/sqlite"
	"github.com/keygate/keygate/internal/store/sqlite/sqlitetest"
	"github.com/keygate/keygate/internal/traffic"
	"github.com/keygate/keygate/internal/traffic/meter"
)

// planRequests gives a meter requests of an account's gateway, all at one time.
type planRequests struct {
	*meter.Meter
	t                fataler
	account, gateway [16]byte
	at               time.Time
}

func (p *planRequests) take(route, key [16]byte, n int) {
	for range n {
		p.Take([]accesslog.Entry{{Record: accesslog.Record{Account: p.account, Gateway: p.gateway, Route: route, Key: key, Start: p.at.UnixMicro(), Result: accesslog.Forwarded, Status: 200}}})
	}
}

func (p *planRequests) simulate(w traffic.PlanWhat) *traffic.SimulatedPlan {
	p.t.Helper()
	if err := p.Sync(context.Background()); err != nil {
		p.t.Fatal(err)
	}
	w.Gateway = p.gateway
	got, err := p.SimulatePlan(context.Background(), id.Format(id.Account, p.account), w)
	if err != nil {
		p.t.Fatal(err)
	}
	return got
}

func perDay(count int64) ratelimit.Config {
	return ratelimit.Config{Sustained: ratelimit.Rate{Count: count, Per: 24 * time.Hour}}
}

// Guarantee: a plan is simulated limit by limit: per key, for the keys of an owner together, and on the routes of a limit;
// requests without a key have no plan, and those whose owner is not known are counted as unknown.
func TestSimulationOfPlans(t *testing.T) {
	c := &clock{at: time.Date(2026, 5, 6, 12, 0, 0, 0, time.UTC)}
	p := &planRequests{Meter: newMeter(t, sqlitetest.Open(t, sqlite.Config{}), c), t: t, account: id.NewFast(), gateway: id.NewFast(), at: c.now().Add(-time.Hour)}
	orders, other := id.NewFast(), id.NewFast()
	a, b, young, alone, stranger := identifier(1), identifier(2), identifier(3), identifier(4), identifier(5)
	for _, key := range [][16]byte{a, b, young, alone, stranger, {}} {
		p.take(orders, key, 4)
		p.take(other, key, 2)
	}
	w := traffic.PlanWhat{
		Buckets: map[[16]byte][16]byte{young: b}, // of a rotation
		Owners: func(_ context.Context, keys [][16]byte) (map[[16]byte][16]byte, error) {
			if len(keys) != 5 {
				t.Errorf("asked for the owners of %d keys, want 5", len(keys))
			}
			return map[[16]byte][16]byte{a: identifier(9), b: identifier(9), young: identifier(9), alone: {}}, nil
		},
		Limits: []traffic.PlanLimit{
			{Limit: perDay(3), Routes: map[[16]byte]bool{orders: true}}, // a, alone, stranger: 1 of 4; b and young: 5 of 8
			{Limit: perDay(10), PerOwner: true},                         // of the owner 3+3+6=12 are left, of alone 5
		},
	}
	got := p.simulate(w)
	if want := []traffic.SimulatedLimit{{Refused: 8}, {Refused: 2, Unknown: 5}}; !slices.Equal(got.Limits, want) || got.Requests != 30 || got.Refused != 10 {
		t.Errorf("got %+v of %d requests with %d refused, want %+v of 30 with 10 refused", got.Limits, got.Requests, got.Refused, want)
	}
	sum := int64(0)
	for _, k := range got.Keys {
		if sum += k.Refused; k.KeyID == "" || !k.FirstAt.Equal(p.at) {
			t.Errorf("got the key %+v, want its identifier and the time of the requests", k)
		}
	}
	if sum != got.Refused {
		t.Errorf("got %d refused requests, want the sum over keys, which is %d", got.Refused, sum)
	}
}

// Guarantee: the simulation of a plan with one limit per key refuses what the simulation of that limit refuses.
func TestSimulationOfAPlanAgreesWithThatOfItsLimit(t *testing.T) {
	db := sqlitetest.Open(t, sqlite.Config{})
	c := &clock{at: time.Date(2026, 5, 6, 12, 0, 0, 0, time.UTC)}
	rapid.Check(t, func(t *rapid.T) {
		limit := drawLimit(t)
		limit.Per = ratelimit.PerKey
		p := &planRequests{Meter: newMeter(t, db, c), t: t, account: id.NewFast(), gateway: id.NewFast()}
		for range rapid.IntRange(1, 20).Draw(t, "seconds") {
			p.at = c.now().Add(-time.Duration(rapid.IntRange(1, 130).Draw(t, "second")) * time.Second)
			p.take(id.NewFast(), identifier(rapid.IntRange(1, 3).Draw(t, "key")), rapid.IntRange(1, 60).Draw(t, "requests"))
		}
		got := p.simulate(traffic.PlanWhat{Limits: []traffic.PlanLimit{{Limit: limit}}})
		want, err := p.Simulate(context.Background(), id.Format(id.Account, p.account), traffic.What{Flow: traffic.Flow{Gateway: p.gateway}, Limit: limit})
		if err != nil {
			t.Fatal(err)
		}
		if got.Requests != want.Requests || got.Refused != want.Refused || !slices.Equal(got.Keys, want.Keys) || got.Limits[0].Refused != want.Refused {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	})
}
