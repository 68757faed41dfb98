package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	driver "modernc.org/sqlite"

	"github.com/keygate/keygate/internal/audit"
)

// DefaultBusyTimeout is the time for which a write waits for other processes.
const DefaultBusyTimeout = 5 * time.Second

// The numbers of connections that read at the same time; others wait. A
// page's read is far below a millisecond, a search may take most of a second.
// The data plane has its own, so that no search delays a revocation: one while
// another is busy with EachKey.
const (
	readers   = 4
	followers = 2
)

// Config is how a store is opened. Path is required.
type Config struct {
	Path string // of the database file; its directory must exist
	Log  *slog.Logger
	// BusyTimeout is the time for which a write waits for another process that
	// writes; 0 is DefaultBusyTimeout.
	BusyTimeout time.Duration
	// Now stamps the entries of the change log; nil is time.Now.
	Now func() time.Time
}

// DB is an open store. It is safe for concurrent use.
type DB struct {
	log     *slog.Logger
	now     func() int64 // microseconds since 1970
	writer  *pool        // of one connection
	readers *pool        // of View
	source  *pool        // of snapshot.Source and ratelimit.DailyStore
	behind  *checkpointer
	dbs     []*sql.DB

	path     string
	failures atomic.Int64 // of transactions that write, because of the store
}

// Open opens the store in the file cfg.Path, makes the file if there is none,
// and brings its schema up to date. A file that is locked, read-only, full,
// damaged, no Keygate database or newer than this binary is
// fault.Unavailable, and is left as it is.
func Open(ctx context.Context, cfg Config) (*DB, error) {
	db, err := open(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open database %s: %w", cfg.Path, translate("open", err))
	}
	return db, nil
}

func open(ctx context.Context, cfg Config) (_ *DB, err error) {
	if cfg.Path == "" {
		return nil, errors.New("no path given")
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
	if err := prepareFile(cfg.Path); err != nil {
		return nil, unusableFile(err)
	}
	codec, err := audit.NewCodec()
	if err != nil {
		return nil, err
	}
	db := &DB{log: cfg.Log, path: cfg.Path, now: func() int64 { return cfg.Now().UnixMicro() }}
	writer, err := db.connect(cfg, true, 1)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, db.closeAll())
		}
	}()
	if err := migrate(ctx, writer, cfg.Log); err != nil {
		return nil, err
	}
	db.writer = newPool(writer, 1, codec)
	behind, err := db.connect(cfg, true, 1)
	if err != nil {
		return nil, err
	}
	reader, err := db.connect(cfg, false, readers+followers)
	if err != nil {
		return nil, err
	}
	db.readers, db.source = newPool(reader, readers, codec), newPool(reader, followers, codec)
	db.behind = newCheckpointer(db, behind)
	return db, nil
}

// connect returns an opener of at most n connections.
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

// Close waits for the transactions that run, writes the log back into the
// database file and closes it. Later calls of the store are fault.Unavailable.
// It must be called once.
func (db *DB) Close() error {
	db.behind.close()
	readErr := errors.Join(db.readers.drain(nil), db.source.drain(nil))
	writeErr := db.writer.drain(func(c *conn) {
		if _, err := c.exec("PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
			// The log stays beside the file, and the next Open reads it.
			db.log.Warn("the write-ahead log was not written back", "error", err)
		}
	})
	return errors.Join(readErr, writeErr, db.closeAll())
}
