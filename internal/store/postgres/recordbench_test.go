package postgres

import (
	"log/slog"
	"testing"

	"github.com/keygate/keygate/internal/keygatetest/postgrestest"
	"github.com/keygate/keygate/internal/store"
	"github.com/keygate/keygate/internal/store/storetest"
)

// BenchmarkRecords measures the writes that storetest.Benchmark describes, with a server on the same
// machine that syncs to the disk.
func BenchmarkRecords(b *testing.B) {
	server := postgrestest.Start(b, postgrestest.Config{Durable: true})
	storetest.Benchmark(b, func(b *testing.B) store.Engine {
		url := server.Database(b, "")
		if err := Migrate(b.Context(), url, "1.2.3", slog.New(slog.DiscardHandler)); err != nil {
			b.Fatal(err)
		}
		return openWith(b, Config{URL: url + "&keygate.callers_time=on"})
	})
}
