package postgres

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/keygatetest/postgrestest"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/store/rows"
	"github.com/keygate/keygate/internal/store/state"
)

func change(t *testing.T, db *DB) error {
	t.Helper()
	return db.Update(t.Context(), func(tx control.Tx) error {
		_, err := tx.AppendChange(t.Context(), snapshot.KeyChange, "key_1")
		return err
	})
}

// Guarantee: a node that is stopped while it holds the head does not stop the others: the server ends
// its transaction.
func TestStoppedNode(t *testing.T) {
	url := migrated(t)
	stopped, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer stopped.Close(context.Background())
	if _, err := stopped.PgConn().Exec(t.Context(), openWith(t, Config{URL: url}).begin(headFirst)).ReadAll(); err != nil {
		t.Fatal(err)
	}
	db := openWith(t, Config{URL: url})
	for err = change(t, db); fault.CodeOf(err) == fault.Unavailable; { // it may have waited for too long
		err = change(t, db)
	}
	if err != nil {
		t.Error(err)
	}
	if _, err := stopped.Exec(t.Context(), `UPDATE change_head SET number = number + 1`); err == nil {
		t.Error("the stopped node goes on with its transaction")
	}
}

// Guarantee: a transaction that the server ends to resolve a conflict is made again, and nothing of the
// first attempt remains.
func TestConflictIsRetried(t *testing.T) {
	db := fresh(t)
	calls := 0
	err := db.Update(t.Context(), func(c control.Tx) error {
		if _, err := c.AppendChange(t.Context(), snapshot.KeyChange, "key_1"); err != nil {
			return err
		}
		if calls++; calls < 3 {
			tx, _ := c.(*tx)
			_, err := tx.Exec(t.Context(), "fail", `DO $$ BEGIN RAISE EXCEPTION 'a deadlock' USING ERRCODE = '40P01'; END $$`)
			return err
		}
		return nil
	})
	if err != nil || calls != 3 {
		t.Errorf("got %d calls and the error %v, want 3 and none", calls, err)
	}
	if seq, err := db.LastSeq(t.Context()); seq != 1 || err != nil {
		t.Errorf("the last change has the number %d, error %v; want 1", seq, err)
	}
}

// Guarantee: reads of pages, changes and the data plane go on while as many searches as may run at
// once are running. A further search waits for one of them.
func TestSearchesHaveConnectionsOfTheirOwn(t *testing.T) {
	db := fresh(t)
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
	if err := change(t, db); err != nil {
		t.Error(err)
	}
	if _, err := db.LastSeq(t.Context()); err != nil {
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
// the context, and the connections serve the next searches.
func TestSearchStopsWithItsContext(t *testing.T) {
	db := fresh(t)
	const endless = `WITH RECURSIVE n (i) AS (SELECT 1::bigint UNION ALL SELECT i + 1 FROM n) SELECT `
	for range searchers + 1 {
		ctx, cancel := context.WithCancel(t.Context())
		err := db.search(ctx, func(t *readTx) error {
			return t.Query(ctx, "count for ever", endless+`i FROM n`, nil, func(*rows.Row) error {
				cancel() // in the first row, so that the statement is running
				return nil
			})
		})
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v, want the error of the context", err)
		}
	}
	if db.Trouble() != "" {
		t.Error("a search that was given up counts as trouble")
	}
	if err := db.Search(t.Context(), func(tx control.ReadTx) error {
		_, err := tx.KeysToIndex(t.Context(), 1)
		return err
	}); err != nil {
		t.Error(err)
	}
}

// Guarantee: a server that accepts no writes any more, as after a failover, is left: changes are 503, the
// store says so, and everything goes on once a server accepts writes. No error shows the driver's text.
func TestReadOnlyServer(t *testing.T) {
	s := postgrestest.Start(t, postgrestest.Config{})
	db := openWith(t, Config{URL: s.Database(t, "")})
	if err := change(t, db); err != nil {
		t.Fatal(err)
	}
	set := func(value string) {
		t.Helper()
		if err := s.Admin(t.Context(), `ALTER SYSTEM SET default_transaction_read_only = `+value, `SELECT pg_reload_conf()`); err != nil {
			t.Fatal(err)
		}
	}
	set("on")
	err := change(t, db)
	for err == nil { // sessions read the setting some moments later
		err = change(t, db)
	}
	var public *fault.Error
	if !errors.As(err, &public) || public.Code != fault.Unavailable || public.Message != readOnlyMessage || db.Trouble() != state.Unavailable {
		t.Errorf("got the error %v and the trouble %q, want the server to be read-only", err, db.Trouble())
	}
	if err := change(t, db); fault.CodeOf(err) != fault.Unavailable {
		t.Errorf("on a new connection: got %v, want it to be refused", err)
	}
	set("off")
	for err = change(t, db); err != nil; {
		err = change(t, db)
	}
	if db.Trouble() != "" {
		t.Errorf("afterwards the store is in trouble: %s", db.Trouble())
	}
}

// Guarantee: calls of a store that was closed are fault.Unavailable, and Close waits for a running
// transaction.
func TestClosedStore(t *testing.T) {
	db, err := Open(t.Context(), Config{URL: migrated(t)})
	if err != nil {
		t.Fatal(err)
	}
	began, end, ended, closed := make(chan struct{}), make(chan struct{}), make(chan error, 1), make(chan error, 1)
	go func() {
		ended <- db.View(t.Context(), func(control.ReadTx) error {
			close(began)
			<-end
			return nil
		})
	}()
	<-began
	go func() { closed <- db.Close() }()
	select {
	case <-closed:
		t.Error("Close did not wait")
	default:
	}
	close(end)
	if err := errors.Join(<-ended, <-closed); err != nil {
		t.Error(err)
	}
	if err := change(t, db); fault.CodeOf(err) != fault.Unavailable {
		t.Errorf("a change got %v, want it to be unavailable", err)
	}
	if err := db.View(t.Context(), func(control.ReadTx) error { return nil }); fault.CodeOf(err) != fault.Unavailable {
		t.Errorf("a view got %v, want it to be unavailable", err)
	}
}

// Guarantee: however many calls run at once, a store has at most sixteen connections, and all calls are
// served.
func TestConnectionsAreBounded(t *testing.T) {
	const most = 16
	url := migrated(t)
	db := openWith(t, Config{URL: url})
	watch, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close(context.Background())
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			err := errors.Join(change(t, db), db.View(t.Context(), func(control.ReadTx) error { return nil }),
				db.Search(t.Context(), func(control.ReadTx) error { return nil }),
				db.write(t.Context(), func(*tx) error { return nil }))
			_, readErr := db.LastSeq(t.Context())
			if err := errors.Join(err, readErr); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	var open int
	const count = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`
	if err := watch.QueryRow(t.Context(), count).Scan(&open); err != nil || open > most {
		t.Errorf("the store has %d connections, error %v; want at most %d", open, err, most)
	}
}
