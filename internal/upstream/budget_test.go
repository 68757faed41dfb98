package upstream

import (
	"testing"

	"pgregory.net/rapid"
)

// Guarantee: however much one gateway or one account asks for, another account still gets a
// connection, as does another gateway of the same account; everyone may use all descriptors except
// the last ninth; and never are more than the maximum in use.
func TestBudgetIsShared(t *testing.T) {
	t.Parallel()
	for _, size := range []int64{40, 68, 1000, 65536} {
		b := &budget{max: size}
		hog := &spender{account: "a"}
		for b.take(hog, 1) {
		}
		if hog.held < size-size/9-1 {
			t.Errorf("of %d, one gateway gets %d, want all but the last ninth", size, hog.held)
		}
		if !b.take(&spender{account: "a"}, dialCost) {
			t.Errorf("of %d, another gateway of the account gets none", size)
		}
		for range size { // as many gateways of the account as it wants
			b.take(&spender{account: "a"}, 1)
		}
		if !b.take(&spender{account: "b"}, dialCost) {
			t.Errorf("of %d, another account gets none", size)
		}
		if b.used > size {
			t.Errorf("of %d, %d are in use", size, b.used)
		}
	}
}

// Guarantee: descriptors that were taken and given back are free again, and the maximum holds at any time.
func TestBudgetAddsUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := &budget{max: rapid.Int64Range(1, 200).Draw(t, "max")}
		spenders := []*spender{{account: "a"}, {account: "a"}, {account: "b"}, {account: "c"}}
		for range rapid.IntRange(0, 300).Draw(t, "steps") {
			s := rapid.SampledFrom(spenders).Draw(t, "who")
			if n := rapid.Int64Range(1, 2).Draw(t, "n"); rapid.Bool().Draw(t, "take") {
				b.take(s, n)
			} else if s.held >= n {
				b.give(s, n)
			}
			if b.used > b.max || b.used < 0 {
				t.Fatalf("%d of %d are in use", b.used, b.max)
			}
		}
		for _, s := range spenders {
			b.give(s, s.held)
		}
		if b.used != 0 || b.accounts["a"]+b.accounts["b"]+b.accounts["c"] != 0 {
			t.Fatalf("%d are in use after all were given back: %v", b.used, b.accounts)
		}
	})
}
