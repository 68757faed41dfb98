package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/keygate/keygate/internal/store/sqlite"
	"github.com/keygate/keygate/internal/store/storetest"
)

// open opens the store in path and closes it at the test's end.
func open(t testing.TB, path string) *sqlite.DB {
	t.Helper()
	db, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
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

// The SQLite store does what every store must do.
func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Engine {
		return open(t, filepath.Join(t.TempDir(), "keygate.db"))
	})
}
