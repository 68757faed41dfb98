package sqlite

import (
	"io/fs"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
)

// Guarantee: a database with a separate column for each setting of the upstream keeps every gateway as it was, sealed values included.
func TestMigrationKeepsUpstreams(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keygate.db")
	a := &account.Account{ID: id.New(id.Account), Name: "a", Plan: account.Starter, CreatedAt: time.Now()}
	newGateway := func(name string, u gateway.Upstream) gateway.Gateway {
		return gateway.Gateway{
			ID: id.New(id.Gateway), AccountID: a.ID, Name: name, Upstream: u, Hostname: name + ".example", HostGiven: true,
			Timeout: "5s", MaxBodyBytes: 7, Revision: 2, CreatedAt: time.UnixMicro(1).UTC(), Version: 3,
		}
	}
	sealed := []byte{0, 1, 0xfe, 0xff, '"', '\\', 0, 7} // of a length that base64 must pad
	gateways := []gateway.Gateway{
		newGateway("bare", gateway.Upstream{URL: "http://127.0.0.1:9"}),
		newGateway("full", gateway.Upstream{
			URL:     `https://h/<&>"\`,
			Headers: map[string][]byte{"Authorization": sealed, "X-Empty": {}},
			TLS: gateway.UpstreamTLS{
				CA:                "-----BEGIN CERTIFICATE-----\nca\n-----END CERTIFICATE-----\n",
				ClientCertificate: "-----BEGIN CERTIFICATE-----\nclient\n-----END CERTIFICATE-----\n",
				ClientKey:         sealed,
			},
			Timeouts:       gateway.UpstreamTimeouts{Connect: "500ms", Idle: "1h"},
			MaxConnections: 1<<62 + 1,
		}),
	}
	writeSchema7(t, path, []account.Account{*a}, gateways)
	db, err := Open(t.Context(), Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	for _, want := range gateways {
		t.Run(want.Name, func(t *testing.T) {
			err := db.View(t.Context(), func(tx control.ReadTx) error {
				got, err := tx.Gateway(t.Context(), a.ID, want.ID)
				if err == nil && !reflect.DeepEqual(*got, want) {
					t.Errorf("got %+v; want %+v", got, want)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// writeSchema7 creates a database of schema 7 with accounts and their gateways, as
// the version of that schema wrote them.
func writeSchema7(t *testing.T, path string, accounts []account.Account, gateways []gateway.Gateway) {
	t.Helper()
	if err := prepareFile(path); err != nil {
		t.Fatal(err)
	}
	db, err := (&DB{}).connect(Config{Path: path, BusyTimeout: time.Second}, true, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		t.Fatal(err)
	}
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, files)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := provider.UpTo(t.Context(), 7); err != nil {
		t.Fatal(err)
	}
	for _, a := range accounts {
		_, err := db.ExecContext(t.Context(), `INSERT INTO accounts (id, name, plan, created_at) VALUES (?, ?, ?, ?)`,
			a.ID, a.Name, string(a.Plan), micros(a.CreatedAt))
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, g := range gateways {
		headers, err := maybeJSON(g.Upstream.Headers, len(g.Upstream.Headers) == 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = db.ExecContext(t.Context(), `INSERT INTO gateways (id, account_id, name, hostname, host_given, global_sustained,
			global_burst, timeout, max_body_bytes, revision, created_at, version, upstream_url, upstream_ca, upstream_headers,
			upstream_client_certificate, upstream_client_key, upstream_connect_timeout, upstream_idle_timeout, upstream_max_connections)
			VALUES (?, ?, ?, ?, ?, '', '', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			g.ID, g.AccountID, g.Name, g.Hostname, g.HostGiven, g.Timeout, g.MaxBodyBytes, g.Revision, micros(g.CreatedAt), g.Version,
			g.Upstream.URL, g.Upstream.TLS.CA, headers, g.Upstream.TLS.ClientCertificate, g.Upstream.TLS.ClientKey,
			g.Upstream.Timeouts.Connect, g.Upstream.Timeouts.Idle, g.Upstream.MaxConnections)
		if err != nil {
			t.Fatal(err)
		}
	}
}
