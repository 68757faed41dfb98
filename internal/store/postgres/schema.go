package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/keygate/keygate/internal/fault"
)

//go:embed migrations/*.sql
var embedded embed.FS

// migrations returns the migrations of this binary: files whose names begin with the number of the schema that they
// lead to. A migration that locks tables which nodes use, as each does after the first, begins with
//
//	SELECT set_config('lock_timeout', greatest(1, least(1000, (SELECT min(ttl) FROM nodes WHERE state = 'live') / 10000000))::text, true);
//
// since other statements wait behind it while it waits for a lock: for a tenth of the shortest lease at most. This
// also works behind a pooler, which does not keep the settings of a session.
func migrations() (fs.FS, error) { return fs.Sub(embedded, "migrations") }

const (
	// migrationLock is the key of the advisory lock of nodes that migrate, "keygate" in ASCII.
	migrationLock = 0x6b657967617465
	// migrationWait is how long a node waits for others that migrate.
	migrationWait = 5 * time.Minute
	// tableWait is how long a migration waits for the lock of a table at most, because other statements
	// wait behind it. A serving node must not lose its lease because of this, so the wait is a tenth of
	// the shortest lease if that is less.
	tableWait = time.Second
	// tableAttempts is how often a migration that does not get a lock in this time is tried.
	tableAttempts = 20
)

// Version is the schema version of a database, and the version that this binary needs.
type Version struct{ Current, Newest int64 }

// SchemaVersion returns the version of the schema in the database of a URL.
func SchemaVersion(ctx context.Context, url string) (v Version, err error) {
	err = withSchema(ctx, url, func(db *sql.DB) error {
		v, err = ownVersions(ctx, db)
		return err
	})
	return v, err
}

// Migrate migrates the database of a URL to the newest schema. version is the version of this binary. The errors of
// binaries that are too old for the schema name it.
func Migrate(ctx context.Context, url, version string, log *slog.Logger) error {
	files, err := migrations()
	if err != nil {
		return err
	}
	return withSchema(ctx, url, func(db *sql.DB) error { return migrate(ctx, db, files, version, log) })
}

// withSchema calls f with a handle for the database of a URL.
func withSchema(ctx context.Context, url string, f func(*sql.DB) error) error {
	settings, err := parseURL(url)
	if err != nil {
		return err
	}
	if err := inSchema(settings.ConnConfig, f); err != nil {
		return fmt.Errorf("open the PostgreSQL database: %w", translate("read the schema", err))
	}
	return ctx.Err()
}

// inSchema calls f with a handle that is used for migrations only.
func inSchema(settings *pgx.ConnConfig, f func(*sql.DB) error) (err error) {
	settings = settings.Copy()
	configure(settings)
	// A pooler need not keep sessions.
	settings.DefaultQueryExecMode = pgx.QueryExecModeExec
	db := stdlib.OpenDB(*settings, stdlib.OptionAfterConnect(func(ctx context.Context, c *pgx.Conn) error {
		// A pooler would hand the connection to other clients with this setting. Migrations set it for their
		// transaction too.
		if isPooled, err := pooled(ctx, c); err != nil || isPooled {
			return err
		}
		wait, err := lockTimeout(ctx, c)
		if err != nil {
			return err
		}
		_, err = c.Exec(ctx, fmt.Sprintf(`SET lock_timeout = %d`, wait.Milliseconds()))
		return err
	}))
	defer func() { err = errors.Join(err, db.Close()) }()
	return f(db)
}

// lockTimeout returns how long a migration may wait for the lock of a table.
func lockTimeout(ctx context.Context, c *pgx.Conn) (time.Duration, error) {
	var hasNodes bool
	if err := c.QueryRow(ctx, `SELECT to_regclass('nodes') IS NOT NULL`).Scan(&hasNodes); err != nil || !hasNodes {
		return tableWait, err
	}
	var ttl int64
	err := c.QueryRow(ctx, `SELECT coalesce(min(ttl), 0) FROM nodes WHERE state = 'live'`).Scan(&ttl)
	if err != nil || ttl == 0 {
		return tableWait, err
	}
	return max(time.Millisecond, min(tableWait, time.Duration(ttl)/10)), nil
}

