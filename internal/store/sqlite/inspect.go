package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"

	"github.com/pressly/goose/v3"
	library "modernc.org/sqlite/lib"

	"github.com/keygate/keygate/internal/fault"
)

// LibraryVersion is the version of SQLite.
const LibraryVersion = library.SQLITE_VERSION

// Schema is the schema of a database, and the newest that this binary knows.
type Schema struct {
	Current int64 // 0 for an empty file
	Newest  int64
	// Version is the version of Keygate that migrated the database to Current; "" if unknown.
	Version string
}

// Newer reports whether the schema is newer than this binary supports.
func (s Schema) Newer() bool { return s.Current > s.Newest }

// Needed names the version of Keygate that supports the schema.
func (s Schema) Needed() string { return cmp.Or(s.Version, "the version that wrote it") }

// check returns an error if the schema is newer than this binary supports. what names the thing with the schema.
func (s Schema) check(what string) error {
	if !s.Newer() {
		return nil
	}
	return fault.New(fault.Unavailable,
		"the %s was written by a newer version of Keygate (schema %d, this version supports %d): run %s or a newer one, or restore a backup from before the upgrade",
		what, s.Current, s.Newest, s.Needed())
}

// Inspect returns the schema of the file at path. It changes nothing; a server may be using the file. It is an
// error if the file cannot be read or is not a Keygate database.
func Inspect(ctx context.Context, path string) (s Schema, err error) {
	err = withReader(path, func(db *sql.DB) error {
		s, err = readSchema(ctx, db)
		return err
	})
	if err != nil {
		return Schema{}, fmt.Errorf("read database %s: %w", path, translate("read the schema", err))
	}
	return s, nil
}

// readSchema returns the schema of a database.
func readSchema(ctx context.Context, db rowReader) (s Schema, err error) {
	files, err := migrations()
	if err != nil {
		return s, err
	}
	if s.Newest, err = newestSchema(files); err != nil {
		return s, err
	}
	if s.Current, err = schemaVersion(ctx, db); err != nil {
		return s, err
	}
	var known bool
	err = db.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema WHERE name = 'schema_support'").Scan(&known)
	if err != nil || !known {
		return s, err
	}
	err = db.QueryRowContext(ctx, "SELECT coalesce(max(version), '') FROM schema_support WHERE schema = ?", s.Current).Scan(&s.Version)
	return s, err
}

// recordVersion records that version has migrated the database to a schema, unless that is recorded already.
func recordVersion(ctx context.Context, db *sql.DB, schema int64, version string) error {
	if version == "" {
		return nil
	}
	_, err := db.ExecContext(ctx, "UPDATE schema_support SET schema = ?1, version = ?2 WHERE schema <> ?1 OR version = ''", schema, version)
	return err
}

// newestSchema returns the schema that the newest of the migrations leads to.
func newestSchema(files fs.FS) (newest int64, err error) {
	names, err := fs.Glob(files, "*.sql")
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
	return newest, nil
}

// withReader calls f with a handle that only reads the file. Without a write-ahead log, nobody has the file open,
// and it is read without creating a log. Otherwise SQLite may write to the file -shm, which has no data.
func withReader(path string, f func(*sql.DB) error) (err error) {
	parameters := url.Values{"mode": {"ro"}}
	if _, err := os.Stat(path + "-wal"); errors.Is(err, fs.ErrNotExist) {
		parameters.Set("immutable", "1")
	}
	return withSource(path, parameters, f)
}

// withSource calls f with a handle that reads the file, and whose data source has these parameters besides the
// usual parameters of readers.
func withSource(path string, parameters url.Values, f func(*sql.DB) error) (err error) {
	name, err := dataSource(path, DefaultBusyTimeout, false)
	if err != nil {
		return err
	}
	u, err := url.Parse(name)
	if err != nil {
		return err
	}
	q := u.Query()
	maps.Copy(q, parameters)
	u.RawQuery = q.Encode()
	db, err := sql.Open("sqlite", u.String())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return f(db)
}
