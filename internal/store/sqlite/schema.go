package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/keygate/keygate/internal/fault"
)

//go:embed migrations/*.sql
var embedded embed.FS

// migrations returns the migrations of this binary: files whose names begin with the number of the schema that they
// lead to.
func migrations() (fs.FS, error) { return fs.Sub(embedded, "migrations") }

// migrateAttempts is how often the migration is tried without progress. Another process may
// migrate the same file at the same time; one of the two then fails, which is harmless.
const migrateAttempts = 5

// migrate migrates the schema to the newest schema of cfg.migrations and checks that the file can be
// written. It does not change a file that is not a Keygate database or is newer than this
// binary.
//
// It copies an existing database before, if cfg says so.
func migrate(ctx context.Context, db *sql.DB, cfg Config) error {
	log := cfg.Log
	if err := connectFirst(ctx, db, cfg.BusyTimeout); err != nil {
		return err
	}
	if err := checkMode(ctx, db); err != nil {
		return err
	}
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, cfg.migrations, goose.WithLogger(goose.NopLogger()), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return err
	}
	newest, err := newestSchema(cfg.migrations)
	if err != nil {
		return err
	}
	copied := !cfg.BackupBeforeMigrate
	for attempt, last := 1, int64(0); ; attempt++ {
		schema, err := readSchema(ctx, db)
		if err != nil {
			return err
		}
		schema.Newest = newest
		version := schema.Current
		if version > last { // progress, perhaps by another process
			attempt, last = 1, version
		}
		if err := schema.check("database"); err != nil {
			return err
		}
		if version == newest {
			if err := recordVersion(ctx, db, newest, cfg.Version); err != nil {
				return err
			}
			if copied && cfg.BackupBeforeMigrate {
				if err := removeOldCopies(cfg); err != nil {
					return err
				}
			}
			return probe(ctx, db)
		}
		if version > 0 && !copied {
			if err := backupBeforeMigrate(ctx, db, cfg, version); err != nil {
				return err
			}
			copied = true
		}
		results, err := provider.Up(ctx)
		level := slog.LevelInfo
		if version == 0 && err == nil { // a new database: the single steps do not matter
			level = slog.LevelDebug
			log.Info("created the database", "schema", newest)
		}
		for _, r := range results {
			log.Log(ctx, level, "migrated the database", "migration", r.Source.Path, "took", r.Duration)
		}
		if attempt == migrateAttempts {
			return errors.Join(fmt.Errorf("the schema is still at version %d after %d attempts to migrate it to %d", version, migrateAttempts, newest), err)
		}
	}
}

// connectFirst makes the first connection, which switches a new file to WAL mode. SQLite does not wait for other processes
// that do this at the same time, but fails. So connectFirst tries again until busy has passed.
func connectFirst(ctx context.Context, db *sql.DB, busy time.Duration) error {
	for deadline := time.Now().Add(busy); ; {
		err := db.PingContext(ctx)
		if !isBusy(err) || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// checkMode checks that the file is in WAL mode. File systems without shared memory do not
// support it; readers would then block the writer.
func checkMode(ctx context.Context, db *sql.DB) error {
	var mode string
	if err := db.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode); err != nil {
		return err
	}
	if mode != "wal" {
		return fault.New(fault.Unavailable, "the file system of the database does not support a write-ahead log: put the data directory on a local disk")
	}
	return nil
}

// rowReader is a *sql.DB or a *sql.Conn.
type rowReader interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// schemaVersion returns the number of the newest migration that was applied, or 0 for an
// empty file. The tables of SQLite itself and of Litestream do not count.
func schemaVersion(ctx context.Context, db rowReader) (int64, error) {
	var tables, ours int
	err := db.QueryRowContext(ctx, `SELECT count(*), count(*) FILTER (WHERE name = 'goose_db_version') FROM sqlite_schema
		WHERE name NOT LIKE 'sqlite~_%' ESCAPE '~' AND name NOT LIKE '~_litestream~_%' ESCAPE '~'`).Scan(&tables, &ours)
	if err != nil {
		return 0, err
	}
	if tables == 0 {
		return 0, nil
	}
	if ours == 0 {
		return 0, fault.New(fault.Unavailable, foreignMessage)
	}
	var version int64
	err = db.QueryRowContext(ctx, "SELECT coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied").Scan(&version)
	return version, err
}

// probe writes and rolls back, to find out at once whether the file can be changed. (BEGIN
// IMMEDIATE alone does not fail on a read-only file.)
func probe(ctx context.Context, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, "UPDATE changes_trimmed SET seq = seq")
	return errors.Join(err, tx.Rollback())
}

// unusableFile returns an error of the file system with a public message.
func unusableFile(err error) error {
	message := brokenMessage
	switch {
	case errors.Is(err, fs.ErrPermission):
		message = readOnlyMessage
	case errors.Is(err, fs.ErrNotExist):
		message = "the directory of the database does not exist"
	}
	return &fault.Error{Code: fault.Unavailable, Message: message, Err: fmt.Errorf("prepare the file: %w", err)}
}
