package server_test

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/keygate/keygate/internal/keygatetest/postgrestest"
	"github.com/keygate/keygate/internal/server"
	"github.com/keygate/keygate/internal/store/sqlite"
)

// Guarantee: the newest row of the table in docs/upgrade.md has the schemas of this tree.
func TestUpgradePageHasTheSchemas(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keygate.db")
	db := must(sqlite.Open(t.Context(), sqlite.Config{Path: path}))
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	file := must(sqlite.Inspect(t.Context(), path))
	url := postgrestest.Empty(t)
	c := settings(t, t.TempDir(), "--database-url", url)
	if err := server.MigrateDatabase(t.Context(), c, "", quiet); err != nil {
		t.Fatal(err)
	}
	_, newest, err := server.SchemaVersion(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	conn := must(pgx.Connect(t.Context(), url))
	defer conn.Close(t.Context())
	var oldest int
	if err := conn.QueryRow(t.Context(), `SELECT oldest FROM schema_support`).Scan(&oldest); err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(must(os.ReadFile("../../docs/upgrade.md"))), "|---|---|---|---|---|---|\n")
	row, _, _ := strings.Cut(table, "\n")
	want := fmt.Sprintf("| 1 to %d | %[1]d | 1 to %d | %[2]d | %d |", file.Newest, newest, oldest)
	if !strings.HasSuffix(row, want) {
		t.Errorf("the first row of the table is\n%s\nwant one that ends in\n%s", row, want)
	}
}

// newer makes the SQLite database at path one that version 9.8.7 has migrated further.
func newer(t *testing.T, path string) {
	t.Helper()
	db := must(sql.Open("sqlite", path))
	defer db.Close()
	for _, statement := range []string{
		`INSERT INTO goose_db_version (version_id, is_applied) VALUES (900, 1)`,
		`UPDATE schema_support SET schema = 900, version = '9.8.7'`,
		`PRAGMA wal_checkpoint(TRUNCATE)`,
	} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
}

// Guarantee: a newer schema is refused by each command, which names the version that is needed.
func TestNewerSchemaIsRefused(t *testing.T) {
	t.Parallel()
	f, file := backedUp(t)
	newer(t, file)
	newer(t, filepath.Join(f.DataDir, "keygate.db"))
	c, target := settings(t, f.DataDir), postgrestest.Empty(t)
	for what, run := range map[string]func() error{
		"serve":   func() error { return fmt.Errorf("%s", startErrorWith(t, c)) },
		"restore": func() error { _, err := server.Restore(t.Context(), settings(t, t.TempDir()), file); return err },
		"backup": func() error {
			_, err := server.Backup(t.Context(), c, file+"2", server.BackupOptions{})
			return err
		},
		"store copy": func() error {
			_, err := server.CopyStore(t.Context(), copySettings(t, f, target), "test", quiet, noProgress)
			return err
		},
		"account create": func() error {
			_, err := server.CreateAccount(t.Context(), c, quiet, "acme", "starter", nil)
			return err
		},
	} {
		if err := run(); err == nil || !strings.Contains(err.Error(), "schema 900") || !strings.Contains(err.Error(), "run 9.8.7 or a newer one") {
			t.Errorf("%s: got the error %v, want one that names the version", what, err)
		}
	}
	expect(t, examine(t, f.DataDir), "database", server.FindingProblem, "run 9.8.7 or a newer one")
	if left := must(filepath.Glob(filepath.Join(filepath.Dir(file), "*"))); len(left) != 1 {
		t.Errorf("got the files %v, want that the refused backup has left none", left)
	}
}

// Guarantee: a newer schema in PostgreSQL that does not support this version is refused by each command, which names
// the version that is needed.
func TestNewerPostgresSchemaIsRefused(t *testing.T) {
	t.Parallel()
	f := startServing(t)
	f.Stop()
	url := postgrestest.Empty(t)
	flags := []string{"--database-url", url, "--secret-key-file", secretKey(t, 1)}
	c := settings(t, t.TempDir(), flags...)
	if err := server.MigrateDatabase(t.Context(), c, "9.8.7", quiet); err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{`INSERT INTO goose_db_version (version_id, is_applied) VALUES (900, true)`, `UPDATE schema_support SET oldest = 900`} {
		if err := change(t, url, statement); err != nil {
			t.Fatal(err)
		}
	}
	for what, run := range map[string]func() error{
		"serve":          func() error { return fmt.Errorf("%s", startErrorWith(t, c)) },
		"migrate up":     func() error { return server.MigrateDatabase(t.Context(), c, "test", quiet) },
		"migrate status": func() error { _, _, err := server.SchemaVersion(t.Context(), c); return err },
		"store copy": func() error {
			_, err := server.CopyStore(t.Context(), copySettings(t, f, url), "test", quiet, noProgress)
			return err
		},
	} {
		if err := run(); err == nil || !strings.Contains(err.Error(), "schema 900") || !strings.Contains(err.Error(), "run 9.8.7 or a newer one") {
			t.Errorf("%s: got the error %v, want one that names the version", what, err)
		}
	}
	expect(t, examine(t, c.DataDir, flags...), "PostgreSQL schema", server.FindingProblem, "run 9.8.7 or a newer one")
}
