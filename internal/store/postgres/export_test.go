package postgres

import (
	"database/sql"
	"io/fs"
	"testing"

	"github.com/pressly/goose/v3"
)

// MigrateTo migrates an empty database to a schema of the past, and calls insert, which may migrate it further.
func MigrateTo(t *testing.T, url string, schema int64, insert func(*sql.DB) error) {
	t.Helper()
	err := withSchema(t.Context(), url, func(db *sql.DB) error {
		files, err := fs.Sub(migrations, "migrations")
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
