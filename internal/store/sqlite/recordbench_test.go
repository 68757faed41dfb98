package sqlite_test

import (
	"testing"

	"github.com/keygate/keygate/internal/store"
	"github.com/keygate/keygate/internal/store/sqlite"
	"github.com/keygate/keygate/internal/store/sqlite/sqlitetest"
	"github.com/keygate/keygate/internal/store/storetest"
)

// BenchmarkRecords measures the writes that storetest.Benchmark describes.
func BenchmarkRecords(b *testing.B) {
	storetest.Benchmark(b, func(b *testing.B) store.Engine { return sqlitetest.Open(b, sqlite.Config{}) })
}
