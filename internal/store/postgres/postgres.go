package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/store/rows"
	"github.com/keygate/keygate/internal/store/state"
)

// The numbers of connections of one node, by what they are used for. Searches have their own,
// so that they delay nothing else, and so has the data plane.
const (
	writers    = 4
	readers    = 4
	searchers  = 4
	followers  = 3
	logReaders = 1
	// mutators is how many mutations use writers at once: one reads while another one commits. urgentMutators is how
	// many more there may be of mutations that take rights away.
	mutators       = 2
	urgentMutators = 1
)

// Config configures a store. URL is required.
type Config struct {
	URL string // postgres://user:password@host:port/database?parameters
	Log *slog.Logger
	// Now returns the time of entries in the change log. Nil means time.Now.
	Now func() time.Time
	// Counted is called after each write transaction that was committed. It is for tests, because counting takes
	// additional statements. Nil counts nothing.
	Counted func(state.Counted)
	// Random is the source of the marks of changes. Nil means crypto/rand.
	Random io.Reader
	// KeepSchema leaves the schema as it is: an older one is an error.
	KeepSchema bool
	// LeaseTTL is how long the lease of this node lasts. A mutation holds the head of the change log for a quarter of it at most.
	// 0 means 10s.
	LeaseTTL time.Duration
	// Version is the version of this binary. The error of a binary that is too old for the schema names it.
	// "" is unknown.
	Version string
}

// DB is an open store. It is safe for concurrent use.
type DB struct {
	*rows.Store
	log       *slog.Logger
	now       func() int64 // microseconds since 1970
	random    io.Reader    // for marks
	counted   func(state.Counted)
	headTime  time.Duration // how long a mutation holds the head at most
	gate      gate          // of mutations
	writer    *pool
	readers   *pool // for View
	searchers *pool // for Search and reports
	source    *pool // for snapshot.GatewaySource and ratelimit.DailyStore
	changes   *pool // for the change log, and the keys and accounts that it names
	pages     *rows.PageCodec
	days      requestDays
	wires     wires
}

// Open connects to the database of cfg.URL and migrates its schema to the current version. The
// error is fault.Unavailable if the database cannot be reached, refuses the user, is not
// Keygate's, or has a schema of a newer version than this binary. No error has the password.
func Open(ctx context.Context, cfg Config) (*DB, error) {
	db, err := open(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open the PostgreSQL database: %w", translate("open", err))
	}
	return db, nil
}

func open(ctx context.Context, cfg Config) (_ *DB, err error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Random == nil {
		cfg.Random = rand.Reader
	}
	if cfg.LeaseTTL == 0 {
		cfg.LeaseTTL = 10 * time.Second
	}
	settings, err := parseURL(cfg.URL)
	if err != nil {
		return nil, err
	}
	codec, err := audit.NewCodec()
	if err != nil {
		return nil, err
	}
	pages, err := rows.NewPageCodec()
	if err != nil {
		return nil, err
	}
	shared := &means{codec: codec, pages: pages}
	if err := prepareSchema(ctx, settings.ConnConfig, &cfg); err != nil {
		return nil, err
	}
	db := &DB{log: cfg.Log, pages: pages, random: cfg.Random, counted: cfg.Counted, headTime: cfg.LeaseTTL / 4, gate: newGate(), now: func() int64 { return cfg.Now().UnixMicro() }}
	db.Store = rows.NewStore(db.engine())
	var opened []*pool
	defer func() {
		if err != nil {
			for _, p := range opened {
				p.close()
			}
		}
	}()
	for _, p := range []struct {
		to   **pool
		size int32
	}{{&db.writer, writers}, {&db.readers, readers}, {&db.searchers, searchers}, {&db.source, followers}, {&db.changes, logReaders}} {
		if *p.to, err = newPool(ctx, settings, p.size, shared, &db.wires); err != nil {
			return nil, err
		}
		opened = append(opened, *p.to)
	}
	return db, nil
}

// Close implements store.Engine.
func (db *DB) Close() error {
	for _, p := range []*pool{db.searchers, db.changes, db.source, db.readers, db.writer} {
		p.close()
	}
	return nil
}

// Stats implements store.Engine.
func (db *DB) Stats() state.Stats {
	return state.Stats{Writes: db.writer.use.read(), Reads: db.readers.use.read(), Search: db.searchers.use.read(),
		Follow: db.source.use.read(), Failures: db.Failures()}
}

// parseURL returns the settings of connections. The error does not repeat the URL, which has a
// password. A pool with the settings reads the certificates that the URL names at each connect, so that they can be
// replaced while the server runs.
func parseURL(url string) (*pgxpool.Config, error) {
	if url == "" {
		return nil, errors.New("store/postgres: Config.URL is required")
	}
	settings, err := pgxpool.ParseConfig(url)
	var file *fs.PathError
	switch {
	case errors.As(err, &file):
		return nil, fmt.Errorf("a file that the database URL names cannot be read: %w", file)
	case err != nil:
		return nil, errors.New("the database URL is not valid: it must have the form postgres://user:password@host:port/database, and files that it names must have PEM certificates and keys")
	}
	settings.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		now, err := parseURL(url)
		if err != nil {
			return &fault.Error{Code: fault.Unavailable, Message: awayMessage, Err: err}
		}
		c.TLSConfig, c.Fallbacks = now.ConnConfig.TLSConfig, now.ConnConfig.Fallbacks
		return nil
	}
	return settings, nil
}
