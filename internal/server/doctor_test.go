package server_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/keygate/keygate/internal/certificate/certificatetest"
	"github.com/keygate/keygate/internal/keygatetest"
	"github.com/keygate/keygate/internal/keygatetest/porttest"
	"github.com/keygate/keygate/internal/keygatetest/postgrestest"
	"github.com/keygate/keygate/internal/keygatetest/redistest"
	"github.com/keygate/keygate/internal/server"
)

// examine returns the findings of a server with these settings. Their remedies must be there.
func examine(t *testing.T, dir string, more ...string) []server.Finding {
	t.Helper()
	list := server.Examine(t.Context(), settings(t, dir, more...))
	for _, f := range list {
		if (f.Remedy == "") != (f.Status == server.FindingOK) {
			t.Errorf("%s is %s with the remedy %q", f.Check, f.Status, f.Remedy)
		}
	}
	return list
}

// expect checks that there is a finding of a check with a status and a text in it.
func expect(t *testing.T, list []server.Finding, check string, status server.FindingStatus, text string) {
	t.Helper()
	for _, f := range list {
		if f.Check == check && f.Status == status && strings.Contains(f.Message+" → "+f.Remedy, text) {
			return
		}
	}
	t.Errorf("want %q to be %s with %q, got\n%s", check, status, text, showFindings(list))
}

func showFindings(list []server.Finding) string {
	var b strings.Builder
	for _, f := range list {
		fmt.Fprintf(&b, "%s\t%s\t%s → %s\n", f.Status, f.Check, f.Message, f.Remedy)
	}
	return b.String()
}

func noProblems(t *testing.T, list []server.Finding) {
	t.Helper()
	for _, f := range list {
		if f.Status == server.FindingProblem {
			t.Errorf("got the problem %s: %s", f.Check, f.Message)
		}
	}
}

// Guarantee: on an empty machine nothing is a problem and nothing is created. Beside a running
// server neither its lock nor its addresses are a problem, and they are reported.
func TestDoctorWithoutAndBesideAServer(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	list := examine(t, dir)
	noProblems(t, list)
	expect(t, list, "data directory", server.FindingOK, "the first start creates it")
	if _, err := os.Stat(dir); err == nil {
		t.Error("the data directory was created")
	}

	s := keygatetest.Start(t)
	address := s.Running().AdminAddr()
	list = examine(t, s.DataDir, "--admin-addr", address)
	noProblems(t, list)
	expect(t, list, "lock", server.FindingOK, fmt.Sprintf("a server (process %d) is running", os.Getpid()))
	expect(t, list, "--admin-addr", server.FindingOK, address+" is in use, while a server is running")
	expect(t, list, "database", server.FindingOK, "the one of this version")
	s.Stop()
	before := must(os.ReadDir(s.DataDir))
	list = examine(t, s.DataDir)
	noProblems(t, list)
	expect(t, list, "lock", server.FindingOK, "no server")
	if after := must(os.ReadDir(s.DataDir)); len(after) != len(before) {
		t.Errorf("the data directory had %d files and has %d", len(before), len(after))
	}
}

