package server_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/keygate/keygate/client"
	auditwriter "github.com/keygate/keygate/internal/audit/writer"
	"github.com/keygate/keygate/internal/config"
	"github.com/keygate/keygate/internal/keygatetest"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/keygatetest/postgrestest"
	"github.com/keygate/keygate/internal/server"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/store/sqlite"
)

// rich creates a server whose store has records of every kind, and returns it stopped, with a revoked key.
func rich(t *testing.T) (f *serving, revoked string) {
	t.Helper()
	f = startServing(t, "--webhook-allow-network", "127.0.0.0/8")
	api := f.Admin
	me := must(api.Account(t.Context()))
	r := newReceiver(t)
	r.answer()
	r.hook(t, api, 20)
	g := must(api.CreateGateway(t.Context(), client.CreateGatewayRequest{Name: "pets", UpstreamURL: "http://127.0.0.1:1"}))
	for i := range 3 {
		spec := fmt.Sprintf(`{"openapi":"3.0.3","info":{"title":"p","version":"%d"},"paths":{"/pets/%d":{"get":{"responses":{"200":{"description":"é"}}}}}}`, i, i)
		must(api.PushSpec(t.Context(), g.GatewayID, []byte(spec), false))
	}
	k := must(api.CreateKey(t.Context(), client.CreateKeyRequest{Name: "revoked", Scope: "read:orders"}))
	must(api.RevokeKey(t.Context(), k.KeyID))
	for range 5 {
		f.request(t)
		f.Through("", "GET", "/orders%00%ff", k.Secret, "")
	}
	other := must(api.CreateAccount(t.Context(), client.CreateAccountRequest{Name: "acme", Plan: "starter"}))
	must(f.Client(other.Secret).CreateKey(t.Context(), client.CreateKeyRequest{Name: "k", Scope: "read"}))
	if got := f.Call("POST", "/v1/keys", f.AdminKey, `{"name":"once","scope":"read"}`, "Idempotency-Key", "one"); got.Status != http.StatusCreated {
		t.Fatalf("creating a key got %d %s", got.Status, got.Body)
	}
	awaittest.True(t, "everything is delivered", func() bool { return delivered(t, f.Admin) == 22 })
	f.Stop()
	db := must(sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(f.DataDir, "keygate.db")}))
	defer db.Close()
	w := must(auditwriter.New(auditwriter.Config{Store: db, Keeper: db, OperatorID: me.AccountID}))
	if err := w.Seal(t.Context()); err != nil {
		t.Fatal(err)
	}
	return f, k.Secret
}

var lastUsed = regexp.MustCompile(`"last_used_at":[^,]*,`)

// answers returns what the management API shows of a store.
func answers(t *testing.T, f *keygatetest.Server, key string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, path := range []string{
		"/v1/account", "/v1/accounts", "/v1/gateways", "/v1/keys?limit=100", "/v1/webhooks", "/v1/events?limit=100",
		"/v1/webhook-deliveries?limit=100", "/v1/requests?limit=100", "/v1/reports/traffic?interval=1d", "/v1/audit-log?kind=management&limit=100",
	} {
		got := f.Call("GET", path, key, "")
		if got.Status != http.StatusOK {
			t.Fatalf("%s: got %d %s", path, got.Status, got.Body)
		}
		all[path] = lastUsed.ReplaceAllString(got.Body, "") // by the calls that read it
	}
	for g, err := range f.Client(key).Gateways(t.Context(), client.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		for _, what := range []string{"routes", "revisions"} {
			path := "/v1/gateways/" + g.GatewayID + "/" + what
			all[path] = f.Call("GET", path, key, "").Body
		}
	}
	return all
}

// copySettings returns the settings of a copy of the store of f.
func copySettings(t *testing.T, f *serving, url string) *config.Config {
	t.Helper()
	return settings(t, f.DataDir, "--database-url", url)
}

var quiet = slog.New(slog.DiscardHandler)

func noProgress(string, int64, int64) {}

// addTables adds tables to the stopped store of f.
func addTables(t *testing.T, f *serving, statements ...string) {
	t.Helper()
	db := must(sql.Open("sqlite", filepath.Join(f.DataDir, "keygate.db")))
	defer db.Close()
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
}

