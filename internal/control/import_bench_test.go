package control_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/store/sqlite/sqlitetest"
	storestate "github.com/keygate/keygate/internal/store/state"
)

// inputsOf returns as many keys as a call may import, each with an owner of its own, that differ from those of other rounds.
func inputsOf(round int) []control.ImportInput {
	all := make([]control.ImportInput, control.MaxImport)
	for n := range all {
		all[n] = foreign(func(in *control.ImportInput) {
			in.Secret, in.Owner = fmt.Sprint(foreignKey, "-", round, "-", n), fmt.Sprint("customer-", round, "-", n)
		})
	}
	return all
}

// BenchmarkImport imports 1,000 keys with a new owner each. It reports how many transactions that takes, how long the median,
// 99 % and the longest of them hold up other changes, and how many rows they write at most.
func BenchmarkImport(b *testing.B) {
	for name, open := range engines() {
		b.Run(name, func(b *testing.B) {
			c := &rowCounter{all: map[string][]storestate.Counted{}}
			h := openHarness(b, sqlitetest.Path(b))
			defer h.close()
			engine := open(b, h, c.count)
			defer func() { h.must(engine.Close()) }()
			h.serve(engine)
			caller := h.caller("acme", "admin")
			for round := 0; b.Loop(); round++ {
				b.StopTimer()
				inputs := inputsOf(round)
				h.must(engine.Analyze(ctx())) // as the maintenance does
				b.StartTimer()
				c.set("import")
				h.importKeys(caller, inputs...)
				c.set("")
			}
			list := c.all["import"]
			slices.SortFunc(list, func(x, y storestate.Counted) int { return int(x.Took - y.Took) })
			rows := int64(0)
			for _, n := range list {
				rows = max(rows, n.Rows)
			}
			b.ReportMetric(float64(len(list))/float64(b.N), "transactions/op")
			b.ReportMetric(float64(list[len(list)/2].Took.Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(list[len(list)*99/100].Took.Microseconds())/1000, "p99-ms")
			b.ReportMetric(float64(list[len(list)-1].Took.Microseconds())/1000, "max-ms")
			b.ReportMetric(float64(rows), "max-rows")
		})
	}
}

// BenchmarkRevocationBesideImports measures a revocation while four other accounts import 1,000 keys again and again.
func BenchmarkRevocationBesideImports(b *testing.B) {
	for name, open := range engines() {
		b.Run(name, func(b *testing.B) {
			h := openHarness(b, sqlitetest.Path(b))
			defer h.close()
			engine := open(b, h, nil)
			defer func() { h.must(engine.Close()) }()
			h.serve(engine)
			c := h.caller("acme", "admin")
			var over atomic.Bool
			var importing sync.WaitGroup
			for n := range 4 {
				of := h.caller(fmt.Sprint("importer-", n), "admin")
				importing.Go(func() {
					for round := 0; !over.Load(); round++ {
						h.importKeys(of, inputsOf(round)...)
					}
				})
			}
			took := timeRevocations(b, h, c, func() *control.NewKey { return h.keysOf(c, "", 1)[0] })
			over.Store(true)
			importing.Wait()
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(took[len(took)*9/10].Microseconds())/1000, "p90-ms")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
			b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "max-ms")
		})
	}
}
