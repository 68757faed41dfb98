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
)

// arrivals are the requests that a limit applied to, in the order of time.
type arrivals struct {
	account, gateway, route [16]byte
	begin                   time.Time
	at                      []time.Duration // since begin
	keys                    [][16]byte
}

// take gives a meter the access records of the requests, and returns a function that
// simulates a limit with them.
func (a *arrivals) take(t fataler, store traffic.Store, c *clock) func(traffic.What) *traffic.Simulated {
	t.Helper()
	m := newMeter(t, store, c)
	for i, at := range a.at {
		result, status := accesslog.Forwarded, uint16(200)
		if i%3 == 1 {
			result, status = accesslog.Limited, 429 // by the former limit
		}
		m.Take([]accesslog.Entry{{Record: accesslog.Record{Account: a.account, Gateway: a.gateway, Route: a.route, Key: a.keys[i],
			Start: a.begin.Add(at).UnixMicro(), Result: result, Status: status}}})
		if i == len(a.at)/2 {
			if err := m.Sync(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
	}
	// Requests that ended before the limits were checked do not count.
	for _, d := range []accesslog.Result{accesslog.KeyInvalid, accesslog.NoRoute, accesslog.WrongScope, accesslog.Preflight, accesslog.Failed} {
		m.Take([]accesslog.Entry{{Record: accesslog.Record{Account: a.account, Gateway: a.gateway, Route: a.route, Start: a.begin.UnixMicro(), Result: d, Status: 401}}})
	}
	if err := m.Sync(context.Background()); err != nil {
		t.Fatal(err)
	}
	return func(w traffic.What) *traffic.Simulated {
		t.Helper()
		got, err := m.Simulate(context.Background(), id.Format(id.Account, a.account), w)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
}

// simulate simulates the limit c of the route, and checks that the sums agree.
func (a *arrivals) simulate(t fataler, run func(traffic.What) *traffic.Simulated, c ratelimit.Config) *traffic.Simulated {
	t.Helper()
	got := run(traffic.What{Flow: traffic.Flow{Gateway: a.gateway, Route: a.route}, Limit: c})
	refused := int64(0)
	for _, k := range got.Keys {
		refused += k.Refused
	}
	if got.Requests != int64(len(a.at)) {
		t.Fatalf("got %d requests, want %d", got.Requests, len(a.at))
	}
	if got.Refused != refused {
		t.Fatalf("got %d refused requests, want the sum over keys, which is %d", got.Refused, refused)
	}
	return got
}

// limit applies the limit c to the requests with the limiter of the data plane.
func (a *arrivals) limit(c ratelimit.Config) (refused int64, byKey map[[16]byte]int64) {
	p := ratelimit.Compile(c)
	shared, each := new(ratelimit.Bucket), ratelimit.NewBuckets(&p, nil)
	byKey = map[[16]byte]int64{}
	for i, at := range a.at {
		now := ratelimit.Instant{Mono: int64(23*time.Hour + at), Wall: a.begin.Add(at).UnixNano()}
		params, bucket := &p, shared
		if c.Per == ratelimit.PerKey {
			params, bucket = each.Bucket(a.keys[i])
		}
		var charge ratelimit.Charge
		charge.Add(ratelimit.Limit{Params: params, Bucket: bucket}, 1)
		if new(ratelimit.Limiter).Decide(now, &charge) == ratelimit.Refused {
			refused++
			byKey[a.keys[i]]++
		}
	}
	return refused, byKey
}

// drawLimit generates a limit.
func drawLimit(t *rapid.T) ratelimit.Config {
	c := ratelimit.Config{Sustained: ratelimit.Rate{
		Count: rapid.Int64Range(1, 40).Draw(t, "count"), Per: rapid.SampledFrom([]time.Duration{time.Second, time.Minute}).Draw(t, "unit"),
	}}
	if rapid.Bool().Draw(t, "burst") {
		c.Burst = ratelimit.Rate{Count: rapid.Int64Range(1, 60).Draw(t, "burst count"), Per: time.Second}
	}
	if rapid.Bool().Draw(t, "per key") {
		c.Per = ratelimit.PerKey
	}
	return c
}

func newArrivals(now time.Time) *arrivals {
	return &arrivals{account: id.NewFast(), gateway: id.NewFast(), route: id.NewFast(), begin: now.Add(-time.Hour)}
}

// Guarantee: if the requests of each second are evenly spread, a simulation refuses exactly as
// many requests of each key as the limiter.
func TestSimulationAgreesWithLimiter(t *testing.T) {
	db := sqlitetest.Open(t, sqlite.Config{})
	c := &clock{at: time.Date(2026, 5, 6, 12, 0, 0, 0, time.UTC)}
	rapid.Check(t, func(t *rapid.T) {
		limit := drawLimit(t)
		a := newArrivals(c.now())
		keys := 1
		if limit.Per == ratelimit.PerKey {
			keys = 3
		}
		type request struct {
			at  time.Duration
			key [16]byte
		}
		var all []request
		for second := range rapid.IntRange(1, 150).Draw(t, "seconds") {
			for key := range keys {
				n := rapid.SampledFrom([]int{0, 0, 1, 2, 7, 30, 100}).Draw(t, "requests")
				for i := range n {
					// an access record has a resolution of a microsecond
					all = append(all, request{time.Duration(second)*time.Second + time.Duration(int64(i)*int64(time.Second)/int64(n)), identifier(key)})
				}
			}
		}
		slices.SortStableFunc(all, func(x, y request) int { return int(x.at - y.at) })
		for _, r := range all {
			a.at, a.keys = append(a.at, r.at), append(a.keys, r.key)
		}
		got := a.simulate(t, a.take(t, db, c), limit)
		refused, byKey := a.limit(limit)
		if got.Refused != refused {
			t.Fatalf("%+v: got %d of %d requests refused, want %d as by the limiter", limit, got.Refused, got.Requests, refused)
		}
		for _, k := range got.Keys {
			u, _ := id.Parse(id.Key, k.KeyID)
			if k.Refused != byKey[u] {
				t.Fatalf("%+v: got %d requests of a key refused, want %d as by the limiter", limit, k.Refused, byKey[u])
			}
			if k.FirstAt.Before(a.begin) {
				t.Fatalf("%+v: got %s as the time of the first refused request, want it not before %s", limit, k.FirstAt, a.begin)
			}
			delete(byKey, u)
		}
		if len(byKey) > 0 {
			t.Fatalf("the simulation lacks keys that the limiter refuses: %v", byKey)
		}
	})
}

// Guarantee: for requests at any times within their seconds, a simulation refuses at most as
// many as the limiter, and at least as many as the limiter with a burst that is larger by the
// refill of two seconds.
func TestSimulationIsNearLimiter(t *testing.T) {
	db := sqlitetest.Open(t, sqlite.Config{})
	c := &clock{at: time.Date(2026, 5, 6, 12, 0, 0, 0, time.UTC)}
	rapid.Check(t, func(t *rapid.T) {
		limit := drawLimit(t)
		a := newArrivals(c.now())
		n := rapid.IntRange(1, 400).Draw(t, "requests")
		span := rapid.SampledFrom([]int64{1, 3, 20, 100}).Draw(t, "seconds") * int64(time.Second/time.Microsecond)
		for range n {
			a.at = append(a.at, time.Duration(rapid.Int64Range(0, span).Draw(t, "at"))*time.Microsecond)
			a.keys = append(a.keys, identifier(rapid.IntRange(0, 2).Draw(t, "key")))
		}
		slices.Sort(a.at)
		wider := limit
		capacity := limit.Sustained.Count
		if !limit.Burst.IsZero() {
			capacity = limit.Burst.Count
		}
		inTwoSeconds := (2*limit.Sustained.Count*int64(time.Second) + int64(limit.Sustained.Per) - 1) / int64(limit.Sustained.Per)
		wider.Burst = ratelimit.Rate{Count: capacity + inTwoSeconds, Per: time.Second}

		run := a.take(t, db, c)
		limited, _ := a.limit(limit)
		limitedWider, _ := a.limit(wider)
		simulated, simulatedWider := a.simulate(t, run, limit).Refused, a.simulate(t, run, wider).Refused
		if simulated < limitedWider {
			t.Fatalf("%+v: got %d refused, want at least %d as by the limiter with a larger burst", limit, simulated, limitedWider)
		}
		if limited < simulatedWider {
			t.Fatalf("%+v: got %d refused with a larger burst, want at most %d as by the limiter", limit, simulatedWider, limited)
		}
	})
}

// Guarantee: the simulated limit of a gateway, route or key applies to its requests of the
// last 24 hours, and no others. Keys of one rotation share a limit.
func TestSimulationAppliesToItsRequests(t *testing.T) {
	db := sqlitetest.Open(t, sqlite.Config{})
	c := &clock{at: time.Date(2026, 5, 6, 12, 0, 0, 0, time.UTC)}
	m := newMeter(t, db, c)
	account, gateway := id.NewFast(), id.NewFast()
	send := func(n int, ago time.Duration, gateway, route, key [16]byte) {
		for range n {
			m.Take([]accesslog.Entry{{Record: accesslog.Record{Account: account, Gateway: gateway, Route: route, Key: key, Start: c.now().Add(-ago).UnixMicro(), Status: 200}}})
		}
	}
	old, young, other := identifier(1), identifier(2), identifier(3)
	send(3, time.Minute, gateway, identifier(1), old)
	send(2, time.Minute, gateway, identifier(1), young)
	send(4, time.Minute, gateway, identifier(2), other)
	send(1, time.Minute, gateway, identifier(2), [16]byte{})
	send(50, time.Minute, identifier(9), identifier(1), old)  // another gateway
	send(50, 25*time.Hour, gateway, identifier(1), old)       // too long ago
	send(7, time.Hour, gateway, identifier(5), identifier(5)) // another route, and too early to affect other limits
	if err := m.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	one := ratelimit.Rate{Count: 1, Per: 24 * time.Hour}
	for _, test := range []struct {
		name              string
		of                traffic.Flow
		limit             ratelimit.Config
		requests, refused int64
	}{
		{"gateway", traffic.Flow{}, ratelimit.Config{Sustained: one}, 17, 16},
		{"route", traffic.Flow{Route: identifier(1)}, ratelimit.Config{Sustained: one}, 5, 4},
		{"route per key", traffic.Flow{Route: identifier(1)}, ratelimit.Config{Sustained: one, Per: ratelimit.PerKey}, 5, 4},
		{"other route per key", traffic.Flow{Route: identifier(2)}, ratelimit.Config{Sustained: one, Per: ratelimit.PerKey}, 5, 3},
		{"route's day", traffic.Flow{Route: identifier(2)}, ratelimit.Config{Daily: ratelimit.Rate{Count: 2, Per: 24 * time.Hour}}, 5, 3},
		{"key", traffic.Flow{Key: young}, ratelimit.Config{Sustained: one}, 5, 4},
		{"key without a partner", traffic.Flow{Key: other}, ratelimit.Config{Sustained: one}, 4, 3},
		{"unused route", traffic.Flow{Route: identifier(77)}, ratelimit.Config{Sustained: one}, 0, 0},
	} {
		test.of.Gateway = gateway
		got, err := m.Simulate(t.Context(), id.Format(id.Account, account), traffic.What{Flow: test.of, Limit: test.limit, Buckets: map[[16]byte][16]byte{young: old}})
		if err != nil || got.Requests != test.requests || got.Refused != test.refused {
			t.Errorf("%s: got %+v and the error %v, want %d of %d refused", test.name, got, err, test.refused, test.requests)
		}
	}
	got, err := m.Simulate(t.Context(), id.New(id.Account), traffic.What{Flow: traffic.Flow{Gateway: gateway}, Limit: ratelimit.Config{Sustained: one}})
	if err != nil || got.Requests != 0 {
		t.Errorf("another account: got %+v and the error %v, want no requests", got, err)
	}
}
