package sqlite_test

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/keygate/keygate/internal/store/storetest"
)

// Guarantee: large diffs that an earlier version stored keep nobody from the log.
func TestOldLargeDiffs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keygate.db")
	db := open(t, path)
	storetest.OldLargeDiffs(t, db, func(accountID, diff string) {
		direct, err := sql.Open("sqlite", path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = direct.Close() }()
		if _, err := direct.ExecContext(t.Context(), `UPDATE audit SET diff = ? WHERE account_id = ?`, diff, accountID); err != nil {
			t.Fatal(err)
		}
	})
}
