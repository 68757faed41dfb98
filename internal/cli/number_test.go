package cli

import (
	"testing"

	"github.com/keygate/keygate/internal/cli/terminal"
)

// Guarantee: a number that was counted to the end is exact, whatever its size; a number that was not says so.
func TestNumbers(t *testing.T) {
	for got, want := range map[string]string{
		terminal.NumberOf(1, "route", "routes"):     "1 route",
		terminal.NumberOf(5000, "route", "routes"):  "5000 routes",
		amount(maxCounted, "route", "routes"):       "1000 routes",
		amount(maxCounted+1, "route", "routes"):     "more than 1000 routes",
		amount(1, "pending delivery", "deliveries"): "1 pending delivery",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
