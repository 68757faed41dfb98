package sqlite

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/control"
)

// Guarantee: the migration that begins to count the keys and responses of accounts counts those from
// before.
func TestMigrationCountsRecordsFromBefore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keygate.db")
	writeSchema13(t, path, []int{1, 2, 3, 4})
	old, err := (&DB{}).connect(Config{Path: path, BusyTimeout: time.Second}, true, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		`UPDATE keys SET phase = 2 WHERE id = 'key_02'`,
		`UPDATE keys SET phase = 1 WHERE id = 'key_03'`,
		`INSERT INTO accounts (id, name, plan, created_at) VALUES ('acct_b', 'b', 'scale', 0)`,
		`INSERT INTO answers (key_id, key, fingerprint, status, header, body, created_at) VALUES
			('key_01', 'x', x'00', 201, '{"a":"é"}', x'0102', 0), ('key_02', 'x', x'00', 201, NULL, NULL, 0), ('key_99', 'x', x'00', 201, NULL, x'01', 0)`,
	} {
		if _, err := old.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := Open(t.Context(), Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	for account, want := range map[string]control.AccountCounts{
		"acct_a": {Keys: 4, LiveKeys: 3, Responses: 2, ResponseBytes: 12},
		"acct_b": {},
	} {
		var got control.AccountCounts
		err := db.View(t.Context(), func(tx control.ReadTx) (err error) {
			got, err = tx.AccountCounts(t.Context(), account)
			return err
		})
		if err != nil || got != want {
			t.Errorf("%s: got %+v (%v); want %+v", account, got, err, want)
		}
	}
}
