package fairslots

import (
	"testing"

	"pgregory.net/rapid"
)

// Guarantee: Most lets all have what they want if the total suffices; otherwise they never have more than it, and would with one more
// each.
func TestMostIsFair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.IntRange(0, 200).Draw(t, "total")
		wanted := rapid.SliceOfN(rapid.IntRange(0, 60), 0, 10).Draw(t, "wanted")
		all := func(most int) (sum int) {
			for _, w := range wanted {
				sum += min(w, most)
			}
			return sum
		}
		most, want := Most(total, wanted), all(60)
		switch got := all(most); {
		case want <= total && got != want:
			t.Fatalf("got %d of a total of %d, want all %d", got, total, want)
		case want > total && (got > total || all(most+1) <= total):
			t.Fatalf("got %d each, which is %d of a total of %d", most, got, total)
		}
	})
}
