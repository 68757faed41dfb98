package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/config"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/keygatetest/cabletest"
	"github.com/keygate/keygate/internal/keygatetest/porttest"
	"github.com/keygate/keygate/internal/keygatetest/postgrestest"
	"github.com/keygate/keygate/internal/server"
)

// secretKey writes a file with a secret key.
func secretKey(t *testing.T, fill byte) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "secret.key")
	if err := os.WriteFile(path, bytes.Repeat([]byte{fill}, 32), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// startNode starts a server on a database.
func startNode(t *testing.T, url string) *serving {
	t.Helper()
	return startServing(t, "--database-url", url, "--secret-key-file", secretKey(t, 1))
}

// startError returns the error of a server that must not start.
func startError(t *testing.T, more ...string) string {
	t.Helper()
	return startErrorWith(t, settings(t, t.TempDir(), more...))
}

func startErrorWith(t *testing.T, c *config.Config) string {
	t.Helper()
	s, err := server.Start(t.Context(), server.Config{Settings: c})
	if err == nil {
		_ = s.Stop(context.Background())
		t.Fatal("the server has started, want an error")
	}
	return err.Error()
}

// waitingStart starts a server that waits for its database until it is stopped, and returns its log and its error.
func waitingStart(t *testing.T, c *config.Config) string {
	t.Helper()
	var log lockedBuffer
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		s, err := server.Start(ctx, server.Config{Settings: c, Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err == nil {
			err = errors.Join(errors.New("the server has started"), s.Stop(context.Background()))
		}
		ended <- err
	}()
	awaittest.True(t, "the server waits for its database", func() bool { return strings.Contains(log.String(), "waiting for the database") })
	cancel()
	return log.String() + (<-ended).Error()
}

// Guarantee: a server that starts while its database is away waits for it: /livez is 200, /readyz is 503 and says why, and
// when the database is back the server is ready. A signal ends it meanwhile.
func TestStartWaitsForTheDatabase(t *testing.T) {
	cable, url := cabletest.ForURL(t, postgrestest.Empty(t))
	cable.Refuse()
	c := settings(t, t.TempDir(), "--database-url", url, "--secret-key-file", secretKey(t, 1))
	c.OpsAddr = porttest.Reserve(t)
	type result struct {
		s   *server.Server
		err error
	}
	started := make(chan result, 1)
	go func() {
		s, err := server.Start(t.Context(), server.Config{Settings: c})
		started <- result{s, err}
	}()
	page := func(path string) string {
		resp, err := http.Get("http://" + c.OpsAddr + path)
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		return fmt.Sprint(resp.StatusCode, " ", string(body), err)
	}
	awaittest.True(t, "/readyz says what the server waits for", func() bool {
		return strings.HasPrefix(page("/readyz"), "503 starting: waiting for the database: the database cannot be reached")
	})
	if got := page("/livez"); !strings.HasPrefix(got, "200") {
		t.Errorf("/livez: got %s, want 200", got)
	}
	cable.Mend()
	var r result
	awaittest.True(t, "the server has started", func() bool {
		select {
		case r = <-started:
			return true
		default:
			return false
		}
	})
	if r.err != nil {
		t.Fatal(r.err)
	}
	if got := page("/readyz"); !strings.HasPrefix(got, "200") {
		t.Errorf("/readyz: got %s, want 200", got)
	}
	if err := r.s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// Guarantee: with a database URL everything is kept in PostgreSQL: after a restart on another data
// directory, the keys work and the records are there. A data directory keeps only the lock, the
// admin key, and files that are being read from repositories.
func TestPostgresKeepsEverything(t *testing.T) {
	url := postgrestest.Empty(t)
	f := startNode(t, url)
	f.request(t)
	f.Stop()
	var names []string
	for _, e := range must(os.ReadDir(f.DataDir)) {
		names = append(names, e.Name())
	}
	if want := []string{"admin.key", "keygate.lock", "repositories"}; !slices.Equal(names, want) {
		t.Errorf("the data directory has %v, want %v", names, want)
	}
	f.DataDir = filepath.Join(t.TempDir(), "other")
	f.Restart()
	f.request(t)
	if got := f.counted(t); got != 2 {
		t.Errorf("the report has %d requests, want both", got)
	}
	if got := f.Call("GET", "/v1/audit-log", f.AdminKey, ""); !strings.Contains(got.Body, "key.create") {
		t.Errorf("the audit log is %s, want the creation of the key", got.Body)
	}
	if _, err := f.Admin.RevokeKey(t.Context(), f.keyID); err != nil {
		t.Fatal(err)
	}
	if got := f.Through("", "GET", "/orders", f.key, ""); got.Status != http.StatusUnauthorized {
		t.Errorf("a revoked key got %d, want 401", got.Status)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Guarantee: of several servers that start at once on an empty database, exactly one creates the first
// key, and all of them serve with it.
func TestNodesStartAtOnce(t *testing.T) {
	const nodes = 3
	url, key := postgrestest.Empty(t), secretKey(t, 1)
	var wg sync.WaitGroup
	var dirs [nodes]string
	var servers [nodes]*server.Server
	for i := range nodes {
		dirs[i] = t.TempDir()
		c := settings(t, dirs[i], "--database-url", url, "--secret-key-file", key, "--node-name", filepath.Base(dirs[i]))
		wg.Go(func() {
			var err error
			if servers[i], err = server.Start(context.WithoutCancel(t.Context()), server.Config{Settings: c}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	var keys []string
	for i, s := range servers {
		if s == nil {
			continue
		}
		t.Cleanup(func() {
			if err := s.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		})
		if content, err := os.ReadFile(filepath.Join(dirs[i], "admin.key")); err == nil {
			keys = append(keys, strings.TrimSpace(string(content)))
		}
	}
	if len(keys) != 1 {
		t.Fatalf("%d servers have created an admin key, want 1", len(keys))
	}
	for _, s := range servers {
		if s == nil {
			continue
		}
		api := must(client.New(client.Config{URL: "http://" + s.AdminAddr(), Key: keys[0], Retries: -1}))
		awaittest.True(t, "every server knows the key", func() bool {
			_, err := api.Account(t.Context())
			return err == nil
		})
	}
}

// Guarantee: a secret key is never generated for a database, and a start with another key than the
// first one is refused.
func TestSecretKeyOfADatabase(t *testing.T) {
	url := postgrestest.Empty(t)
	if got := startError(t, "--database-url", url); !strings.Contains(got, "head -c 32 /dev/urandom") || !strings.Contains(got, "KEYGATE_SECRET_KEY") {
		t.Errorf("without a key: got the error %q, want it to say how to make one", got)
	}
	startNode(t, url).Stop()
	if got := startError(t, "--database-url", url, "--secret-key-file", secretKey(t, 2)); !strings.Contains(got, "is not the one that the database was created with") {
		t.Errorf("with another key: got the error %q", got)
	}
}

// Guarantee: a start does not change a schema that is newer than this version knows, and with
// --migrate=off it changes no schema; migrate up makes the schema current.
func TestSchemaOfADatabase(t *testing.T) {
	url := postgrestest.Empty(t)
	flags := []string{"--database-url", url, "--secret-key-file", secretKey(t, 1)}
	if got := startError(t, append(flags, "--migrate", "off")...); !strings.Contains(got, "keygate migrate up") {
		t.Errorf("with --migrate=off: got the error %q", got)
	}
	c := settings(t, t.TempDir(), flags...)
	if current, newest, err := server.SchemaVersion(t.Context(), c); current != 0 || newest < 1 || err != nil {
		t.Errorf("before: got schema %d of %d, error %v; want 0", current, newest, err)
	}
	if err := server.MigrateDatabase(t.Context(), c, "9.8.7", slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	current, newest, err := server.SchemaVersion(t.Context(), c)
	if err != nil || current != newest {
		t.Errorf("after: got schema %d of %d, error %v", current, newest, err)
	}
	db := must(pgx.Connect(t.Context(), url))
	defer db.Close(t.Context())
	if _, err := db.Exec(t.Context(), `INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, true)`); err != nil {
		t.Fatal(err)
	}
	if _, _, err := server.SchemaVersion(t.Context(), c); err != nil {
		t.Errorf("with a newer schema that supports this version: %v", err)
	}
	if _, err := db.Exec(t.Context(), `UPDATE schema_support SET oldest = 99999`); err != nil {
		t.Fatal(err)
	}
	if got := startError(t, flags...); !strings.Contains(got, "newer version of Keygate") || !strings.Contains(got, "run 9.8.7") {
		t.Errorf("with a schema that does not support this version: got the error %q", got)
	}
	foreign := postgrestest.Empty(t)
	other := must(pgx.Connect(t.Context(), foreign))
	defer other.Close(t.Context())
	if _, err := other.Exec(t.Context(), `CREATE TABLE shopping (list text)`); err != nil {
		t.Fatal(err)
	}
	if got := startError(t, "--database-url", foreign, "--secret-key-file", secretKey(t, 1)); !strings.Contains(got, "tables of something else") {
		t.Errorf("with other tables: got the error %q", got)
	}
}

// Guarantee: while the database is away, requests are served, /readyz is 200 and says degraded, and
// calls that need it are 503, not 500. Everything goes on when the database is back, and the requests
// in between are counted.
func TestDatabaseAway(t *testing.T) {
	db := postgrestest.Start(t, postgrestest.Config{Durable: true})
	f := startNode(t, db.Database(t, ""))
	f.request(t)
	for _, end := range []func(testing.TB){db.Stop, db.Crash} {
		end(t)
		f.request(t)
		awaittest.True(t, "/readyz says degraded", func() bool {
			// Something must use the database for it to be missed.
			got := f.Call("POST", "/v1/keys", f.AdminKey, `{"name":"k","scope":"read"}`)
			if got.Status != http.StatusServiceUnavailable {
				t.Errorf("a change got %d %s, want 503", got.Status, got.Body)
			}
			return strings.Contains(f.ops(t, "/readyz"), "degraded: store_unavailable")
		})
		if got := f.Call("GET", "/v1/gateways", f.AdminKey, ""); got.Status != http.StatusServiceUnavailable {
			t.Errorf("a list got %d %s, want 503", got.Status, got.Body)
		}
		db.Start(t)
		awaittest.True(t, "/readyz is ready alone", func() bool { return f.ops(t, "/readyz") == "ready\n" })
		if got := f.Call("POST", "/v1/keys", f.AdminKey, `{"name":"k","scope":"read"}`); got.Status != http.StatusCreated {
			t.Errorf("a change got %d %s, want 201", got.Status, got.Body)
		}
	}
	awaittest.True(t, "all requests are counted", func() bool { return f.counted(t) == 3 })
}

// Guarantee: the password of the database is in no log line, setting, metric or error.
func TestDatabasePasswordIsSecret(t *testing.T) {
	password := postgrestest.Shared(t).Password
	url := postgrestest.Empty(t)
	f := startNode(t, url)
	texts := map[string]string{"settings": f.Call("GET", "/v1/settings", f.AdminKey, "").Body, "metrics": f.ops(t, "/metrics")}
	if !strings.Contains(texts["settings"], "postgres://keygate@127.0.0.1:") {
		t.Errorf("the settings %s do not show the database", texts["settings"])
	}
	f.Stop()
	texts["log"] = f.log.String()
	key := secretKey(t, 1)
	for what, url := range map[string]string{
		"a server that does not run":       strings.Replace(url, "@127.0.0.1:", "@127.0.0.1:1", 1),
		"a host that does not exist":       "postgres://keygate:" + password + "@127.0.0.1:1/keygate",
		"another user":                     strings.Replace(url, "keygate:", "nobody:", 1),
		"another database":                 url[:strings.LastIndex(url, "/")] + "/missing",
		"a parameter that is not valid":    url + "&connect_timeout=" + password,
		"parameters that do not exist":     url + "&password=" + password + "&target_session_attrs=" + password,
		"an option that is not acceptable": url + "&statement_timeout=" + password,
	} {
		c := settings(t, t.TempDir(), "--secret-key-file", key)
		c.DatabaseURL = config.Secret(url)
		start := startErrorWith
		if what == "a host that does not exist" {
			start = waitingStart
		}
		texts[what] = start(t, c)
	}
	for what, text := range texts {
		if strings.Contains(text, password) {
			t.Errorf("%s: the text has the password: %s", what, text)
		}
	}
	if got := texts["another user"]; !strings.Contains(got, "refuses the user or the password") {
		t.Errorf("another user: got the error %q", got)
	}
	if got := texts["another database"]; !strings.Contains(got, "does not exist") {
		t.Errorf("another database: got the error %q", got)
	}
	if got := texts["a host that does not exist"]; !strings.Contains(got, "cannot be reached") {
		t.Errorf("a server that does not run: got the error %q", got)
	}
}

// Guarantee: offline commands work on a database: they create accounts and keys, which a running server
// knows, and verify and export the audit log.
func TestOfflineCommandsOnADatabase(t *testing.T) {
	url := postgrestest.Empty(t)
	f := startNode(t, url)
	c := settings(t, t.TempDir(), "--database-url", url, "--secret-key-file", secretKey(t, 1))
	log := slog.New(slog.DiscardHandler)
	a, err := server.CreateAccount(t.Context(), c, log, "acme", "starter", nil)
	if err != nil {
		t.Fatal(err)
	}
	k, err := server.CreateAccountKey(t.Context(), c, log, "default", "recovered")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{a.Key, k.Key} {
		awaittest.True(t, "the server knows the key", func() bool { return f.Call("GET", "/v1/account", key, "").Status == http.StatusOK })
	}
	if _, err := server.VerifyAudit(t.Context(), c, log, "default", nil); err != nil {
		t.Error(err)
	}
	if err := server.ExportAudit(t.Context(), c, log, "default", io.Discard); err != nil {
		t.Error(err)
	}
}
