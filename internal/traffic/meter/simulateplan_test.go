package meter_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/calendar"
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
		Callers: func(_ context.Context, keys [][16]byte) (map[[16]byte]traffic.Caller, error) {
			if len(keys) != 5 {
				t.Errorf("asked for the owners of %d keys, want 5", len(keys))
			}
			one := traffic.Caller{Owner: identifier(9)}
			return map[[16]byte]traffic.Caller{a: one, b: one, young: one, alone: {}}, nil
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

// Guarantee: a comparison of a plan's limits counts the requests of the keys that have the plan, and through the gateways whose
// default it is of those without one, over all gateways together. Neither side changes what the other one refuses. Requests
// of keys that are not known are counted apart.
func TestComparisonOfPlans(t *testing.T) {
	c := &clock{at: time.Date(2026, 5, 6, 12, 0, 0, 0, time.UTC)}
	p := &planRequests{Meter: newMeter(t, sqlitetest.Open(t, sqlite.Config{}), c), t: t, account: id.NewFast(), at: c.now().Add(-time.Hour)}
	one, two, route := id.NewFast(), id.NewFast(), id.NewFast()
	has, other, default1, stranger := identifier(1), identifier(2), identifier(3), identifier(4)
	for _, p.gateway = range [][16]byte{one, two} {
		for _, key := range [][16]byte{has, other, default1, stranger} {
			p.take(route, key, 4)
		}
	}
	p.gateway = [16]byte{}
	w := traffic.PlanWhat{
		OnlyUsers: true, Defaults: map[[16]byte]bool{one: true},
		Callers: func(context.Context, [][16]byte) (map[[16]byte]traffic.Caller, error) {
			return map[[16]byte]traffic.Caller{
				has: {PerKey: traffic.ThisPlan, PerOwner: traffic.OtherPlan}, other: {}, default1: {PerKey: traffic.DefaultPlan, PerOwner: traffic.DefaultPlan},
			}, nil
		},
		Limits: []traffic.PlanLimit{
			{Limit: perDay(5)},                                    // of has 3 of 8, of default1 none of 4
			{Limit: perDay(1), PerOwner: true},                    // of default1 3 of 4
			{Limit: perDay(2), Side: traffic.After},               // 6 of 8, 2 of 4
			{Limit: perDay(3), Side: traffic.After, Gateway: two}, // nothing of the 2 of has that are left
		},
	}
	got := p.simulate(w)
	want := []traffic.SimulatedLimit{{Refused: 3}, {Refused: 3}, {Refused: 8}, {}}
	if !slices.Equal(got.Limits, want) || got.Requests != 12 || got.Users != 2 || got.Unknown != 8 {
		t.Errorf("got %+v of %d requests of %d keys and %d unknown, want %+v of 12 of 2 and 8", got.Limits, got.Requests, got.Users, got.Unknown, want)
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

// Guarantee: a quota is simulated by windows of the calendar. Of a window that began before the recorded time, it refuses
// what is above its count for sure, and does not know of the rest.
func TestSimulationOfQuotas(t *testing.T) {
	c := &clock{at: time.Date(2026, 5, 6, 1, 0, 0, 0, time.UTC)}
	p := &planRequests{Meter: newMeter(t, sqlitetest.Open(t, sqlite.Config{}), c), t: t, account: id.NewFast(), gateway: id.NewFast()}
	a, b, route := identifier(1), identifier(2), id.NewFast()
	for _, hours := range []time.Duration{3, 2, 0} { // two of them before midnight
		p.at = c.now().Add(-hours*time.Hour - time.Second)
		p.take(route, a, 4)
		p.take(route, b, 1)
	}
	quota := func(unit calendar.Unit, count int64, allow bool) traffic.PlanLimit {
		return traffic.PlanLimit{Quota: &traffic.QuotaLimit{Count: count, Calendar: calendar.Calendar{Unit: unit, Zone: time.UTC, Anchor: 1}, Allow: allow}}
	}
	for _, one := range []struct {
		limit traffic.PlanLimit
		want  traffic.SimulatedLimit
	}{
		{quota(calendar.Day, 3, false), traffic.SimulatedLimit{Refused: 5 + 1, Unknown: 3 + 2}}, // all of today is recorded
		{quota(calendar.Month, 10, false), traffic.SimulatedLimit{Refused: 2, Unknown: 10 + 3}},
		{quota(calendar.Total, 100, false), traffic.SimulatedLimit{Unknown: 15}},
		{quota(calendar.Month, 1, true), traffic.SimulatedLimit{}},
	} {
		got := p.simulate(traffic.PlanWhat{Limits: []traffic.PlanLimit{one.limit}})
		if got.Limits[0] != one.want || got.Requests != 15 || got.Refused != one.want.Refused {
			t.Errorf("%+v: got %+v of %d requests, want %+v of 15", *one.limit.Quota, got.Limits[0], got.Requests, one.want)
		}
	}
	callers := func(context.Context, [][16]byte) (map[[16]byte]traffic.Caller, error) {
		return map[[16]byte]traffic.Caller{a: {Owner: identifier(9)}, b: {Owner: identifier(9)}}, nil
	}
	together := quota(calendar.Day, 4, false)
	together.PerOwner = true
	got := p.simulate(traffic.PlanWhat{Limits: []traffic.PlanLimit{together, {Limit: perDay(100)}}, Callers: callers})
	if got.Limits[0] != (traffic.SimulatedLimit{Refused: 6 + 1, Unknown: 4}) || len(got.Keys) != 2 {
		t.Errorf("got %+v and %+v, want 7 refused of both keys", got.Limits, got.Keys)
	}
}
