package sqlite_test

import (
	"crypto/rand"
	"database/sql"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/keygatetest"
	"github.com/keygate/keygate/internal/secret"
	"github.com/keygate/keygate/internal/store/rows"
	"github.com/keygate/keygate/internal/store/sqlite"
)

// past is the records of a data directory with a schema of the past.
type past struct {
	t        *testing.T
	dir      string
	upstream *keygatetest.Upstream
	account  string
	admin    string   // the secret of an account-level key
	keys     []string // secrets of keys for the gateway: from the first schema, and from the last
	revoked  []string // and of keys that are revoked
	webhook  string
	event    string
}

// newPast creates a data directory whose database has the given schema, with rows that were inserted
// at the first schema and at this one.
func newPast(t *testing.T, schema int64) *past {
	t.Helper()
	p := &past{t: t, dir: t.TempDir(), upstream: keygatetest.NewUpstream(t), account: id.New(id.Account), webhook: id.New(id.Webhook), event: id.New(id.Event)}
	box, err := secret.LoadOrCreate(filepath.Join(p.dir, "secret.key"))
	if err != nil {
		t.Fatal(err)
	}
	sqlite.At(t, filepath.Join(p.dir, "keygate.db"), schema, func(db *sql.DB, n int64) {
		exec := func(statement string, args ...any) {
			t.Helper()
			if _, err := db.ExecContext(t.Context(), statement, args...); err != nil {
				t.Fatalf("schema %d: %v", n, err)
			}
		}
		if n == 1 {
			exec(`INSERT INTO accounts (id, name, plan, created_at) VALUES (?, 'default', 'platform', 1)`, p.account)
			pets := id.New(id.Gateway)
			exec(`INSERT INTO gateways (id, account_id, name, shares_name, upstream, hostname, host_given, global_sustained, global_burst, timeout, max_body_bytes, requests, revision, is_default, created_at, version)
				VALUES (?, ?, 'pets', 0, ?, 'pets.example', 1, '', '', '5s', 0, '{}', 0, 0, 1, 1)`, pets, p.account, `{"url":"`+p.upstream.URL+`"}`)
			codec, err := rows.NewPageCodec()
			if err != nil {
				t.Fatal(err)
			}
			page := codec.Pages([]gateway.Route{{ID: id.New(id.Route), Path: "/pets", Methods: []string{"GET"}, Auth: gateway.AuthKey, Source: gateway.API, CreatedAt: time.Unix(1, 0), Version: 1}})[0]
			exec(`INSERT INTO route_tables (id, gateway_id, revision_id, state, version, created_at) VALUES (1, ?, '', 1, 1, 1)`, pets)
			exec(`INSERT INTO route_pages (table_id, first, routes, content) VALUES (1, ?, 1, ?)`, page.First, page.Content)
			exec(`UPDATE gateways SET table_id = 1, route_count = 1`)
			p.admin = p.key(exec, apikey.AccountLevel, 3, 0)
			exec(`INSERT INTO events (id, account_id, type, created_at, payload) VALUES (?, ?, 'key.created', 4102444800000000, ?)`, p.event, p.account, []byte(`{"event_id":"`+p.event+`"}`))
		}
		if n == 1 || n == schema {
			p.keys = append(p.keys, p.key(exec, apikey.GatewayLevel, 1, 0))
			p.revoked = append(p.revoked, p.key(exec, apikey.GatewayLevel, 1, 2))
		}
		if n == 1 {
			sealed, err := box.Seal([]byte("whsec_a"))
			if err != nil {
				t.Fatal(err)
			}
			exec(`INSERT INTO webhooks (id, account_id, url, shares_url, events, active, disabled_reason, secret, secret_since, created_at, version)
				VALUES (?, ?, 'https://127.0.0.1:1/', 0, 'key.revoked', 1, '', ?, 1, 1, 1)`, p.webhook, p.account, sealed)
		}
	})
	if err := os.WriteFile(filepath.Join(p.dir, "admin.key"), []byte(p.admin+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

// key inserts a key with a word of scope and a phase, and returns its secret.
func (p *past) key(exec func(string, ...any), level apikey.Level, word, phase int) string {
	p.t.Helper()
	text, err := apikey.Generate(level, rand.Reader)
	if err != nil {
		p.t.Fatal(err)
	}
	digest := apikey.DigestOf(text)
	number := map[apikey.Level]int{apikey.GatewayLevel: 1, apikey.AccountLevel: 2}[level]
	exec(`INSERT INTO keys (id, account_id, digest, prefix, level, phase, word, created_at, revoked_at, version, name) VALUES (?, ?, ?, ?, ?, ?, ?, 1, ?, 1, 'k')`,
		id.New(id.Key), p.account, digest[:], apikey.PrefixOf(text), number, phase, word, map[bool]any{false: nil, true: 2}[phase == 2])
	return text
}

// Guarantee: a server starts on the schema of each release, whichever rows it has: keys work, revoked keys do not, and
// the records can be read.
func TestServerStartsOnEverySchema(t *testing.T) {
	t.Parallel()
	for schema := int64(1); schema <= sqlite.Newest(t); schema++ {
		t.Run(fmt.Sprint(schema), func(t *testing.T) {
			t.Parallel()
			p := newPast(t, schema)
			s := keygatetest.StartWith(t, keygatetest.Options{From: p.dir})
			for _, key := range p.keys {
				if got := s.Through("pets.example", "GET", "/pets", key, ""); got.Status != http.StatusOK {
					t.Errorf("a request got %d %s, want 200", got.Status, got.Body)
				}
			}
			for _, key := range p.revoked {
				if got := s.Through("pets.example", "GET", "/pets", key, "").Status; got != http.StatusUnauthorized {
					t.Errorf("a request with a revoked key got %d, want 401", got)
				}
			}
			for path, want := range map[string]string{"/v1/gateways": `"pets"`, "/v1/events?limit=100": p.event, "/v1/webhooks": p.webhook} {
				if got := s.Call("GET", path, p.admin, ""); got.Status != http.StatusOK || !strings.Contains(got.Body, want) {
					t.Errorf("%s: got %d %s, want %s in it", path, got.Status, got.Body, want)
				}
			}
			if got := s.Call("GET", "/v1/keys?limit=100", p.admin, ""); strings.Count(got.Body, `"key_id"`) != 1+len(p.keys)+len(p.revoked) {
				t.Errorf("got the keys %s, want all", got.Body)
			}
		})
	}
}
