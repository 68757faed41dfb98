package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/keygatetest"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
)

// Guarantee: docs/metrics.md, keygate_unusable_keys, keygate_unusable_gateways and keygate_unusable_accounts. A node
// that starts with a damaged record of each kind serves the other records and says how many it cannot use, until the
// damaged ones are repaired. A node that has read the records before they were damaged goes on.
func TestMetricsOfUnusableRecords(t *testing.T) {
	c := startCluster(t, 1)
	newKey := c.gateway()
	good, _ := newKey()
	_, bad := newKey()
	admin := c.nodes[0].Admin
	g := again(c, func() (*client.Gateway, error) {
		return admin.CreateGateway(t.Context(), client.CreateGatewayRequest{Name: "damaged", UpstreamURL: keygatetest.NewUpstream(t).URL})
	})
	a := again(c, func() (*client.NewAccount, error) {
		return admin.CreateAccount(t.Context(), client.CreateAccountRequest{Name: "damaged", Plan: "starter"})
	})

	db := must(pgx.Connect(t.Context(), c.url))
	defer db.Close(t.Context())
	records := []struct{ table, column, id, value string }{
		{"keys", "rate_limit", bad, "soon"}, {"gateways", "upstream", g.GatewayID, "{"}, {"accounts", "hosts", a.AccountID, "{"},
	}
	before := make([]*string, len(records))
	for i, r := range records {
		if err := db.QueryRow(t.Context(), fmt.Sprintf(`SELECT %s FROM %s WHERE id = $1`, r.column, r.table), r.id).Scan(&before[i]); err != nil {
			t.Fatal(err)
		}
		set(t, db, r.table, r.column, r.id, &r.value)
	}

	node := c.start("node-1", c.url)
	if got := unusable(t, node); got != "1 1 1" {
		t.Errorf("a node that started with damaged records counts %s keys, gateways and accounts, want 1 of each", got)
	}
	if got := unusable(t, c.nodes[0]); got != "0 0 0" {
		t.Errorf("the other node counts %s, want none", got)
	}
	if got := node.Through("", "GET", "/orders", good, "").Status; got != http.StatusOK {
		t.Errorf("a request with another key got %d, want 200", got)
	}
	for i, r := range records {
		set(t, db, r.table, r.column, r.id, before[i])
	}
	awaittest.True(t, "the repaired records are in force", func() bool { return unusable(t, node) == "0 0 0" })
}

// set changes a column of a record behind the back of all nodes.
func set(t *testing.T, db *pgx.Conn, table, column, recordID string, value *string) {
	t.Helper()
	tag, err := db.Exec(t.Context(), fmt.Sprintf(`UPDATE %s SET %s = $1 WHERE id = $2`, table, column), value, recordID)
	if err != nil || tag.RowsAffected() != 1 {
		t.Fatalf("setting %s of %s: %v, %v", column, recordID, tag, err)
	}
}

// unusable returns how many keys, gateways and accounts a node cannot use, as its metrics say.
func unusable(t *testing.T, node *keygatetest.Server) string {
	t.Helper()
	values := map[string]string{}
	for line := range strings.Lines(scrape(t, node)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		values[strings.TrimPrefix(name, "keygate_unusable_")] = value
	}
	return values["keys"] + " " + values["gateways"] + " " + values["accounts"]
}
