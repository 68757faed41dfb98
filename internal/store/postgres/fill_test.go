package postgres

import (
	"database/sql"
	"log/slog"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/keygatetest/postgrestest"
)

// Guarantee: a database that has an installation, or accounts, is not filled, and its schema stays as it is.
func TestFillChangesNoOtherInstallation(t *testing.T) {
	for what, statement := range map[string]string{
		"an installation": `INSERT INTO installation (id, canary) VALUES ('other', '')`,
		"an account":      `INSERT INTO accounts (id, name, plan, created_at) VALUES ('acct_a', 'a', 'starter', 1)`,
	} {
		url := postgrestest.Empty(t)
		MigrateTo(t, url, 1, func(db *sql.DB) error {
			_, err := db.ExecContext(t.Context(), statement)
			return err
		})
		_, err := Fill(t.Context(), FillConfig{URL: url, Version: "test", Installation: Installation{ID: "own"}, Log: slog.New(slog.DiscardHandler)})
		if fault.CodeOf(err) != fault.Conflict || !strings.Contains(err.Error(), "the database is not empty") {
			t.Errorf("with %s: got the error %v, want that the database is not empty", what, err)
		}
		if v, err := SchemaVersion(t.Context(), url); err != nil || v.Current != 1 {
			t.Errorf("with %s: the schema is %d, error %v; want 1 as before", what, v.Current, err)
		}
	}
}

// Guarantee: a database with a newer schema is not filled, also if nodes of this version may start on it: its tables
// may have columns that this binary does not know.
func TestFillRefusesANewerSchema(t *testing.T) {
	url := migrated(t)
	MigrateTo(t, url, 99, func(db *sql.DB) error {
		_, err := db.ExecContext(t.Context(), `INSERT INTO goose_db_version (version_id, is_applied) VALUES (99, true)`)
		return err
	})
	_, err := Fill(t.Context(), FillConfig{URL: url, Version: "test", Installation: Installation{ID: "own"}, Log: slog.New(slog.DiscardHandler)})
	if fault.CodeOf(err) != fault.Conflict || !strings.Contains(err.Error(), "schema 99") {
		t.Errorf("got the error %v, want one that names the schema", err)
	}
}
