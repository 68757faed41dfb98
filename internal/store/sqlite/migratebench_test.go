package sqlite

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/keygate/keygate/internal/store"
	"github.com/keygate/keygate/internal/store/storetest"
)

// BenchmarkOwnersOfOldKeys measures the migration of keys of the first schema, ten of each owner, and reading all owners:
//
//	go test ./internal/store/sqlite -run '^$' -bench OwnersOfOldKeys -benchtime 1x
func BenchmarkOwnersOfOldKeys(b *testing.B) {
	storetest.BenchOwners(b, `randomblob(32)`, func(b *testing.B, fill func(*sql.DB) error) func() store.Engine {
		path := filepath.Join(b.TempDir(), "keygate.db")
		At(b, path, 1, func(db *sql.DB, _ int64) {
			if err := fill(db); err != nil {
				b.Fatal(err)
			}
		})
		return func() store.Engine {
			db, err := Open(b.Context(), Config{Path: path})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = db.Close() })
			return db
		}
	})
}
