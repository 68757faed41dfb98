package fairslots

import (
	"testing"

	"pgregory.net/rapid"
)

// Guarantee: whatever accounts take and give back, no more is taken than there is; an account is refused exactly while too little is
// free, or while it has OfFree times as much as is free; and an account that has nothing takes no memory.
func TestShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(0, 30).Draw(t, "most")
		s, model := NewShares[int](most), [3]int{}
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			account, n := rapid.IntRange(0, 2).Draw(t, "account"), rapid.IntRange(1, 3).Draw(t, "n")
			free := most - model[0] - model[1] - model[2]
			if got, want := s.MayTake(account, n), free >= n && model[account] < OfFree*free; got != want {
				t.Fatalf("account %d, which has %d, may take %d of %d: got %t, want %t", account, model[account], n, free, got, want)
			}
			switch {
			case rapid.IntRange(0, 2).Draw(t, "give") == 0:
				n = min(n, model[account])
				s.Give(account, n)
				model[account] -= n
			case s.MayTake(account, n):
				s.Take(account, n)
				model[account] += n
			}
			if s.Of(account) != model[account] || s.Taken() != model[0]+model[1]+model[2] || s.Taken() > most {
				t.Fatalf("got %d of account %d and %d in all, want %v", s.Of(account), account, s.Taken(), model)
			}
		}
		for account, n := range model {
			s.Give(account, n)
		}
		if s.Taken() != 0 || len(s.of) != 0 {
			t.Fatalf("%d are taken by %d accounts, want none", s.Taken(), len(s.of))
		}
	})
}
