package postgres

import (
	"context"
	"log/slog"
	"os"
	"testing"

	"github.com/keygate/keygate/internal/keygatetest/postgrestest"
)

func TestMain(m *testing.M) { os.Exit(postgrestest.Main(m)) }

// migrated returns the URL of a database with the current schema.
func migrated(t testing.TB) string {
	t.Helper()
	return postgrestest.Migrated(t, func(ctx context.Context, url string) error {
		return Migrate(ctx, url, "1.2.3", slog.New(slog.DiscardHandler))
	})
}

// fresh opens a new store and closes it when the test ends. Its queue of deliveries goes by the
// times that tests pass, and not by the server's clock.
func fresh(t testing.TB) *DB {
	t.Helper()
	return openWith(t, Config{URL: migrated(t) + "&keygate.callers_time=on"})
}

func openWith(t testing.TB, cfg Config) *DB {
	t.Helper()
	db, err := Open(t.Context(), cfg)
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
