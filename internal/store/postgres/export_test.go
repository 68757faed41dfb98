package postgres

import (
	"database/sql"
	"testing"

	"github.com/pressly/goose/v3"
)

// MigrateTo migrates an empty database to a schema of a release, and calls insert.
func MigrateTo(t testing.TB, url string, schema int64, insert func(*sql.DB) error) {
	t.Helper()
	err := withSchema(t.Context(), url, func(db *sql.DB) error {
		files, err := migrations()
		if err != nil {
			return err
		}
		provider, err := goose.NewProvider(goose.DialectPostgres, db, files, goose.WithDisableGlobalRegistry(true))
		if err != nil {
			return err
		}
		if _, err := provider.UpTo(t.Context(), schema); err != nil {
			return err
		}
		return insert(db)
	})
	if err != nil {
		t.Fatal(err)
	}
}
