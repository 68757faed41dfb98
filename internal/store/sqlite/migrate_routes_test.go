package sqlite

import (
	"fmt"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
)

// Guarantee: the routes of a database from before they were counted and stored in pages are counted, and
// stay as they were.
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
	err = db.View(t.Context(), func(tx control.ReadTx) error {
		for i, want := range []int{2, 1} {
			table, err := tx.RouteTable(t.Context(), gateways[i].ID)
			if err != nil {
				return err
			}
			if len(table) != want {
				t.Errorf("gateway %d: got %d routes, want %d", i, len(table), want)
			}
			for _, r := range table {
				same := gateway.Route{ID: r.ID, GatewayID: gateways[i].ID, Path: "/a", Methods: []string{"GET"}, Auth: gateway.AuthKey, Source: gateway.API, CreatedAt: time.UnixMicro(1).UTC(), Version: 1}
				if !reflect.DeepEqual(r, same) {
					t.Errorf("got %+v, want %+v", r, same)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
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
