package control_test

import (
	"cmp"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/store/sqlite/sqlitetest"
	storestate "github.com/keygate/keygate/internal/store/state"
)

// BenchmarkTransactions reports how long the transactions of each operation take in an account at its bounds, and how many
// there were. It asserts nothing. Without -v the list is cut off.
func BenchmarkTransactions(b *testing.B) {
	for name, open := range engines() {
		b.Run(name, func(b *testing.B) {
			c := &rowCounter{all: map[string][]storestate.Counted{}}
			for b.Loop() {
				h := openHarness(b, sqlitetest.Path(b))
				engine := open(b, h, c.count)
				h.serve(engine)
				(&rowHarness{harness: h, engine: engine, counter: c}).all()
				h.must(engine.Close())
				h.close()
			}
			for _, of := range slices.Sorted(maps.Keys(c.all)) {
				list := c.all[of]
				slices.SortFunc(list, func(x, y storestate.Counted) int { return cmp.Compare(x.Took, y.Took) })
				at := func(share int) time.Duration { return list[(len(list)-1)*share/100].Took.Round(100 * time.Microsecond) }
				b.Logf("%-42s %4d transactions: p50 %v, p99 %v, at most %v", of, len(list), at(50), at(99), at(100))
			}
		})
	}
}
