package sqlite

import (
	"database/sql"
	"testing"
	"time"

	"github.com/pressly/goose/v3"
)

// At creates a database at path with a past schema. It migrates step by step, and calls insert after each schema.
func At(t testing.TB, path string, schema int64, insert func(db *sql.DB, schema int64)) {
	t.Helper()
	if err := prepareFile(path); err != nil {
		t.Fatal(err)
	}
	db, err := (&DB{}).connect(Config{Path: path, BusyTimeout: time.Second}, true, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	files, err := migrations()
	if err != nil {
		t.Fatal(err)
	}
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, files, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		t.Fatal(err)
	}
	for n := int64(1); n <= schema; n++ {
		if _, err := provider.UpTo(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		insert(db, n)
	}
}

// Newest returns the newest schema.
func Newest(t *testing.T) int64 {
	t.Helper()
	files, err := migrations()
	if err != nil {
		t.Fatal(err)
	}
	n, err := newestSchema(files)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
