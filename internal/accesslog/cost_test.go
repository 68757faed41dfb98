package accesslog

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Guarantee: costs are read as they were written, and a text that was cut has no cost that is not one.
func TestCostText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []Cost
		var b []byte
		for range rapid.IntRange(0, 4).Draw(t, "count") {
			text := func(most int, label string) string { return rapid.StringN(-1, -1, most).Draw(t, label) }
			c := Cost{
				Meter: text(32, "meter"), Unknown: text(16, "unknown"), Read: text(256, "read"),
				Units: rapid.Int64Min(0).Draw(t, "units"), Reserved: rapid.Int64Range(0, 1<<53-1).Draw(t, "reserved"),
			}
			all = append(all, c)
			b = AppendCost(b, &c)
		}
		if len(b) > MaxCost {
			t.Fatalf("%d bytes, want at most %d", len(b), MaxCost)
		}
		if got := slices.Collect(Costs(string(b))); !slices.Equal(got, all) {
			t.Fatalf("got %v, want %v", got, all)
		}
		got := slices.Collect(Costs(string(b[:rapid.IntRange(0, len(b)).Draw(t, "length")])))
		if len(got) > len(all) || !slices.Equal(got, all[:len(got)]) {
			t.Fatalf("got %v of a text that was cut, want the first of %v", got, all)
		}
	})
}
