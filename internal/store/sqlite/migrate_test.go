package sqlite

import (
	"bytes"
	"context"
	"io/fs"
	"path/filepath"
	"testing"
	"testing/fstest"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/webhook"
)

// Guarantee: the migration of a database from before webhooks keeps its events, which are listed
// and trimmed like new ones.
func TestMigrationKeepsEvents(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "keygate.db")
	a := &account.Account{ID: id.New(id.Account), Name: "a", Plan: account.Starter, CreatedAt: time.Now()}
	old, err := event.New(a.ID, event.KeyCreated, time.Now(), event.Key{})
	if err != nil {
		t.Fatal(err)
	}
	writeFirstSchema(t, path, a, &old)
	db, err := Open(ctx, Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	events := func() (list []event.Event) {
		t.Helper()
		err := db.View(ctx, func(tx control.ReadTx) (err error) {
			list, err = tx.Events(ctx, a.ID, control.EventFilter{Type: event.KeyCreated}, control.Page{Limit: 10})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	if list := events(); len(list) != 1 || !bytes.Equal(list[0].Payload, old.Payload) {
		t.Errorf("got the events %+v, want the old one", list)
	}
	err = db.Update(ctx, func(tx control.Tx) error {
		w := &webhook.Webhook{ID: id.New(id.Webhook), AccountID: a.ID, URL: "https://a.example", Events: []event.Type{event.KeyCreated},
			State: webhook.Active, Secret: []byte("s"), Version: 1}
		if err := tx.InsertWebhook(ctx, w); err != nil {
			return err
		}
		_, err := tx.Trim(ctx, time.Now(), time.Now(), time.Now().Add(time.Hour), 0, 10)
		return err
	})
	if err != nil || len(events()) != 0 {
		t.Errorf("after trimming: got %d events (%v), want none", len(events()), err)
	}
}

// writeFirstSchema creates a database of the first schema with an account and an event.
func writeFirstSchema(t *testing.T, path string, a *account.Account, e *event.Event) {
	t.Helper()
	const first = "00001_first.sql"
	text, err := fs.ReadFile(migrations, "migrations/"+first)
	if err != nil {
		t.Fatal(err)
	}
	if err := prepareFile(path); err != nil {
		t.Fatal(err)
	}
	store := &DB{}
	db, err := store.connect(Config{Path: path, BusyTimeout: time.Second}, true, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, fstest.MapFS{first: {Data: text}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := provider.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, s := range []struct {
		query string
		args  []any
	}{
		{`INSERT INTO accounts (id, name, plan, created_at) VALUES (?, ?, ?, ?)`, []any{a.ID, a.Name, string(a.Plan), micros(a.CreatedAt)}},
		{`INSERT INTO events (id, account_id, type, created_at, payload) VALUES (?, ?, ?, ?, ?)`,
			[]any{e.ID, e.AccountID, string(e.Type), micros(e.CreatedAt), e.Payload}},
	} {
		if _, err := db.ExecContext(t.Context(), s.query, s.args...); err != nil {
			t.Fatal(err)
		}
	}
}
