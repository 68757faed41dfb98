package sqlite

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
)

// Guarantee: the keys of a database from before the search index are found before and after they are
// indexed, newest first, also if a clock was once set back.
func TestMigrationFindsKeysFromBefore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keygate.db")
	order := []int{1, 2, 3, 8, 9, 4, 5, 10} // of creation: the clock was set back before 4
	writeSchema13(t, path, order)
	db, err := Open(t.Context(), Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	newest := slices.Sorted(slices.Values(order))
	slices.Reverse(newest)
	check := func(when string) {
		t.Helper()
		var got []int
		for after := ""; ; {
			var page []apikey.Key
			err := db.View(t.Context(), func(tx control.ReadTx) (err error) {
				page, err = tx.Keys(t.Context(), "acct_a", control.KeyFilter{Query: "PART", Now: time.Now()}, control.Page{Limit: 3, After: after})
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, k := range page {
				var n int
				if _, err := fmt.Sscanf(k.Name, "Partner %d", &n); err != nil {
					t.Fatal(err)
				}
				got, after = append(got, n), k.ID
			}
			if len(page) < 3 {
				break
			}
		}
		if !slices.Equal(got, newest) {
			t.Errorf("%s: found %v; want %v", when, got, newest)
		}
	}
	check("before they are indexed")
	var indexed int
	err = db.Update(t.Context(), func(tx control.Tx) (err error) {
		indexed, err = tx.IndexKeys(t.Context(), 100)
		return err
	})
	if err != nil || indexed != len(order)-2 { // without the two that are out of order
		t.Fatalf("indexed %d keys (%v); want %d", indexed, err, len(order)-2)
	}
	check("after they are indexed")
}

// writeSchema13 creates a database of schema 13 with one account and its keys, whose names and
// identifiers have these numbers.
func writeSchema13(t *testing.T, path string, keys []int) {
	t.Helper()
	if err := prepareFile(path); err != nil {
		t.Fatal(err)
	}
	db, err := (&DB{}).connect(Config{Path: path, BusyTimeout: time.Second}, true, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		t.Fatal(err)
	}
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, files, goose.WithDisableGlobalRegistry(true), goose.WithGoMigrations(goMigrations()...))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := provider.UpTo(t.Context(), 13); err != nil {
		t.Fatal(err)
	}
	exec := func(query string, args ...any) {
		t.Helper()
		if _, err := db.ExecContext(context.Background(), query, args...); err != nil {
			t.Fatal(err)
		}
	}
	exec(`INSERT INTO accounts (id, name, plan, created_at) VALUES ('acct_a', 'a', 'scale', 0)`)
	for _, n := range keys {
		digest := make([]byte, len(apikey.Digest{}))
		digest[0] = byte(n)
		exec(`INSERT INTO keys (id, account_id, digest, prefix, level, phase, word, created_at, version, name) VALUES (?, 'acct_a', ?, 'kg_abcdef', 1, 0, 1, 0, 1, ?)`,
			fmt.Sprintf("key_%02d", n), digest, fmt.Sprintf("Partner %d", n))
	}
}
