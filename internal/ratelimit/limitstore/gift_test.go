package limitstore

import (
	"fmt"
	"math/big"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/keygatetest/redistest"
	"github.com/keygate/keygate/internal/ratelimit"
)

// giver is a node that gives requests back.
type giver struct {
	s      *Store
	take   ratelimit.Take
	number int64 // of the last report
}

// admitted asks for n requests, and returns the gift that they would be.
func (g *giver) admitted(t failer, n int64) ratelimit.Gift {
	t.Helper()
	q := one(t, g.s, n, g.take)
	a := &q.Takes[0]
	return ratelimit.Gift{Amount: q.Admitted, Level: a.Level, Part: a.LevelPart, Time: a.Time}
}

// give reports gifts, and returns what the bucket then has used, rounded up.
func (g *giver) give(t failer, gifts ...ratelimit.Gift) int64 {
	t.Helper()
	g.number++
	return g.giveAgain(t, gifts...)
}

// giveAgain repeats the last report.
func (g *giver) giveAgain(t failer, gifts ...ratelimit.Gift) int64 {
	t.Helper()
	take := g.take
	take.Gifts, take.DebtNumber = gifts, g.number
	q := one(t, g.s, 0, take)
	return used(&q.Takes[0])
}

func TestGifts(t *testing.T) {
	server := redistest.Start(t)
	s := newStore(t, server, "a")
	node := func(name string) *giver { return &giver{s: s, take: perDay("{x}:"+name, 10)} }

	t.Run("What was charged is given back, and once", func(t *testing.T) {
		g := node("once")
		g.admitted(t, 3)
		gift := g.admitted(t, 4)
		if got := g.give(t, gift); got != 3 {
			t.Errorf("%d are used, want 3", got)
		}
		if got := g.giveAgain(t, gift); got != 3 {
			t.Errorf("after the same report %d are used, want 3", got)
		}
	})
	t.Run("Requests are given back in any order", func(t *testing.T) {
		g, other := node("order"), node("order")
		other.s = newStore(t, server, "b")
		var gifts []ratelimit.Gift
		for range 10 {
			gifts = append(gifts, g.admitted(t, 1))
		}
		for i, at := range []int{3, 1, 7, 2, 9, 0, 8, 4, 6, 5} {
			if got := []*giver{g, other}[i%2].give(t, gifts[at]); got != int64(9-i) {
				t.Fatalf("after %d gifts, %d are used, want %d", i+1, got, 9-i)
			}
		}
	})
	t.Run("More than that is not given back", func(t *testing.T) {
		g := node("more")
		gift := g.admitted(t, 2)
		g.admitted(t, 3)
		gift.Amount = 9
		if got := g.give(t, gift); got < 3 {
			t.Errorf("%d are used, want the 3 of others at least", got)
		}
	})
	t.Run("What was regained meanwhile is not given back", func(t *testing.T) {
		g := node("regained")
		gift := g.admitted(t, 2)
		b, _ := readState(t, s, g.take.Name)
		b.time -= 6 * int64(time.Hour/time.Microsecond) // 2.5 requests ago
		gift.Time = b.time
		writeState(t, s, g.take.Name, b)
		g.admitted(t, 4)
		if got := g.give(t, gift); got != 4 {
			t.Errorf("%d are used, want 4: the bucket would have been full without the two", got)
		}
	})
	t.Run("What a bucket has forgotten is not given back", func(t *testing.T) {
		g := node("forgotten")
		gift := g.admitted(t, 2)
		c := *s.client.Load()
		if err := c.Do(t.Context(), c.B().Del().Key(s.prefix+g.take.Name).Build()).Error(); err != nil {
			t.Fatal(err)
		}
		g.admitted(t, 3)
		if got := g.give(t, gift); got != 3 {
			t.Errorf("%d are used, want 3", got)
		}
	})
}

// Guarantee: whatever is given back in whatever order, the requests that are kept obey the limit.
func TestGiftsNeverExceedTheLimit(t *testing.T) {
	server := redistest.Start(t)
	s := newStore(t, server, "a")
	number := int64(0)
	rapid.Check(t, func(t *rapid.T) {
		number++
		capacity := rapid.Int64Range(1, 12).Draw(t, "capacity")
		g := &giver{s: s, take: perSecond(fmt.Sprint("{x}:", number), rapid.SampledFrom([]int64{1, 700, 5000, 60_000}).Draw(t, "rate"))}
		g.take.Capacity = capacity
		var open []ratelimit.Gift
		var kept []int64 // times
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			if len(open) == 0 || rapid.Bool().Draw(t, "request") {
				for range rapid.IntRange(1, 3).Draw(t, "requests") {
					if gift := g.admitted(t, 1); gift.Amount > 0 {
						open = append(open, gift)
					}
				}
				continue
			}
			n := rapid.IntRange(0, len(open)-1).Draw(t, "which")
			if rapid.IntRange(0, 3).Draw(t, "keep") == 0 {
				kept = append(kept, open[n].Time)
			} else {
				g.give(t, open[n])
			}
			open = slices.Delete(open, n, n+1)
		}
		for _, o := range open {
			kept = append(kept, o.Time)
		}
		slices.Sort(kept)
		used, last := new(big.Rat), int64(0)
		for _, at := range kept {
			used.Sub(used, big.NewRat((at-last)*g.take.Count, g.take.Per))
			if used.Sign() < 0 {
				used.SetInt64(0)
			}
			last = at
			if used.Add(used, big.NewRat(1, 1)).Cmp(new(big.Rat).SetInt64(capacity)) > 0 {
				t.Fatalf("at %d, %s of %d are used by requests that were kept", at, used.FloatString(6), capacity)
			}
		}
	})
}
