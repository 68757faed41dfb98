package sqlite

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/store/rows"
)

// Guarantee: reads of pages, changes and the data plane go on while as many searches as may run at
// once are running. A further search waits for one of them.
func TestSearchesHaveConnectionsOfTheirOwn(t *testing.T) {
	db, err := Open(t.Context(), Config{Path: filepath.Join(t.TempDir(), "keygate.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	running, end, ended := make(chan struct{}), make(chan struct{}), make(chan error)
	for range searchers {
		go func() {
			ended <- db.Search(t.Context(), func(control.ReadTx) error {
				running <- struct{}{}
				<-end
				return nil
			})
		}()
		<-running
	}
	if err := db.View(t.Context(), func(control.ReadTx) error { return nil }); err != nil {
		t.Error(err)
	}
	if err := db.Update(t.Context(), func(control.Tx) error { return nil }); err != nil {
		t.Error(err)
	}
	if _, err := db.AuditWaiting(t.Context()); err != nil {
		t.Error(err)
	}
	next := make(chan error)
	go func() { next <- db.Search(t.Context(), func(control.ReadTx) error { return nil }) }()
	select {
	case <-next:
		t.Error("one more search ran; want it to wait")
	default:
	}
	close(end)
	for range searchers {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if err := <-next; err != nil {
		t.Error(err)
	}
}

// Guarantee: the end of a search's context stops a statement that would run for ever, with the error of
// the context, and the connection serves the next search.
func TestSearchStopsWithItsContext(t *testing.T) {
	db, err := Open(t.Context(), Config{Path: filepath.Join(t.TempDir(), "keygate.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	const endless = `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT `
	for range 2 * searchers {
		ctx, cancel := context.WithCancel(t.Context())
		err := db.search(ctx, func(t *readTx) error {
			return t.Query(ctx, "count for ever", endless+`i FROM n`, nil, func(r *rows.Row) error {
				cancel() // in the first row, so that the statement is running
				return nil
			})
		})
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v, want the error of the context", err)
		}
		ctx, cancel = context.WithCancel(t.Context())
		go cancel() // before the statement begins, or while it looks for its only row
		err = db.search(ctx, func(t *readTx) error {
			return t.Query(ctx, "count for ever", endless+`count(*) FROM n`, nil, func(*rows.Row) error { return nil })
		})
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v, want the error of the context", err)
		}
	}
	if err := db.Search(t.Context(), func(tx control.ReadTx) error {
		_, err := tx.KeysToIndex(t.Context(), 1)
		return err
	}); err != nil {
		t.Error(err)
	}
}
