package postgres

import (
	"database/sql"
	"testing"

	"github.com/keygate/keygate/internal/keygatetest/postgrestest"
	"github.com/keygate/keygate/internal/store"
	"github.com/keygate/keygate/internal/store/storetest"
)

// BenchmarkOwnersOfOldKeys measures the migration of keys of the first schema, ten of each owner, on a server that syncs to the
// disk, and reading all owners:
//
//	go test ./internal/store/postgres -run '^$' -bench OwnersOfOldKeys -benchtime 1x
func BenchmarkOwnersOfOldKeys(b *testing.B) {
	server := postgrestest.Start(b, postgrestest.Config{Durable: true})
	storetest.BenchOwners(b, `sha256(i::text::bytea)`, func(b *testing.B, fill func(*sql.DB) error) func() store.Engine {
		url := server.Database(b, "")
		MigrateTo(b, url, 1, fill)
		if err := server.Admin(b.Context(), `CHECKPOINT`); err != nil { // otherwise the migration waits for the rows that were just inserted
			b.Fatal(err)
		}
		return func() store.Engine { return openWith(b, Config{URL: url}) }
	})
}
