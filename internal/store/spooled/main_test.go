package spooled_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/keygatetest/postgrestest"
	"github.com/keygate/keygate/internal/requestlog"
	"github.com/keygate/keygate/internal/store"
	"github.com/keygate/keygate/internal/store/postgres"
	"github.com/keygate/keygate/internal/store/spooled"
	"github.com/keygate/keygate/internal/traffic"
)

func TestMain(m *testing.M) { os.Exit(postgrestest.Main(m)) }

// state is how the connection to a database is.
type state int

const (
	well state = iota
	away       // nothing arrives
	deaf       // writes arrive, but their responses are lost
)

// unreliable is an engine whose connection fails when a test says so.
type unreliable struct {
	store.Engine
	mu    sync.Mutex
	state state
	calls int // that did not find the engine well
}

func (u *unreliable) set(s state) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.state = s
}

// call makes a call of the engine.
func (u *unreliable) call(f func() error) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.state != well {
		u.calls++
	}
	if u.state != away {
		if err := f(); err != nil {
			return err
		}
	}
	if u.state != well {
		return fault.New(fault.Unavailable, "the database cannot be reached; try again")
	}
	return nil
}

func (u *unreliable) AppendAuditChunks(ctx context.Context, b accesslog.BatchID, c []audit.Chunk, r []*audit.Record) error {
	return u.call(func() error { return u.Engine.AppendAuditChunks(ctx, b, c, r) })
}

func (u *unreliable) AppendTraffic(ctx context.Context, b accesslog.BatchID, c []traffic.Chunk) error {
	return u.call(func() error { return u.Engine.AppendTraffic(ctx, b, c) })
}

func (u *unreliable) AppendRequests(ctx context.Context, b accesslog.BatchID, r []requestlog.Record, l []requestlog.LeftOut) error {
	return u.call(func() error { return u.Engine.AppendRequests(ctx, b, r, l) })
}

func (u *unreliable) AppendEvents(ctx context.Context, e []event.Event) error {
	return u.call(func() error { return u.Engine.AppendEvents(ctx, e) })
}

// harness is a node's Store in a PostgreSQL database with one account.
type harness struct {
	testing.TB
	*spooled.Store
	db      *unreliable
	cfg     spooled.Config
	account string
	log     *countingHandler
	lost    [4]int // by kind
}

func newHarness(t testing.TB, maxBytes int64) *harness {
	t.Helper()
	url := postgrestest.Migrated(t, func(ctx context.Context, url string) error {
		return postgres.Migrate(ctx, url, "test", slog.New(slog.DiscardHandler))
	})
	db, err := postgres.Open(t.Context(), postgres.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	h := &harness{TB: t, db: &unreliable{Engine: db}, account: id.New(id.Account), log: &countingHandler{lines: map[string]int{}}}
	h.must(db.Update(t.Context(), func(tx control.Tx) error {
		return tx.InsertAccount(t.Context(), &account.Account{ID: h.account, Name: "a", Tier: account.Scale, State: account.Active, CreatedAt: time.Now(), Version: 1})
	}))
	h.cfg = spooled.Config{
		Store: h.db, Dir: filepath.Join(t.TempDir(), "spool"), Installation: "one", MaxBytes: maxBytes, Log: slog.New(h.log),
		Lost: func(k spooled.Kind, records int, _ time.Time) { h.lost[k] += records },
	}
	h.kill()
	return h
}

// kill opens the Store of a process that starts after the previous process was killed.
func (h *harness) kill() {
	h.Helper()
	s, err := spooled.New(h.cfg)
	h.must(err)
	h.Store = s
}

func (h *harness) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

// countingHandler counts log lines by their message.
type countingHandler struct {
	mu    sync.Mutex
	lines map[string]int
}

func (*countingHandler) Enabled(context.Context, slog.Level) bool { return true }
func (c *countingHandler) WithAttrs([]slog.Attr) slog.Handler     { return c }
func (c *countingHandler) WithGroup(string) slog.Handler          { return c }
func (c *countingHandler) Handle(_ context.Context, r slog.Record) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines[r.Message]++
	return nil
}

func (c *countingHandler) count(message string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lines[message]
}
