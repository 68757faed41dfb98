package sqlite

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
)

// Guarantee: the routes of a database from before they were counted are counted.
func TestMigrationCountsRoutes(t *testing.T) {
	a := account.Account{ID: id.New(id.Account), Name: account.Default, Plan: account.Platform, CreatedAt: time.Now()}
	gateways := make([]gateway.Gateway, 2)
	for i := range gateways {
		gateways[i] = gateway.Gateway{ID: id.New(id.Gateway), AccountID: a.ID, Name: "g", Hostname: fmt.Sprintf("g%d.example", i), HostGiven: true,
			Timeout: "5s", Upstream: gateway.Upstream{URL: "http://127.0.0.1:9"}, CreatedAt: time.Unix(1, 0), Version: 1}
	}
	path := filepath.Join(t.TempDir(), "keygate.db")
	writeSchema7(t, path, []account.Account{a}, gateways)
	insertRoutes(t, path, gateways[0].ID, gateways[1].ID, gateways[0].ID)
	db, err := Open(t.Context(), Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	n := 0
	err = db.View(t.Context(), func(tx control.ReadTx) (err error) {
		n, err = tx.CountRoutes(t.Context(), a.ID)
		return err
	})
	if err != nil || n != 3 {
		t.Errorf("got %d routes (%v), want 3", n, err)
	}
}

// insertRoutes inserts a route of each gateway into a database of schema 7.
func insertRoutes(t *testing.T, path string, gatewayIDs ...string) {
	t.Helper()
	db, err := (&DB{}).connect(Config{Path: path, BusyTimeout: time.Second}, true, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	for _, gatewayID := range gatewayIDs {
		_, err := db.ExecContext(t.Context(), `INSERT INTO routes (path, methods, sustained, burst, daily, per, limit_by_api, auth, source, version, id, gateway_id, created_at)
			VALUES ('/a', 'GET', '', '', '', '', 0, 'key', 'api', 1, ?, ?, 1)`, id.New(id.Route), gatewayID)
		if err != nil {
			t.Fatal(err)
		}
	}
}
