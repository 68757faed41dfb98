package sqlite_test

import (
	"errors"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/store/sqlite"
	"github.com/keygate/keygate/internal/store/sqlite/sqlitetest"
)

// Guarantee: while a store is dumped, no other process can change it, so that the dump lacks nothing.
func TestNothingIsWrittenDuringADump(t *testing.T) {
	path := sqlitetest.Path(t)
	db := sqlitetest.Open(t, sqlite.Config{Path: path})
	other := sqlitetest.Open(t, sqlite.Config{Path: path, BusyTimeout: time.Millisecond})
	insertAccount(t, other, "before")
	err := db.Dump(t.Context(), func(d *sqlite.Dump) error {
		unavailable(t, tryAccount(t.Context(), other, "during"), "")
		if n, err := d.Number(t.Context(), `SELECT count(*) FROM accounts`); n != 1 || err != nil {
			t.Errorf("the dump has %d accounts, error %v; want 1", n, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	insertAccount(t, other, "after")
	if got := accountNames(t, db); got != "before after" {
		t.Errorf("got the accounts %q", got)
	}
}

// Guarantee: a write that is refused before it begins changes nothing, and its error is returned.
func TestWriteIsRefusedBeforeItBegins(t *testing.T) {
	var refusal error
	db := sqlitetest.Open(t, sqlite.Config{BeforeWrite: func() error { return refusal }})
	insertAccount(t, db, "a")
	refusal = errors.New("moved")
	err := db.Update(t.Context(), func(control.Tx) error {
		t.Error("the transaction was begun")
		return nil
	})
	if !errors.Is(err, refusal) {
		t.Errorf("got the error %v, want the refusal", err)
	}
}
