package sqlite_test

import (
	"testing"
	"time"

	"github.com/keygate/keygate/internal/store"
	"github.com/keygate/keygate/internal/store/sqlite"
	"github.com/keygate/keygate/internal/store/sqlite/sqlitetest"
	"github.com/keygate/keygate/internal/store/storetest"
)

// open opens the store in path and closes it when the test ends.
func open(t testing.TB, path string) *sqlite.DB {
	t.Helper()
	return openWith(t, sqlite.Config{Path: path})
}

// openWithLongTimeout is open with a very long busy timeout, for stores that wait for each other.
func openWithLongTimeout(t testing.TB, path string) *sqlite.DB {
	t.Helper()
	return openWith(t, sqlite.Config{Path: path, BusyTimeout: longTimeout})
}

const longTimeout = 5 * time.Minute

func openWith(t testing.TB, cfg sqlite.Config) *sqlite.DB {
	t.Helper()
	db, err := sqlite.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// Guarantee: the SQLite store passes the conformance suite.
func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Engine {
		return sqlitetest.Open(t, sqlite.Config{})
	})
}