// Guarantee: a copied store shows the same on PostgreSQL as before; keys that were revoked stay revoked and others
// work; the audit chain is intact; and new records follow the old ones. The old data directory is refused. Tables
// that Litestream has added to the store change nothing.
func TestCopyStore(t *testing.T) {
	f, revoked := rich(t)
	f.Restart()
	before := answers(t, f.Server, f.AdminKey)
	f.Stop()
	addTables(t, f, `CREATE TABLE _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER)`, `CREATE TABLE _litestream_lock (id INTEGER)`,
		`INSERT INTO _litestream_seq (id, seq) VALUES (1, 7)`)
	url := postgrestest.Empty(t)
	done, err := server.CopyStore(t.Context(), copySettings(t, f, url), "test", quiet, noProgress)
	if err != nil {
		t.Fatal(err)
	}
	if done.Rows < 100 || done.Chains == 0 || strings.Contains(done.To, postgrestest.Shared(t).Password) {
		t.Errorf("got %+v, want many rows, a chain, and no password", done)
	}
	if got := startErrorWith(t, settings(t, f.DataDir)); !strings.Contains(got, "was moved to "+done.To) {
		t.Errorf("a start on the old directory: got the error %q, want where the store is", got)
	}
	db, format := must(pgx.Connect(t.Context(), url)), 0
	defer db.Close(t.Context())
	if err := db.QueryRow(t.Context(), `SELECT format FROM change_head`).Scan(&format); err != nil || format != snapshot.ChangeFormat {
		t.Errorf("nodes that read changes up to the format %d may use the copy, error %v; want %d, which what was copied may need", format, err, snapshot.ChangeFormat)
	}
	c := settings(t, t.TempDir(), "--database-url", url, "--secret-key-file", filepath.Join(f.DataDir, "secret.key"))
	report, err := server.VerifyAudit(t.Context(), c, quiet, "default", nil)
	if err != nil || report.Blocks == 0 {
		t.Errorf("verifying the audit log: %+v, %v", report, err)
	}
	moved := keygatetest.StartWith(t, keygatetest.Options{
		Args:     []string{"--database-url", url, "--secret-key-file", filepath.Join(f.DataDir, "secret.key"), "--webhook-allow-network", "127.0.0.0/8"},
		Settings: map[string]string{config.AdminKeyVariable: f.AdminKey},
	})
	after := answers(t, moved, f.AdminKey)
	for path, want := range before {
		if got := after[path]; got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", path, got, want)
		}
	}
	for key, want := range map[string]int{f.key: http.StatusOK, revoked: http.StatusUnauthorized} {
		if got := moved.Through("", "GET", "/orders", key, "").Status; got != want {
			t.Errorf("a request got %d, want %d", got, want)
		}
	}
	repeated := moved.Call("POST", "/v1/keys", f.AdminKey, `{"name":"once","scope":"read"}`, "Idempotency-Key", "one")
	if repeated.Status != http.StatusCreated || repeated.Header.Get("Idempotent-Replayed") == "" {
		t.Errorf("a repetition from before the move got %d %v, want the stored response", repeated.Status, repeated.Header)
	}
	made := must(moved.Admin.CreateKey(t.Context(), client.CreateKeyRequest{Name: "new", Scope: "read"}))
	if got := moved.Call("GET", "/v1/events?limit=1", f.AdminKey, "").Body; !strings.Contains(got, made.KeyID) {
		t.Errorf("the newest event is %s, want that of the new key", got)
	}
	awaittest.True(t, "the new event is delivered", func() bool { return delivered(t, moved.Admin) == 23 })
}

