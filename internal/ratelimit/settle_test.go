package ratelimit

import (
	"math/big"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keygate/keygate/internal/id"
	"pgregory.net/rapid"
)

// drawMeterRate draws a rate of units of a meter.
func drawMeterRate(t *rapid.T, name string) Rate {
	count := rapid.OneOf(rapid.Int64Range(1, 20), rapid.Int64Range(1, MaxCount), rapid.Int64Range(1, MaxUnits), rapid.Just(int64(MaxUnits)))
	return Rate{Count: count.Draw(t, name), Per: rapid.SampledFrom(units).Draw(t, name+" per")}
}

// Guarantee: whatever its rate and burst, a bucket of a meter never lets more pass than its capacity and what it has
// regained, and refuses nothing that leaves it more than the rounding of amounts; its status has the whole capacity.
// What requests use beyond that is taken up to one capacity below empty, and what they give back never fills it further.
func TestMeterBucketEqualsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Config{Sustained: drawMeterRate(t, "sustained")}
		if rapid.Bool().Draw(t, "burst") {
			c.Burst = drawMeterRate(t, "burst")
		}
		p := CompileMeter(c)
		if p.n == maxGain && p.d == 1 {
			t.Skip("the rate is beyond what a bucket regains")
		}
		m := newModel(c.Sustained, p.limit)
		now := Instant{Mono: rapid.Int64Range(0, int64(20*365*24*time.Hour)).Draw(t, "start"), Wall: startWall}
		m.last = now.Mono
		l := NewLimiter(func() int64 { return now.Mono })
		limit := Limit{Scope: PlanScope, Label: NewLabel("pro", "up", BytesIn), Params: &p, Bucket: new(Bucket)}
		slack := new(big.Rat).SetInt64(p.grain) // of each request, by rounding
		for range rapid.IntRange(1, 20).Draw(t, "requests") {
			step := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, int64(time.Second)), rapid.Int64Range(0, int64(30*24*time.Hour))).Draw(t, "step")
			now.Mono, now.Wall = now.Mono+step, now.Wall+step
			m.advance(now.Mono)
			reserve, used := rapid.Int64Range(0, p.limit).Draw(t, "reserve"), rapid.Int64Range(0, min(2*p.limit, MaxUnits)).Draw(t, "used")
			var charge Charge
			charge.AddUse(limit, UseBytesIn, reserve)
			got := l.Decide(now, &charge)
			fits := m.level.Cmp(new(big.Rat).SetInt64(reserve)) >= 0
			if got == Admitted && !fits {
				t.Fatalf("%d passed, but %s are left", reserve, m.level.FloatString(3))
			}
			if got == Refused {
				if rest := new(big.Rat).Sub(m.level, new(big.Rat).SetInt64(reserve)); rest.Cmp(slack) > 0 {
					t.Fatalf("%d were refused, but %s are left", reserve, m.level.FloatString(3))
				}
				if s := charge.Worst(); s.Limit != p.limit || s.Needed < reserve || s.ResetIn < 1 && reserve > 0 {
					t.Fatalf("the refusal of %d says %+v", reserve, s)
				}
				continue
			}
			if charge.Worst() != nil {
				t.Fatal("X-RateLimit-* would describe a limit of bytes")
			}
			l.Extend(&charge, &Used{UseBytesIn: used / 2})
			l.Settle(&charge, &Used{UseBytesIn: used})
			m.level.Sub(m.level, new(big.Rat).SetInt64(used))
			if least := new(big.Rat).Neg(m.capacity); m.level.Cmp(least) < 0 {
				m.level.Set(least)
			}
			slack.Add(slack, new(big.Rat).SetInt64(3*p.grain))
		}
	})
}

// Guarantee: what a request uses beyond what it has taken of a bucket that nodes share is regained before anything passes
// again, on every node; what it has taken and not used is there again.
func TestSharedBucketsAreSettled(t *testing.T) {
	for _, mode := range []Mode{Leased, Exact} {
		synctest.Test(t, func(t *testing.T) {
			c := startCluster(t, 2, mode, DivideOnLoss)
			defer c.stop()
			p := CompileMeter(Config{Sustained: Rate{Count: 100, Per: time.Second}, Burst: Rate{Count: 1000, Per: time.Second}})
			var limits []Limit
			for _, n := range c.nodes {
				b := n.sharing.NewBucket(Name{Account: "acct", Kind: id.Plan, Owner: [16]byte{1}}, &p)
				limits = append(limits, Limit{Scope: PlanScope, Label: NewLabel("pro", "up", BytesIn), Params: &p, Bucket: b})
			}
			begin := func(node int, amount int64) (*Charge, Result) {
				charge := new(Charge)
				charge.AddUse(limits[node], UseBytesIn, amount)
				r, err := c.nodes[node].take(charge)
				if err != nil {
					t.Fatal(err)
				}
				return charge, r
			}
			settle := func(node int, charge *Charge, used int64) {
				c.nodes[node].limiter().Settle(charge, &Used{UseBytesIn: used})
				virtual(100 * time.Millisecond) // until the store knows
			}
			first, _ := begin(0, 900)
			settle(0, first, 0)
			second, r := begin(1, 900)
			if r != Admitted {
				t.Fatalf("%s: got %v for 900 of 1000 after 900 were given back, want them", mode, r)
			}
			settle(1, second, 1500) // 500 more than there is: in 5 s it is empty, and in 10 s it has 500
			for _, step := range []struct {
				after time.Duration
				want  Result
			}{{0, Refused}, {4500 * time.Millisecond, Refused}, {5500 * time.Millisecond, Admitted}} {
				virtual(step.after)
				if _, r := begin(0, 400); r != step.want {
					t.Errorf("%s: got %v for 400, %s later, want %v", mode, r, step.after, step.want)
				}
			}
		})
	}
}

// virtual lets virtual time pass.
func virtual(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // virtual time
