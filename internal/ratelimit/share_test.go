package ratelimit

import (
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Guarantee: the shares of a limit are whole numbers of requests that sum to it, and so do their
// rates, except for a rounding that only makes a share slower.
func TestSharesSumToTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		refill := Rate{
			Count: rapid.Int64Range(1, MaxCount).Draw(t, "count"),
			Per:   rapid.SampledFrom([]time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour}).Draw(t, "per"),
		}
		p := compile(refill, rapid.Int64Range(1, MaxCount).Draw(t, "capacity"))
		nodes := rapid.IntRange(1, 300).Draw(t, "nodes")
		sum := int64(0)
		for i := range nodes {
			s := Share{i, nodes}
			sum += s.of(p.capacity)
			if i < 5 || i == nodes-1 {
				checkShare(t, &p, s)
			}
		}
		if sum != p.capacity {
			t.Fatalf("%d shares of %d sum to %d", nodes, p.capacity, sum)
		}
	})
}

// checkShare checks that a bucket that is used all the time admits no more than its part of the
// rate, and hardly less.
func checkShare(t *rapid.T, p *Params, s Share) {
	part, share := s.of(p.capacity), p.share(s)
	if share.capacity != p.capacity || share.window != p.window {
		t.Fatalf("a share reports the limit %d in %d s, want the whole one, %d in %d s", share.capacity, share.window, p.capacity, p.window)
	}
	if part == 0 {
		if v := (&view{amount: 1}); share.check(v) != refuses {
			t.Fatal("a share of no requests admits one")
		}
		return
	}
	if share.span != uint64(part)*share.cost {
		t.Fatalf("a share of %d requests has a capacity of %d", part, share.span/share.cost)
	}
	const window = horizon / 4
	gained := new(big.Int).SetUint64(share.gained(window))
	gained.Mul(gained, new(big.Int).SetUint64(p.d)).Mul(gained, big.NewInt(p.capacity))
	exact := new(big.Int).SetUint64(p.n)
	exact.Mul(exact, big.NewInt(window)).Mul(exact, big.NewInt(part)).Mul(exact, new(big.Int).SetUint64(share.cost))
	if gained.Cmp(exact) > 0 {
		t.Fatalf("share %v of %d/%d ns gains more than its part", s, p.n, p.d)
	}
	cost := new(big.Int).SetUint64(share.cost)
	least := new(big.Int).Mul(exact, big.NewInt(1<<13-1))
	least.Rsh(least, 13)
	least.Mul(least, new(big.Int).Sub(cost, big.NewInt(1))).Div(least, cost) // the rounding of Params
	one := new(big.Int).SetUint64(share.cost)
	one.Mul(one, new(big.Int).SetUint64(p.d)).Mul(one, big.NewInt(p.capacity))
	if gained.Add(gained, one).Cmp(least) < 0 {
		t.Fatalf("share %v of %d/%d ns gains much less than its part", s, p.n, p.d)
	}
}
