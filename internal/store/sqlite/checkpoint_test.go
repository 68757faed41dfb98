package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/traffic"
)

// Guarantee: the checkpointer writes committed changes back into the file in the background, however
// small they are.
func TestCheckpointerWritesBack(t *testing.T) {
	db := fresh(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for range 3 { // with a first estimate, and with later ones
		before := db.Stats().Database
		body := make([]byte, 200<<10) // pages: a tenth of backstopPages and less
		err := db.AppendTraffic(t.Context(), accesslog.BatchID{}, []traffic.Chunk{{AccountID: id.New(id.Account), Tier: traffic.Minutes, Start: 60, Body: body}})
		if err != nil {
			t.Fatal(err)
		}
		for db.Stats().Database < before+int64(len(body)) {
			select {
			case <-poll.C:
			case <-ctx.Done():
				t.Fatal("the file did not grow")
			}
		}
	}
}

// Guarantee: a checkpoint that finds another checkpoint running does not change the time at which the next is due.
func TestCheckpointerBesideAnother(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keygate.db")
	db, err := Open(t.Context(), Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	other, err := (&DB{}).connect(Config{Path: path, BusyTimeout: 5 * time.Minute}, true, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close() })
	appendChunk(t, db)
	var ended <-chan error
	err = db.View(t.Context(), func(tx control.ReadTx) error {
		if _, err := tx.AccountByName(t.Context(), "nobody"); fault.CodeOf(err) != fault.NotFound {
			return err
		}
		appendChunk(t, db)
		ended = startCheckpoint(other)
		c := &checkpointer{db: db, from: db.checkpointer.from, pages: 10}
		if err := awaitCheckpoint(t.Context(), c.from, ended); err != nil {
			return err
		}
		c.due.Store(7)
		c.checkpoint(1000)
		if c.due.Load() != 7 || c.pages != 10 {
			t.Errorf("got due %d and pages %d, want them unchanged: 7 and 10", c.due.Load(), c.pages)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if ended == nil {
		return
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// appendChunk commits a small change.
func appendChunk(t *testing.T, db *DB) {
	t.Helper()
	err := db.AppendTraffic(t.Context(), accesslog.BatchID{}, []traffic.Chunk{{AccountID: id.New(id.Account), Tier: traffic.Minutes, Start: 60, Body: []byte{0}}})
	if err != nil {
		t.Fatal(err)
	}
}

// startCheckpoint starts a checkpoint that holds the lock while it waits for readers. The
// channel receives its error, if there is one, and is closed at its end.
func startCheckpoint(db *sql.DB) <-chan error {
	ended := make(chan error, 1)
	go func() {
		defer close(ended)
		for busy := int64(1); busy != 0; { // busy if it collided with a check of awaitCheckpoint
			var pages, written int64
			if err := db.QueryRowContext(context.Background(), "PRAGMA wal_checkpoint(RESTART)").Scan(&busy, &pages, &written); err != nil {
				ended <- err
				return
			}
		}
	}()
	return ended
}

// awaitCheckpoint waits until the checkpoint that startCheckpoint started holds the lock.
func awaitCheckpoint(ctx context.Context, db *sql.DB, ended <-chan error) error {
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for busy := int64(0); busy == 0; {
		var pages, written int64
		if err := db.QueryRowContext(ctx, "PRAGMA wal_checkpoint(PASSIVE)").Scan(&busy, &pages, &written); err != nil {
			return err
		}
		select {
		case <-poll.C:
		case err := <-ended:
			return fmt.Errorf("the other checkpoint did not wait: %w", err)
		}
	}
	return nil
}
