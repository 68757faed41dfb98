package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"

	"github.com/pressly/goose/v3"
	library "modernc.org/sqlite/lib"
)

// LibraryVersion is the version of SQLite.
const LibraryVersion = library.SQLITE_VERSION

// Inspect returns the version of the schema in the file at path, and the newest that this binary knows. It
// changes nothing; a server may be using the file. The error is that the file cannot be read or is not a
// Keygate database.
func Inspect(ctx context.Context, path string) (current, newest int64, err error) {
	if newest, err = newestSchema(); err != nil {
		return 0, 0, err
	}
	err = withReader(path, func(db *sql.DB) error {
		current, err = schemaVersion(ctx, db)
		return err
	})
	if err != nil {
		return 0, newest, fmt.Errorf("read database %s: %w", path, translate("read the schema", err))
	}
	return current, newest, nil
}

// newestSchema returns the version of the newest migration.
func newestSchema() (newest int64, err error) {
	names, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		n, err := goose.NumericComponent(name)
		if err != nil {
			return 0, err
		}
		newest = max(newest, n)
	}
	for _, m := range goMigrations() {
		newest = max(newest, m.Version)
	}
	return newest, nil
}

// withReader calls f with a handle that only reads the file. Where there is no write-ahead log, nobody has
// the file open, and it is read without making one.
func withReader(path string, f func(*sql.DB) error) (err error) {
	name, err := dataSource(path, DefaultBusyTimeout, false)
	if err != nil {
		return err
	}
	if _, err := os.Stat(path + "-wal"); errors.Is(err, fs.ErrNotExist) {
		u, err := url.Parse(name)
		if err != nil {
			return err
		}
		q := u.Query()
		q.Set("mode", "ro")
		q.Set("immutable", "1")
		u.RawQuery = q.Encode()
		name = u.String()
	}
	db, err := sql.Open("sqlite", name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return f(db)
}
