package sqlite

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
)

// Guarantee: contract 3.3: in a database from before the default gateway, the oldest gateway of the
// account default is it. Other gateways, and those of databases without such a gateway, are not. No
// gateway's version changes, so that ETags stay valid.
func TestMigrationMakesTheOldestGatewayTheDefault(t *testing.T) {
	operator := account.Account{ID: id.New(id.Account), Name: account.Default, Plan: account.Platform, CreatedAt: time.Now()}
	tenant := account.Account{ID: id.New(id.Account), Name: "acme", Plan: account.Starter, CreatedAt: time.Now()}
	newGateway := func(a account.Account, name string, second int64) gateway.Gateway {
		return gateway.Gateway{ID: id.New(id.Gateway), AccountID: a.ID, Name: name, Hostname: name + ".example", HostGiven: true,
			Timeout: "5s", Upstream: gateway.Upstream{URL: "http://127.0.0.1:9"}, CreatedAt: time.Unix(second, 0).UTC(), Version: 3}
	}
	foreign := newGateway(tenant, "foreign", 1)
	for _, tc := range []struct {
		name     string
		accounts []account.Account
		gateways []gateway.Gateway
		want     string
	}{
		{"several", []account.Account{tenant, operator}, []gateway.Gateway{
			foreign, newGateway(operator, "younger", 3), newGateway(operator, "oldest", 2), newGateway(operator, "youngest", 4),
		}, "oldest"},
		{"one", []account.Account{operator}, []gateway.Gateway{newGateway(operator, "only", 1)}, "only"},
		{"only a tenant's", []account.Account{operator, tenant}, []gateway.Gateway{foreign}, ""},
		{"none", nil, nil, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "keygate.db")
			writeSchema7(t, path, tc.accounts, tc.gateways)
			db, err := Open(t.Context(), Config{Path: path})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			got := ""
			err = db.EachGateway(t.Context(), func(g *gateway.Gateway, _ []gateway.Route) error {
				if g.Default {
					got += g.Name
				}
				if g.Version != 3 {
					t.Errorf("gateway %s has version %d; want 3", g.Name, g.Version)
				}
				return nil
			})
			if err != nil || got != tc.want {
				t.Errorf("the default gateway is %q (%v); want %q", got, err, tc.want)
			}
		})
	}
}
