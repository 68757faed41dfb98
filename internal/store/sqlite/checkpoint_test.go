package sqlite

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

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
		err := db.AppendTraffic(t.Context(), []traffic.Chunk{{AccountID: id.New(id.Account), Tier: traffic.Minutes, Start: 60, Body: body}})
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

// Guarantee: a checkpoint that finds another one running does not change when the next is due.
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
	write := func() {
		t.Helper()
		err := db.AppendTraffic(t.Context(), []traffic.Chunk{{AccountID: id.New(id.Account), Tier: traffic.Minutes, Start: 60, Body: []byte{0}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	write()
	ended := make(chan error, 1)
	err = db.View(t.Context(), func(tx control.ReadTx) error {
		if _, err := tx.AccountByName(t.Context(), "nobody"); fault.CodeOf(err) != fault.NotFound {
			return err
		}
		write()
		// This checkpoint holds the lock while it waits for the reader.
		go func() {
			defer close(ended)
			for busy := int64(1); busy != 0; { // busy if it collided with one of the checks below
				var pages, written int64
				if err := other.QueryRowContext(context.Background(), "PRAGMA wal_checkpoint(RESTART)").Scan(&busy, &pages, &written); err != nil {
					ended <- err
					return
				}
			}
		}()
		c := &checkpointer{db: db, from: db.checkpointer.from, pages: 10}
		poll := time.NewTicker(time.Millisecond)
		defer poll.Stop()
		for busy := int64(0); busy == 0; {
			var pages, written int64
			if err := c.from.QueryRowContext(t.Context(), "PRAGMA wal_checkpoint(PASSIVE)").Scan(&busy, &pages, &written); err != nil {
				return err
			}
			select {
			case <-poll.C:
			case err := <-ended:
				return fmt.Errorf("the other checkpoint did not wait: %w", err)
			}
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
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