// empty returns whether a database has no installation.
func empty(t *testing.T, url string) bool {
	t.Helper()
	db := must(pgx.Connect(t.Context(), url))
	defer db.Close(t.Context())
	var n int
	if err := db.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM installation) + (SELECT count(*) FROM accounts)`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n == 0
}

// Guarantee: a copy that is interrupted, wherever it is, leaves the database empty and the data directory usable,
// and can be repeated.
func TestCopyStoreInterrupted(t *testing.T) {
	f, _ := rich(t)
	url := postgrestest.Empty(t)
	interrupted := errors.New("interrupted")
	for _, at := range []string{"accounts", "keys", "events", "audit_blocks", "retention"} {
		ctx, cancel := context.WithCancelCause(t.Context())
		_, err := server.CopyStore(ctx, copySettings(t, f, url), "test", quiet, func(table string, _, _ int64) {
			if table == at {
				cancel(interrupted)
			}
		})
		cancel(nil)
		if err == nil || !strings.Contains(err.Error(), "nothing was copied") {
			t.Errorf("interrupted at %s: got the error %v, want that nothing was copied", at, err)
		}
		if !empty(t, url) {
			t.Errorf("interrupted at %s: the database is not empty", at)
		}
	}
	s, err := server.Start(t.Context(), server.Config{Settings: settings(t, f.DataDir)})
	if err != nil {
		t.Fatalf("the old directory is refused after a copy that failed: %v", err)
	}
	if _, err := server.CopyStore(t.Context(), copySettings(t, f, url), "test", quiet, noProgress); err == nil || !strings.Contains(err.Error(), "uses the data directory") {
		t.Errorf("beside a server: got the error %v", err)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	done, err := server.CopyStore(t.Context(), copySettings(t, f, url), "test", quiet, noProgress)
	if err != nil {
		t.Fatal(err)
	}
	// The process was ended after COMMIT, and before it could mark the directory.
	file := filepath.Join(f.DataDir, "moved.json")
	text := strings.Replace(string(must(os.ReadFile(file))), `"complete":true`, `"complete":false`, 1)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := startErrorWith(t, settings(t, f.DataDir)); !strings.Contains(got, "repeat keygate store copy") {
		t.Errorf("a start in doubt: got the error %q", got)
	}
	again, err := server.CopyStore(t.Context(), copySettings(t, f, url), "test", quiet, noProgress)
	if err != nil || !again.Finished || again.To != done.To {
		t.Errorf("repeating got %+v, %v; want that the earlier copy is complete", again, err)
	}
	if got := startErrorWith(t, settings(t, f.DataDir)); !strings.Contains(got, "was moved to") {
		t.Errorf("a start afterwards: got the error %q", got)
	}
}

// Guarantee: a copy goes into an empty database only, and needs the secret key of the store.
func TestCopyStoreRefuses(t *testing.T) {
	f := startServing(t)
	f.Stop()
	used := postgrestest.Empty(t)
	startNode(t, used).Stop()
	for what, c := range map[string]*config.Config{
		"is not empty":   copySettings(t, f, used),
		"no store in":    settings(t, t.TempDir(), "--database-url", used),
		"secret key":     settings(t, f.DataDir, "--database-url", postgrestest.Empty(t), "--secret-key-file", filepath.Join(t.TempDir(), "missing")),
		"does not exist": copySettings(t, f, used[:strings.LastIndex(used, "/")]+"/missing"),
	} {
		_, err := server.CopyStore(t.Context(), c, "test", quiet, noProgress)
		if err == nil || !strings.Contains(err.Error(), what) || strings.Contains(err.Error(), postgrestest.Shared(t).Password) {
			t.Errorf("got the error %v, want one that says %q and has no password", err, what)
		}
	}
}

// Guarantee: a store with a table that Keygate does not know is not copied, and the error names the table.
func TestCopyStoreWithAnUnknownTable(t *testing.T) {
	f := startServing(t)
	f.Stop()
	addTables(t, f, `CREATE TABLE theirs (x)`)
	url := postgrestest.Empty(t)
	_, err := server.CopyStore(t.Context(), copySettings(t, f, url), "test", quiet, noProgress)
	if err == nil || !strings.Contains(err.Error(), "the table theirs is not one that can be copied: if another program made it, drop it") {
		t.Errorf("got the error %v, want one that names the table", err)
	}
	if !empty(t, url) {
		t.Error("the database is not empty")
	}
}

// Guarantee: an account that is created in the data directory during a copy is either refused or in the copy.
func TestChangesDuringACopyAreNotLost(t *testing.T) {
	f := startServing(t)
	f.Stop()
	url, created, begun := postgrestest.Empty(t), make(chan error, 1), false
	_, err := server.CopyStore(t.Context(), copySettings(t, f, url), "test", quiet, func(string, int64, int64) {
		if begun {
			return
		}
		begun = true
		c := settings(t, f.DataDir)
		go func() {
			_, err := server.CreateAccount(t.Context(), c, quiet, "late", "starter", nil)
			created <- err
		}()
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-created; err == nil || !strings.Contains(err.Error(), "copy of the store") && !strings.Contains(err.Error(), "was moved to") && !strings.Contains(err.Error(), "locked") {
		t.Errorf("creating an account during the copy: got the error %v, want why it was refused", err)
	}
	db := must(pgx.Connect(t.Context(), url))
	defer db.Close(t.Context())
	var accounts int
	if err := db.QueryRow(t.Context(), `SELECT count(*) FROM accounts`).Scan(&accounts); err != nil || accounts != 1 {
		t.Errorf("the copy has %d accounts, error %v; want 1", accounts, err)
	}
}
