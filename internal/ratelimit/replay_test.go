package ratelimit

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// configOf generates limits of every kind, small enough to refuse some of the tests'
// requests.
func configOf() *rapid.Generator[Config] {
	return rapid.Custom(func(t *rapid.T) Config {
		rate := func(name string, units ...time.Duration) Rate {
			return Rate{Count: rapid.SampledFrom([]int64{1, 2, 3, 7, 10, 50, 999, 1000, 86_399, 1_000_000, MaxCount}).Draw(t, name),
				Per: rapid.SampledFrom(units).Draw(t, name+" unit")}
		}
		var c Config
		if rapid.Bool().Draw(t, "sustained") {
			c.Sustained = rate("sustained", time.Second, time.Minute, time.Hour, 24*time.Hour)
		}
		if rapid.Bool().Draw(t, "burst") {
			c.Burst = rate("burst", time.Second, time.Minute)
		}
		if c.IsZero() || rapid.Bool().Draw(t, "daily") {
			c.Daily = rate("daily", 24*time.Hour)
		}
		if rapid.Bool().Draw(t, "per") {
			c.Per = PerKey
		}
		return c
	})
}

// Guarantee: AdmitAll has the same result as the single decisions, to the last bit of the
// state.
func TestAdmitAllEqualsSingleDecisions(t *testing.T) {
	const start = int64(20_000) * dayLength
	rapid.Check(t, func(t *rapid.T) {
		c := configOf().Draw(t, "limit")
		atOnce, single := NewReplay(c), NewReplay(c)
		mono := int64(0)
		for range rapid.IntRange(1, 8).Draw(t, "rounds") {
			mono += rapid.Int64Range(1, 3).Draw(t, "seconds") * second
			now := Instant{Mono: mono, Wall: start + mono}
			key := testKey(rapid.IntRange(0, 1).Draw(t, "key"))
			n := rapid.SampledFrom([]int64{1, 2, 3, 10, 49, 50, 1000}).Draw(t, "n")
			all := atOnce.AdmitAll(now, n, second, key)
			passed := int64(0)
			for i := range n {
				offset := i * second / n
				at := Instant{Mono: now.Mono + offset, Wall: now.Wall + offset}
				ok := single.Admit(at, key)
				if ok {
					passed++
				}
				if !all && atOnce.Admit(at, key) != ok {
					t.Fatalf("two replays of %+v differ", c)
				}
			}
			if all && passed != n {
				t.Fatalf("%+v: AdmitAll admitted all %d requests, single decisions only %d", c, n, passed)
			}
			a, b := atOnce.of(key), single.of(key)
			if a.bucket.state.Load() != b.bucket.state.Load() {
				t.Fatalf("%+v: after %d requests the states are %d and %d", c, n, a.bucket.state.Load(), b.bucket.state.Load())
			}
			if a.daily != nil && a.daily.load().used() != b.daily.load().used() {
				t.Fatalf("%+v: after %d requests %d and %d of the day are used", c, n, a.daily.load().used(), b.daily.load().used())
			}
		}
	})
}

// Guarantee: a limit far above the traffic is replayed without a step for each request.
func TestAdmitAllAcceptsBelowTheLimit(t *testing.T) {
	for _, text := range []string{"1000000/s", "1000000000/day", "100000/min", "200000/s"} {
		rate, err := ParseRate(text)
		if err != nil {
			t.Fatal(err)
		}
		r := NewReplay(Config{Sustained: rate})
		for i := range int64(4) {
			if !r.AdmitAll(Instant{Mono: i * second, Wall: i * second}, 20_000, second, [16]byte{}) {
				t.Errorf("%s: AdmitAll of 20,000 requests in second %d returned false, want true", text, i)
			}
		}
	}
}

// Guarantee: a replayed daily cap starts anew at midnight in UTC.
func TestReplayCountsDays(t *testing.T) {
	r := NewReplay(Config{Daily: perDay(3)})
	midnight := int64(20_000) * dayLength
	for i, want := range []bool{true, true, true, false, true, true, true, false} {
		wall := midnight - second
		if i >= 4 {
			wall = midnight
		}
		if got := r.Admit(Instant{Wall: wall, Mono: wall - midnight + dayLength}, [16]byte{}); got != want {
			t.Errorf("request %d: got %v, want %v", i, got, want)
		}
	}
}
