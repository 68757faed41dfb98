package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	driver "modernc.org/sqlite"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/store/rows"
	"github.com/keygate/keygate/internal/store/state"
)

// DefaultBusyTimeout is how long a write waits for other processes by default.
const DefaultBusyTimeout = 5 * time.Second

// The numbers of connections that read at the same time. Reading a page takes far less than a
// millisecond, a search or a report up to a second, so searches and reports have connections of
// their own. The data plane has its own too, so that nothing delays a revocation: four, because
// EachKey and large route tables keep some busy.
const (
	readers   = 4
	searchers = 4
	followers = 4
)

// Config configures a store. Path is required.
type Config struct {
	Path string // of the database file; its directory must exist
	Log  *slog.Logger
	// BusyTimeout is how long a write waits for another process that writes. 0 means
	// DefaultBusyTimeout.
	BusyTimeout time.Duration
	// BackupBeforeMigrate says to copy an existing database, before its schema is migrated, to the
	// file whose name is Path, ".before-" and the version of its schema. Copies of other versions
	// are removed then. Without space for the copy, Open fails.
	BackupBeforeMigrate bool
	// Version is the version of this binary, which a database keeps so that older binaries can name
	// it. "" if unknown.
	Version string
	// BeforeWrite is called at the beginning of each write transaction, when no other process can write. If
	// it returns an error, the transaction ends and has changed nothing. Nil means that every transaction
	// goes on.
	BeforeWrite func() error
	// Now returns the time of entries in the change log. Nil means time.Now.
	Now func() time.Time
	// Counted is called after each write transaction that was committed. It is for tests, because counting takes
	// additional statements. Nil counts nothing.
	Counted func(state.Counted)

	migrations fs.FS // nil means this binary's; tests add made-up ones
}

// DB is an open store. It is safe for concurrent use.
type DB struct {
	*rows.Store
	log          *slog.Logger
	now          func() int64 // microseconds since 1970
	writer       *pool        // of one connection
	readers      *pool        // for View
	searchers    *pool        // for Search and reports
	source       *pool        // for snapshot.Source and ratelimit.DailyStore
	checkpointer *checkpointer
	dbs          []*sql.DB
	beforeWrite  func() error // Config.BeforeWrite
	counted      func(state.Counted)

	pages *rows.PageCodec
	path  string
}

// Open opens the store in the file cfg.Path, creates the file if it does not exist, and
// migrates its schema to the current version. If the file is locked, read-only, damaged,
// not a Keygate database, of a newer version than this binary, or on a full disk, the error
// is fault.Unavailable and the file is not changed.
func Open(ctx context.Context, cfg Config) (*DB, error) {
	db, err := open(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open database %s: %w", cfg.Path, translate("open", err))
	}
	return db, nil
}

func open(ctx context.Context, cfg Config) (_ *DB, err error) {
	if cfg.Path == "" {
		return nil, errors.New("store/sqlite: Config.Path is required")
	}
	if cfg.BusyTimeout == 0 {
		cfg.BusyTimeout = DefaultBusyTimeout
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.migrations == nil {
		if cfg.migrations, err = migrations(); err != nil {
			return nil, err
		}
	}
	if err := prepareFile(cfg.Path); err != nil {
		return nil, unusableFile(err)
	}
	codec, err := audit.NewCodec()
	if err != nil {
		return nil, err
	}
	pages, err := rows.NewPageCodec()
	if err != nil {
		return nil, err
	}
	db := &DB{log: cfg.Log, pages: pages, path: cfg.Path, beforeWrite: cfg.BeforeWrite, counted: cfg.Counted, now: func() int64 { return cfg.Now().UnixMicro() }}
	db.Store = rows.NewStore(db.engine())
	writer, err := db.connect(cfg, true, 1)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, db.closeAll())
		}
	}()
	if err := migrate(ctx, writer, cfg); err != nil {
		return nil, err
	}
	db.writer = newPool(writer, 1, codec, pages)
	checkpoints, err := db.connect(cfg, true, 1)
	if err != nil {
		return nil, err
	}
	reader, err := db.connect(cfg, false, readers+searchers+followers)
	if err != nil {
		return nil, err
	}
	db.readers, db.searchers, db.source = newPool(reader, readers, codec, pages), newPool(reader, searchers, codec, pages), newPool(reader, followers, codec, pages)
	db.checkpointer = newCheckpointer(db, checkpoints)
	return db, nil
}

// connect returns a database/sql handle with at most n connections.
func (db *DB) connect(cfg Config, writer bool, n int) (*sql.DB, error) {
	name, err := dataSource(cfg.Path, cfg.BusyTimeout, writer)
	if err != nil {
		return nil, err
	}
	connector, err := driver.NewConnector(name)
	if err != nil {
		return nil, err
	}
	d := sql.OpenDB(connector)
	d.SetMaxOpenConns(n)
	d.SetMaxIdleConns(n)
	db.dbs = append(db.dbs, d)
	return d, nil
}

func (db *DB) closeAll() error {
	var errs []error
	for _, d := range db.dbs {
		errs = append(errs, d.Close())
	}
	return errors.Join(errs...)
}

// Close waits for running transactions, writes the write-ahead log back into the database
// file, and closes it. Later calls of the store return fault.Unavailable. Close must be
// called once.
func (db *DB) Close() error {
	db.checkpointer.close()
	readErr := errors.Join(db.readers.drain(nil), db.searchers.drain(nil), db.source.drain(nil))
	writeErr := db.writer.drain(func(c *conn) {
		if _, err := c.exec("PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
			// The log stays beside the file; the next Open reads it.
			db.log.Warn("cannot write back the write-ahead log", "error", err)
		}
	})
	return errors.Join(readErr, writeErr, db.closeAll())
}
