// Package sqlitetest makes empty SQLite stores for tests. It runs the migrations once for
// each test binary and copies the file after that, which takes a fraction of the time.
package sqlitetest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/keygate/keygate/internal/store/sqlite"
)

// template returns the file of an empty store with the current schema.
//
//nolint:gochecknoglobals // made once for each test binary
var template = sync.OnceValues(func() (file []byte, err error) {
	dir, err := os.MkdirTemp("", "keygate-sqlitetest-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "keygate.db")
	db, err := sqlite.Open(context.Background(), sqlite.Config{Path: path})
	if err != nil {
		return nil, err
	}
	if err := db.Close(); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

// Write writes the file of an empty store to path.
func Write(path string) error {
	file, err := template()
	if err != nil {
		return err
	}
	return os.WriteFile(path, file, 0o600)
}

// Path returns the path of an empty store in a new temporary directory.
func Path(tb testing.TB) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "keygate.db")
	if err := Write(path); err != nil {
		tb.Fatal(err)
	}
	return path
}

// Open opens the store in cfg.Path, or a new empty one if cfg.Path is "", and closes it
// when the test ends.
func Open(tb testing.TB, cfg sqlite.Config) *sqlite.DB {
	tb.Helper()
	if cfg.Path == "" {
		cfg.Path = Path(tb)
	}
	db, err := sqlite.Open(tb.Context(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := db.Close(); err != nil {
			tb.Error(err)
		}
	})
	return db
}
