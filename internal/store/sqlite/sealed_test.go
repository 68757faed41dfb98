package sqlite_test

import (
	"testing"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/store/sqlite"
	"github.com/keygate/keygate/internal/store/sqlite/sqlitetest"
)

// Guarantee: the encrypted values of all upstreams of a gateway are found, those of named ones too.
func TestSealedValuesOfUpstreams(t *testing.T) {
	path := sqlitetest.Path(t)
	db := open(t, path)
	with := func(name, secret string) gateway.Upstream {
		return gateway.Upstream{Name: name, URL: "https://a.internal", Headers: map[string][]byte{"X-Token": []byte(secret)}, TLS: gateway.UpstreamTLS{ClientKey: []byte("key " + secret)},
			Health: &gateway.Health{Path: "/", Interval: "10s", Sealed: map[string][]byte{"X-Probe": []byte("probe " + secret)}}}
	}
	a := account.Account{ID: id.New(id.Account), Name: "a", Tier: account.Starter, CreatedAt: time.Unix(1, 0)}
	g := gateway.Gateway{ID: id.New(id.Gateway), AccountID: a.ID, Name: "g", Hostname: "g.example", Timeout: "60s", Upstream: with("", "of default"), CreatedAt: time.Unix(1, 0), Version: 1}
	g.Others = []gateway.Upstream{with("next", "of next"), with("other", "of other")}
	if err := db.Update(t.Context(), func(tx control.Tx) error {
		if err := tx.InsertAccount(t.Context(), &a); err != nil {
			return err
		}
		return tx.InsertGateway(t.Context(), &g)
	}); err != nil {
		t.Fatal(err)
	}
	sealed, err := sqlite.SealedValues(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, s := range sealed {
		for _, value := range s.Values {
			found[s.Kind+": "+string(value)]++
		}
	}
	for _, of := range []string{"of default", "of next", "of other"} {
		if found["upstream headers: "+of] != 1 || found["headers of checks: probe "+of] != 1 || found["upstream client keys: key "+of] != 1 {
			t.Errorf("got %v, want the headers and the client key %s", found, of)
		}
	}
}
