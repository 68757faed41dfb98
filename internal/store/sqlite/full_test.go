package sqlite

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/store/state"
)

// Guarantee: a change of a full database fails as a whole. The database can still be read, and
// changed once there is space. The failure is counted.
func TestFullDatabase(t *testing.T) {
	ctx := t.Context()
	db := fresh(t)
	a := account.Account{ID: id.New(id.Account), Name: "a", Tier: account.Scale, CreatedAt: time.Now()}
	g := gateway.Gateway{ID: id.New(id.Gateway), AccountID: a.ID, Hostname: "a.localhost", CreatedAt: time.Now()}
	update := func(f func(tx control.Tx) error) error { return db.Update(ctx, f) }
	if err := update(func(tx control.Tx) error { return errors.Join(tx.InsertAccount(ctx, &a), tx.InsertGateway(ctx, &g)) }); err != nil {
		t.Fatal(err)
	}
	limitPages(ctx, t, db, "100") // about 60 are in use

	content := make([]byte, 3000) // below the size from which content is compressed
	push := func(n int64) error {
		return update(func(tx control.Tx) error {
			g.Revision = n
			r := gateway.Revision{ID: id.New(id.Revision), GatewayID: g.ID, Number: n, CreatedAt: time.Now(), Content: content}
			return errors.Join(tx.UpdateGateway(ctx, &g), tx.InsertRevision(ctx, &r))
		})
	}
	check := func(t *testing.T, want int64) {
		t.Helper()
		err := db.View(ctx, func(tx control.ReadTx) error {
			stored, err := tx.Gateway(ctx, a.ID, g.ID)
			if err != nil {
				return err
			}
			revisions, err := tx.Revisions(ctx, g.ID, 1000, 0)
			if err == nil && (stored.Revision != want || int64(len(revisions)) != want) {
				t.Errorf("got the revision %d and %d revisions, want %d", stored.Revision, len(revisions), want)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	last := int64(0)
	if !t.Run("a change fails as a whole", func(t *testing.T) {
		err := push(last + 1)
		for ; err == nil; err = push(last + 1) {
			last++
		}
		var e *fault.Error
		if !errors.As(err, &e) || e.Code != fault.Unavailable || e.Message != fullMessage {
			t.Fatalf("a change of a full database returned %v, want unavailable", err)
		}
		if last == 0 {
			t.Fatal("the first change failed already")
		}
		check(t, last)
		if got := db.Trouble(); got != state.DiskFull {
			t.Errorf("the store is in trouble because of %q, want %s", got, state.DiskFull)
		}
	}) {
		return
	}
	t.Run("the failure is counted, a conflict is not", func(t *testing.T) {
		if err := update(func(tx control.Tx) error { return tx.InsertAccount(ctx, &a) }); fault.CodeOf(err) != fault.Conflict {
			t.Errorf("inserting an account twice returned %v, want a conflict", err)
		}
		if s := db.Stats(); s.Failures != 1 || s.Writes.Transactions < last+2 || s.Writes.Held <= 0 || s.Reads.Transactions != 1 || s.Database == 0 || s.Log == 0 {
			t.Errorf("got the stats %+v, want one failure", s)
		}
	})
	t.Run("changes succeed once there is space", func(t *testing.T) {
		limitPages(ctx, t, db, "1000000")
		if err := push(last + 1); err != nil {
			t.Fatal(err)
		}
		check(t, last+1)
		awaittest.True(t, "with space the store is out of trouble", func() bool {
			db.Probe(ctx)
			return db.Trouble() == ""
		})
	})
}

func limitPages(ctx context.Context, t *testing.T, db *DB, pages string) {
	t.Helper()
	c, err := db.writer.take(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer db.writer.give(c)
	if _, err := c.sql.ExecContext(ctx, "PRAGMA max_page_count = "+pages); err != nil {
		t.Fatal(err)
	}
}
