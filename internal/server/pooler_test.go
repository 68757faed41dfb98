package server_test

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/keygatetest/postgrestest"
)

// Guarantee: a server does not start behind a pooler in transaction mode if it would prepare statements there, and
// doctor says so too; both say what to do. Doctor says in which way a pooler is used, and which of its settings makes a
// short restart of the database a long outage.
func TestPoolerOfADatabase(t *testing.T) {
	t.Parallel()
	direct := postgrestest.Empty(t)
	sessions := postgrestest.Shared(t).Pooler(t, "session").URL(direct)
	transactions := postgrestest.Shared(t).Pooler(t, "transaction").URL(direct)
	const remedy = "add default_query_exec_mode=exec"
	if got := startError(t, "--database-url", transactions, "--secret-key-file", secretKey(t, 1)); !strings.Contains(got, remedy) {
		t.Errorf("starting got the error %q, want the remedy", got)
	}
	for url, want := range map[string]string{
		sessions: "it pools sessions", transactions: remedy, transactions + "&default_query_exec_mode=exec": "it pools transactions", direct: "",
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			said := ""
			for _, finding := range examine(t, t.TempDir(), "--database-url", url, "--secret-key-file", secretKey(t, 1)) {
				if finding.Check == "PostgreSQL pooler" {
					said = fmt.Sprint(finding)
				}
			}
			if !strings.Contains(said, want) || (said == "") != (want == "") {
				t.Errorf("doctor says %q, want %q", said, want)
			}
			if strings.Contains(want, "it pools") && !strings.Contains(said, "set server_login_retry to 1") {
				t.Errorf("doctor says %q, want what to set in PgBouncer", said)
			}
		})
	}
}

const notNotified = "notifications do not arrive" // in the log

// Guarantee: nodes work through PgBouncer as the guide says: from an empty database, which they migrate, a
// change that was answered is in force on every node. They are notified of changes in session mode, and in
// transaction mode if --database-listen-url leads past PgBouncer; else the log says that they are not.
func TestNodesBehindPgBouncer(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		mode, parameters string
		listenDirectly   bool
		notified         bool
	}{
		"session":                          {mode: "session", notified: true},
		"transaction":                      {mode: "transaction", parameters: "&default_query_exec_mode=exec", listenDirectly: true, notified: true},
		"transaction without a listen URL": {mode: "transaction", parameters: "&default_query_exec_mode=exec"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			direct := postgrestest.Empty(t)
			url := postgrestest.Shared(t).Pooler(t, of.mode).URL(direct) + of.parameters
			var args []string
			if of.listenDirectly {
				args = []string{"--database-listen-url", direct}
			}
			c := &cluster{T: t, url: url, operator: must(apikey.Generate(apikey.AccountLevel, rand.Reader))}
			for i := range 2 {
				c.start(fmt.Sprint("node-", i), url, args...)
			}
			newKey := c.gateway()
			for i := range 4 {
				key, keyID := newKey()
				if got := c.statuses(key); fmt.Sprint(got) != "[200 200]" {
					t.Fatalf("with a new key the nodes responded %v, want 200 from each", got)
				}
				if got := c.revoke(c.nodes[i%2], keyID); got.Status != http.StatusOK {
					t.Fatalf("revoking the key: %d %s", got.Status, got.Body)
				}
				if got := c.statuses(key); fmt.Sprint(got) != "[401 401]" {
					t.Fatalf("with a revoked key the nodes responded %v, want 401 from each", got)
				}
			}
			for i, log := range c.logs {
				if said := strings.Contains(log.String(), notNotified); said == of.notified {
					t.Errorf("node %d is notified: %t, want %t", i, !said, of.notified)
				}
			}
		})
	}
}
