//go:build !race

package proxy

import (
	"testing"

	"github.com/keygate/keygate/internal/ratelimit"
)

// Guarantee: plans.md, section 10: the costs of an exchange are read, settled and recorded without an allocation.
func TestCostsAllocateNothing(t *testing.T) {
	p := programOf(t, costOfTokens)
	for _, r := range []*costly{newCostly(t, "application/json", completion()), newCostly(t, "text/event-stream", chunks()...)} {
		var used ratelimit.Used
		once := func() {
			c := r.settle(p, &used)
			if used[ratelimit.UseCost] != 1204 || used[ratelimit.UseCost+1] != 17 || c.record() == "" {
				t.Fatalf("got %v, want 1204 tokens and 17 cents", used)
			}
			c.release()
		}
		once()
		if n := testing.AllocsPerRun(100, once); n >= 1 { // the collector of garbage may take a reader from its pool
			t.Errorf("%v allocations for an exchange, want none", n)
		}
	}
}