// prepareSchema migrates the database, or checks that it has this binary's schema.
func prepareSchema(ctx context.Context, settings *pgx.ConnConfig, cfg *Config) error {
	files, err := migrations()
	if err != nil {
		return err
	}
	return inSchema(settings, func(db *sql.DB) error {
		v, err := versions(ctx, db, files)
		switch {
		case err != nil:
			return err
		case v.Current >= v.Newest:
			return nil
		case cfg.KeepSchema:
			return fault.New(fault.Unavailable, "the database has schema %d, and this version needs %d: run keygate migrate up, or start with --migrate=auto", v.Current, v.Newest)
		}
		return migrate(ctx, db, files, cfg.Version, cfg.Log)
	})
}

// ownVersions is versions with the migrations of this binary.
func ownVersions(ctx context.Context, db *sql.DB) (Version, error) {
	files, err := migrations()
	if err != nil {
		return Version{}, err
	}
	return versions(ctx, db, files)
}

// versions returns the versions of the schema. It is an error if the schema is too new for a binary with these
// migrations, or is not Keygate's.
func versions(ctx context.Context, db *sql.DB, files fs.FS) (v Version, err error) {
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		return v, err
	}
	if v.Newest, err = goose.NumericComponent(names[len(names)-1]); err != nil {
		return v, err
	}
	var tables, ours int
	err = db.QueryRowContext(ctx, `SELECT count(*), count(*) FILTER (WHERE relname = 'goose_db_version') FROM pg_class
		WHERE relkind IN ('r', 'p') AND relnamespace = current_schema()::regnamespace`).Scan(&tables, &ours)
	if err != nil || tables == 0 {
		return v, err
	}
	if ours == 0 {
		return v, fault.New(fault.Unavailable, foreignMessage)
	}
	if err := db.QueryRowContext(ctx, `SELECT coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied`).Scan(&v.Current); err != nil {
		return v, err
	}
	if v.Current <= v.Newest {
		return v, nil
	}
	oldest, version := v.Current, ""
	if err := db.QueryRowContext(ctx, `SELECT oldest, version FROM schema_support`).Scan(&oldest, &version); err != nil {
		return v, err
	}
	if oldest > v.Newest {
		return v, fault.New(fault.Unavailable,
			"the database was written by a newer version of Keygate (schema %d, and this version supports %d): run %s or a newer one, or restore a backup from before the upgrade",
			v.Current, v.Newest, cmp.Or(version, "that version"))
	}
	return v, nil
}

// migrate migrates the schema, one node at a time: a transaction on a connection of its own holds
// the lock, which ends with the transaction, however that ends.
func migrate(ctx context.Context, db *sql.DB, files fs.FS, version string, log *slog.Logger) (err error) {
	lock, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Rollback()) }()
	for _, statement := range []string{
		fmt.Sprintf(`SET LOCAL lock_timeout = %d`, migrationWait.Milliseconds()),
		`SET LOCAL statement_timeout = 0`, `SET LOCAL idle_in_transaction_session_timeout = 0`,
		fmt.Sprintf(`SELECT pg_advisory_xact_lock(%d)`, migrationLock),
	} {
		if _, err := lock.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	before, err := versions(ctx, db, files)
	if err != nil || before.Current >= before.Newest {
		return err
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, files, goose.WithLogger(goose.NopLogger()), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return err
	}
	results, err := upAll(ctx, provider, db, version)
	level := slog.LevelInfo
	if before.Current == 0 && err == nil { // a new database: the single steps do not matter
		level = slog.LevelDebug
		log.Info("created the database", "schema", before.Newest)
	}
	for _, r := range results {
		log.Log(ctx, level, "migrated the database", "migration", r.Source.Path, "took", r.Duration)
	}
	return err
}

// upAll migrates to the newest schema. While it does not get the lock of a table in time, or ends a deadlock, it
// tries again: the steps that are done stay done.
func upAll(ctx context.Context, provider *goose.Provider, db *sql.DB, version string) (results []*goose.MigrationResult, err error) {
	for range tableAttempts {
		var some []*goose.MigrationResult
		some, err = provider.Up(ctx)
		results = append(results, some...)
		if state := stateOf(err); state != lockNotAvailable && state != deadlock || ctx.Err() != nil {
			break
		}
	}
	if err == nil && version != "" {
		_, err = db.ExecContext(ctx, `UPDATE schema_support SET version = $1`, version)
	}
	return results, err
}
