package sqlite

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"testing"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
)

// Guarantee: the migration that begins to count the bytes of revisions keeps those from before as they
// were, in rows and in parts, and counts them.
func TestMigrationCountsRevisions(t *testing.T) {
	a := account.Account{ID: id.New(id.Account), Name: account.Default, Plan: account.Platform, CreatedAt: time.Now()}
	gateways := make([]gateway.Gateway, 2)
	for i := range gateways {
		gateways[i] = gateway.Gateway{ID: id.New(id.Gateway), AccountID: a.ID, Name: "g", Hostname: fmt.Sprintf("g%d.example", i), HostGiven: true,
			Timeout: "5s", Upstream: gateway.Upstream{URL: "http://127.0.0.1:9"}, CreatedAt: time.Unix(1, 0), Version: 1}
	}
	path := filepath.Join(t.TempDir(), "keygate.db")
	writeSchema7(t, path, []account.Account{a}, gateways)
	insertRevisions18(t, path, gateways[0].ID, gateways[1].ID)
	db, err := Open(t.Context(), Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	err = db.View(t.Context(), func(tx control.ReadTx) error {
		counts, err := tx.AccountCounts(t.Context(), a.ID)
		if want := int64(3*512 + 6 + 3 + 6 + 4 + 2*len(emptyPage())); err != nil || counts.RevisionBytes != want {
			t.Errorf("got %d bytes of revisions (%v), want %d", counts.RevisionBytes, err, want)
		}
		for _, want := range []struct {
			gatewayID, content string
			number             int64
		}{{gateways[0].ID, "first", 1}, {gateways[0].ID, "later", 2}, {gateways[1].ID, "abc", 1}} {
			r, err := tx.Revision(t.Context(), want.gatewayID, want.number)
			if err != nil || string(r.Content) != want.content || r.Author != "ada" || r.Commit != "c0ffee" || !r.CreatedAt.Equal(time.UnixMicro(7)) {
				t.Errorf("got revision %+v (%v), want %s", r, err, want.content)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	err = db.Update(t.Context(), func(tx control.Tx) error {
		_, err := tx.TrimRevisions(t.Context(), control.KeptRevisions{Newest: 1, Since: time.Now(), AccountBytes: 1 << 30}, 10)
		if err != nil {
			return err
		}
		list, err := tx.Revisions(t.Context(), gateways[0].ID, 10, 0)
		if err == nil && (len(list) != 1 || list[0].Number != 2) {
			t.Errorf("got revisions %+v after the first was trimmed", list)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// insertRevisions18 migrates a database to schema 18, and inserts two revisions of the first gateway and
// one of the second. The first is in its row, the others are in parts.
func insertRevisions18(t *testing.T, path string, first, second string) {
	t.Helper()
	db, err := (&DB{}).connect(Config{Path: path, BusyTimeout: time.Second}, true, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		t.Fatal(err)
	}
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, files, goose.WithGoMigrations(goMigrations()...))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := provider.UpTo(t.Context(), 18); err != nil {
		t.Fatal(err)
	}
	insert := `INSERT INTO revisions (id, gateway_id, number, source, kind, author, commit_id, created_at, added, removed, changed, content, routes)
		VALUES (?, ?, ?, 'api', 'spec', 'ada', 'c0ffee', 7, 1, 0, 0, ?, ?)`
	for _, statement := range []struct {
		query string
		args  []any
	}{
		{insert, []any{"rev_1", first, 1, []byte("\x00first"), []byte("\x00[]")}},
		{insert, []any{"rev_2", first, 2, []byte{}, []byte{}}},
		{insert, []any{"rev_3", second, 1, []byte{}, []byte{}}},
		{`INSERT INTO revision_parts VALUES ('rev_2', 0, 0, x'006c61'), ('rev_2', 0, 1, x'746572'), ('rev_2', 1, 0, ?), ('rev_3', 0, 0, x'00616263'), ('rev_3', 1, 0, ?)`,
			[]any{emptyPage(), emptyPage()}},
	} {
		if _, err := db.ExecContext(t.Context(), statement.query, statement.args...); err != nil {
			t.Fatal(err)
		}
	}
}

// emptyPage returns a page without routes: the version of its form, and their number.
func emptyPage() []byte { return []byte{1, 0} }
