// Package postgrestest runs PostgreSQL for tests: one server for a test process, with a database
// for each test, or a server of its own for a test that stops it.
//
//	func TestMain(m *testing.M) { os.Exit(postgrestest.Main(m)) }
//
// Where PostgreSQL is not installed, the tests that need it are skipped; if the environment
// variable CI is true, they fail.
package postgrestest

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// shared is the server of this process.
type sharedServer struct {
	mu     sync.Mutex
	server *Server
	main   bool // whether Main will stop it
	err    error

	template sync.Once
	failed   error // of making the template
}

//nolint:gochecknoglobals // one server for a test process is what this package is for
var shared sharedServer

// Main runs the tests of a package and stops the server that they share. It returns the status to
// exit with.
func Main(m *testing.M) int {
	shared.mu.Lock()
	shared.main = true
	shared.mu.Unlock()
	code := m.Run()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server != nil {
		if err := shared.server.end(); err != nil {
			fmt.Fprintln(os.Stderr, "stop PostgreSQL:", err)
			return 1
		}
	}
	return code
}

// Shared returns the server that the tests of the process share, which it starts if it does not run
// yet. Its data do not survive a power failure, for speed.
func Shared(t testing.TB) *Server {
	t.Helper()
	need(t)
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if !shared.main {
		t.Fatal("the package has no TestMain that calls postgrestest.Main")
	}
	if shared.server == nil && shared.err == nil {
		shared.server, shared.err = start(Config{})
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server
}

// Empty returns the URL of an empty database of the shared server, which is dropped when the test
// ends.
func Empty(t testing.TB) string {
	t.Helper()
	return Shared(t).Database(t, "")
}

const template = "keygate_template"

// Migrated returns the URL of a database of the shared server with the schema that migrate makes.
// migrate is called for the first test of the process only; the others get copies.
func Migrated(t testing.TB, migrate func(ctx context.Context, url string) error) string {
	t.Helper()
	s := Shared(t)
	shared.template.Do(func() {
		ctx := context.Background()
		if shared.failed = s.create(ctx, template, ""); shared.failed == nil {
			shared.failed = migrate(ctx, s.URL(template))
		}
	})
	if shared.failed != nil {
		t.Fatal("make the database that tests copy: ", shared.failed)
	}
	return s.Database(t, template)
}

// Database creates a database and returns its URL. It is a copy of the database from, or empty. It
// is dropped when the test ends.
func (s *Server) Database(t testing.TB, from string) string {
	t.Helper()
	name := "test_" + strings.ToLower(rand.Text())
	if err := s.create(t.Context(), name, from); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !s.running() {
			return
		}
		if err := s.Admin(context.Background(), fmt.Sprintf(`DROP DATABASE %s WITH (FORCE)`, name)); err != nil {
			t.Error(err)
		}
	})
	return s.URL(name)
}

// Create creates an empty database and returns its URL.
func (s *Server) Create(ctx context.Context, name string) (url string, err error) {
	return s.URL(name), s.create(ctx, name, "")
}

// create creates a database that belongs to the user keygate. Its collation does not compare bytes,
// so that a query that needs this must say so. A server that does not sync copies files, which takes a third
// less processor time than to log every page.
func (s *Server) create(ctx context.Context, name, from string) error {
	if from == "" {
		from = "template0"
		if s.version >= 15 {
			from += ` LOCALE_PROVIDER icu ICU_LOCALE 'en-US'`
		}
	}
	if s.version >= 15 && !s.cfg.Durable {
		from += ` STRATEGY file_copy`
	}
	return s.Admin(ctx, fmt.Sprintf(`CREATE DATABASE %s OWNER keygate TEMPLATE %s`, name, from))
}

// Admin runs statements as the superuser in the database postgres.
func (s *Server) Admin(ctx context.Context, statements ...string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	c, err := pgx.Connect(ctx, s.url("postgres", "postgres"))
	if err != nil {
		return fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer c.Close(ctx)
	for _, statement := range statements {
		if _, err := c.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// URL returns the URL of a database for the user keygate, who owns the databases of the tests and is
// no superuser.
func (s *Server) URL(database string) string { return s.url("keygate", database) }

func (s *Server) url(user, database string) string {
	return fmt.Sprintf("postgres://%s:%s@%s/%s?sslmode=disable", user, s.Password, s.Addr, database)
}