// Guarantee: what would stop a start, or is about to, is found on this machine.
func TestDoctorFindsLocalProblems(t *testing.T) {
	s := keygatetest.Start(t)
	s.Stop()
	for _, name := range []string{"admin.key", "secret.key"} {
		if err := os.Chmod(filepath.Join(s.DataDir, name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(s.DataDir, 0o777); err != nil {
		t.Fatal(err)
	}
	taken := must((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))
	t.Cleanup(func() { _ = taken.Close() })
	cert, _ := certificatetest.New(t, "a.example").Write(t, t.TempDir())
	_, otherKey := certificatetest.New(t, "b.example").Write(t, t.TempDir())
	list := examine(t, s.DataDir, "--ops-addr", taken.Addr().String(), "--tls-cert", cert, "--tls-key", otherKey,
		"--access-log", "/nowhere/access.log", "--audit-max-bytes", "9000TB", "--max-connections", "100000000")
	expect(t, list, "data directory", server.FindingWarning, "chmod 700")
	expect(t, list, "admin.key", server.FindingProblem, "chmod 600")
	expect(t, list, "secret key", server.FindingProblem, "chmod 600")
	expect(t, list, "--ops-addr", server.FindingProblem, "in use by another program")
	expect(t, list, "TLS of the data plane", server.FindingProblem, "--tls-key")
	expect(t, list, "--access-log", server.FindingProblem, "/nowhere")
	expect(t, list, "disk", server.FindingWarning, "--audit-max-bytes")
	expect(t, list, "open files", server.FindingWarning, "LimitNOFILE")

	if err := os.Remove(filepath.Join(s.DataDir, "secret.key")); err != nil {
		t.Fatal(err)
	}
	expect(t, examine(t, s.DataDir), "secret key", server.FindingProblem, "was created with a secret key")
	if err := os.Remove(filepath.Join(s.DataDir, "keygate.db")); err != nil {
		t.Fatal(err)
	}
	expect(t, examine(t, s.DataDir), "database", server.FindingProblem, "not a first start")
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	expect(t, examine(t, file), "data directory", server.FindingProblem, "not a directory")
}

// Guarantee: with PostgreSQL and Redis that suit, the only problem is that the server of the tests does
// not sync its disk. An empty database stays empty; in a used database, the secret key is compared with
// the database's, and the nodes are counted.
func TestDoctorWithStores(t *testing.T) {
	url, redis := postgrestest.Empty(t), redistest.Start(t)
	more := []string{"--database-url", url, "--redis-url", "redis://" + redis.Addr, "--secret-key-file", secretKey(t, 1), "--node-name", "a"}
	list := examine(t, t.TempDir(), more...)
	for _, check := range []string{"PostgreSQL", "PostgreSQL sessions", "PostgreSQL notifications", "PostgreSQL connections", "PostgreSQL oldest transaction", "PostgreSQL clock", "limit store", "limit store memory", "limit store durability", "limit store clock"} {
		expect(t, list, check, server.FindingOK, "")
	}
	expect(t, list, "PostgreSQL schema", server.FindingOK, "empty")
	expect(t, list, "PostgreSQL durability", server.FindingProblem, "fsync")
	expect(t, list, "secret key", server.FindingOK, "no node has used")
	expect(t, list, "limit store", server.FindingOK, "the script of limits works")

	keygatetest.StartWith(t, keygatetest.Options{Args: more})
	list = examine(t, t.TempDir(), more...)
	expect(t, list, "PostgreSQL schema", server.FindingOK, "the one of this version")
	expect(t, list, "secret key", server.FindingOK, "the one of the database")
	expect(t, list, "nodes", server.FindingWarning, "1 node has a lease, one of them with the name a")
	other := slices.Concat(more, []string{"--secret-key-file", secretKey(t, 2), "--node-name", "b"})
	list = examine(t, t.TempDir(), other...)
	expect(t, list, "secret key", server.FindingProblem, "not the one that the database was created with")
	expect(t, list, "nodes", server.FindingOK, "1 node has a lease")

	if err := change(t, url, `INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, true)`); err != nil {
		t.Fatal(err)
	}
	expect(t, examine(t, t.TempDir(), more...), "PostgreSQL schema", server.FindingOK, "may still start on it")
	if err := change(t, url, `UPDATE schema_support SET oldest = 9999`); err != nil {
		t.Fatal(err)
	}
	expect(t, examine(t, t.TempDir(), more...), "PostgreSQL schema", server.FindingProblem, "schema 9999")
	if err := change(t, url, `DELETE FROM goose_db_version WHERE version_id > 0`); err != nil {
		t.Fatal(err)
	}
	expect(t, examine(t, t.TempDir(), append(more, "--migrate=off")...), "PostgreSQL schema", server.FindingProblem, "keygate migrate up")
}

// change runs a statement on the database of a URL.
func change(t *testing.T, url, statement string) error {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		return err
	}
	defer c.Close(context.Background())
	_, err = c.Exec(t.Context(), statement)
	return err
}

// Guarantee: a database that is read-only, has too few connections, or holds unrelated tables is a
// problem.
func TestDoctorFindsProblemsOfPostgres(t *testing.T) {
	key := secretKey(t, 1)
	url := postgrestest.Empty(t)
	list := examine(t, t.TempDir(), "--database-url", url+"&default_transaction_read_only=on", "--secret-key-file", key)
	expect(t, list, "PostgreSQL sessions", server.FindingProblem, "accepts no writes")
	list = examine(t, t.TempDir(), "--database-url", url+"&target_session_attrs=prefer-standby")
	expect(t, list, "PostgreSQL sessions", server.FindingWarning, "prefer-standby")
	expect(t, list, "secret key", server.FindingProblem, "head -c 32")
	if err := change(t, url, `CREATE TABLE other (n int)`); err != nil {
		t.Fatal(err)
	}
	if err := change(t, url, `DO $$ BEGIN EXECUTE 'ALTER DATABASE ' || current_database() || ' CONNECTION LIMIT 10'; END $$`); err != nil {
		t.Fatal(err)
	}
	list = examine(t, t.TempDir(), "--database-url", url, "--secret-key-file", key)
	expect(t, list, "PostgreSQL schema", server.FindingProblem, "tables of something else")
	expect(t, list, "PostgreSQL connections", server.FindingProblem, "10 are allowed")
}

// Guarantee: a limit store that may evict keys is a problem. A limit store or a database that cannot be
// reached is a problem too. No finding shows a password.
func TestDoctorFindsProblemsOfTheLimitStore(t *testing.T) {
	redis := redistest.Start(t, "--maxmemory", "50mb", "--maxmemory-policy", "allkeys-lru", "--requirepass", "hunter2")
	list := examine(t, t.TempDir(), "--redis-url", "redis://:hunter2@"+redis.Addr)
	expect(t, list, "limit store memory", server.FindingProblem, "allkeys-lru")
	for _, url := range []string{"redis://:hunter3@" + redis.Addr, "redis://:hunter2@" + porttest.Reserve(t)} {
		list = examine(t, t.TempDir(), "--redis-url", url)
		expect(t, list, "limit store", server.FindingProblem, "--redis-url")
	}
	away := porttest.Reserve(t)
	for _, url := range []string{"postgres://keygate:hunter2@" + away + "/keygate", "postgres://keygate:hunter2@" + postgrestest.Shared(t).Addr + "/keygate?sslmode=disable"} {
		more := examine(t, t.TempDir(), "--database-url", url, "--secret-key-file", secretKey(t, 1))
		expect(t, more, "PostgreSQL", server.FindingProblem, "--database-url")
		list = append(list, more...)
	}
	if text := showFindings(list); strings.Contains(text, "hunter") {
		t.Errorf("a password is shown:\n%s", text)
	}
}
