package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cluster/lease"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/store/postgres"
)

// Guarantee: two versions run side by side. While a node that reads only older formats holds a lease, a change that
// it could not read is a 503 that names the node: a holder of a key cannot rotate it, since such a node would not revoke what
// self-service has made; a key gets no concurrency, which such a node would not enforce; and no key is imported, since such a node
// would refuse it. When the node is gone, such changes succeed. A node that meets a change of a newer version gives its lease up,
// and /readyz and the log say why.
func TestTwoVersionsSideBySide(t *testing.T) {
	c := startCluster(t, 1)
	made := 0
	create := func() (status int, body string) { // writes a change of a format that older nodes do not read
		made++
		got := c.nodes[0].Call("POST", "/v1/plans", c.operator, fmt.Sprintf(`{"name": "plan-%d", "limits": []}`, made))
		return got.Status, got.Body
	}
	if status, body := create(); status != http.StatusCreated {
		t.Fatalf("with one version: %d %s", status, body)
	}
	limit := func() (status int, body string) { // gives a new key a concurrency
		got := c.nodes[0].Call("POST", "/v1/keys", c.operator, `{"name": "narrow", "scope": "read", "concurrency": 2}`)
		return got.Status, got.Body
	}
	taken := 0
	take := func() (status int, body string) { // imports a key
		taken++
		got := c.nodes[0].Call("POST", "/v1/keys/import", c.operator, fmt.Sprintf(`{"keys": [{"name": "old", "scope": "read", "key": "sk_live_51HxAbCdEfGhIjKl-%d"}]}`, taken))
		return got.Status, got.Body
	}
	newKey := c.gateway()
	letHolders(t, c.nodes[0].Admin, must(first(c.nodes[0].Admin.Gateways(t.Context(), client.ListOptions{}))).GatewayID, false, true)
	key, _ := newKey()
	db := must(pgx.Connect(t.Context(), c.url))
	defer db.Close(t.Context())
	// Makes it look as if the format of plans came with this node's version, and nothing had been written in it yet.
	format := snapshot.PlanChange.Format() - 1
	must(db.Exec(t.Context(), `UPDATE change_head SET format = $1`, format))
	older := must(postgres.OpenLeases(t.Context(), c.url, postgres.Node{Role: "all", Version: "0.9.0", Format: format, StartedAt: time.Now()}))
	defer older.Close()
	call := lease.Call{Kind: lease.Join, Node: "older", TTL: time.Hour}
	var mark []byte
	if err := db.QueryRow(t.Context(), `SELECT number, mark FROM change_head`).Scan(&call.Position.Number, &mark); err != nil {
		t.Fatal(err)
	}
	copy(call.Position.Mark[:], mark)
	joined := must(older.Carry(t.Context(), call))
	if joined.Result != lease.Done {
		t.Fatalf("the older node got %+v, want a lease", joined)
	}
	if status, body := create(); status != http.StatusServiceUnavailable || !strings.Contains(body, `older\" (version 0.9.0)`) || !strings.Contains(body, "Nothing was changed") {
		t.Errorf("with an older node: got %d %s, want 503 that names it", status, body)
	}
	if got := c.nodes[0].Through("", "POST", "/.keygate/rotate", key, week); got.Status != http.StatusServiceUnavailable || strings.Contains(got.Body, "older") {
		t.Errorf("a rotation with an older node: got %d %s, want 503 that does not name it", got.Status, got.Body)
	}
	if status, body := limit(); status != http.StatusServiceUnavailable || !strings.Contains(body, `older\" (version 0.9.0)`) {
		t.Errorf("a concurrency with an older node: got %d %s, want 503 that names it", status, body)
	}
	if status, body := take(); status != http.StatusServiceUnavailable || !strings.Contains(body, `older\" (version 0.9.0)`) {
		t.Errorf("an import with an older node: got %d %s, want 503 that names it", status, body)
	}
	call.Kind, call.Epoch = lease.Leave, joined.Row.Epoch
	must(older.Carry(t.Context(), call))
	if got := c.nodes[0].Through("", "POST", "/.keygate/rotate", key, week); got.Status != http.StatusCreated {
		t.Errorf("a rotation without the older node: got %d %s, want 201", got.Status, got.Body)
	}
	if status, body := limit(); status != http.StatusCreated {
		t.Errorf("a concurrency without the older node: %d %s, want 201", status, body)
	}
	if status, body := take(); status != http.StatusCreated {
		t.Errorf("an import without the older node: %d %s, want 201", status, body)
	}
	if status, body := create(); status != http.StatusCreated {
		t.Errorf("without the older node: %d %s", status, body)
	}

	must(db.Exec(t.Context(), `WITH head AS (UPDATE change_head SET number = number + 1, mark = '\x0102030405060708', format = $1 RETURNING number, mark)
		INSERT INTO changes (seq, mark, at, kind, record_id, format) SELECT number, mark, 0, 'tenant', 'x', $1 FROM head`, snapshot.ChangeFormat+1))
	awaittest.True(t, "/readyz says what to do", func() bool {
		_, ready := fetch(t, c.nodes[0].OpsURL()+"/readyz")
		return strings.Contains(ready, "upgrade this node")
	})
	if status, body := create(); status != http.StatusServiceUnavailable {
		t.Errorf("after a change of a newer version: got %d %s, want 503", status, body)
	}
	if log := c.logs[0].String(); !strings.Contains(log, "the lease is given up: this version cannot read changes of newer nodes") {
		t.Errorf("the log does not say why the lease is gone: %s", log)
	}
}

// first returns the first record of a list.
func first[T any](list func(func(T, error) bool)) (v T, err error) {
	for v, err = range list {
		break
	}
	return v, err
}
