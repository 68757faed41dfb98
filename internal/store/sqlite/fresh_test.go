package sqlite

import (
	"path/filepath"
	"testing"
)

// fresh opens a new store and closes it when the test ends.
func fresh(t *testing.T) *DB {
	t.Helper()
	db, err := Open(t.Context(), Config{Path: filepath.Join(t.TempDir(), "keygate.db")})
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
