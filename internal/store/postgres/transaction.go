package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
)

// errEnded is returned by a transaction that is used after its function has returned.
var errEnded = errors.New("the transaction has ended")

const (
	// writeTime bounds a writing transaction, from the lock of the head to COMMIT.
	writeTime = 5 * time.Second
	// readTime bounds each statement of a reading transaction.
	readTime = time.Minute
	// streamTime is readTime for statements that read a large part of the database.
	streamTime = 10 * time.Minute
	// attempts is how often a transaction is tried that the server ends to resolve a
	// conflict, and that is lost before it has begun.
	attempts = 5
)

// The statements that begin a transaction. Each is sent at once, in one round trip. The server
// ends a transaction by itself if its process is stopped or cannot be reached. A lock is waited for
// less long than a statement may take, so that the error says which it was.
const (
	limits = `SET LOCAL statement_timeout = 5000; SET LOCAL lock_timeout = 4000; SET LOCAL idle_in_transaction_session_timeout = 5000; `
	// Whatever the server's default is, a commit waits at least for the server's disk.
	durable    = `SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') IN ('off', 'local'); `
	beginWrite = `BEGIN ISOLATION LEVEL READ COMMITTED; ` + limits + durable
	// The second statement sees every node that joined before the first one got the lock.
	beginUpdate = beginWrite + `SELECT number, mark, pg_current_xact_id()::text FROM change_head FOR UPDATE; ` +
		`SELECT format, name, version FROM nodes WHERE state = 'live' ORDER BY format LIMIT 1`
	beginRecord = `BEGIN ISOLATION LEVEL READ COMMITTED; ` + limits + `SET LOCAL synchronous_commit = local`
	beginView   = `BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY; SET LOCAL statement_timeout = 60000; SET LOCAL idle_in_transaction_session_timeout = 60000`
	beginStream = `BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY; SET LOCAL statement_timeout = 600000; SET LOCAL idle_in_transaction_session_timeout = 600000`
)

// mutate runs f in a transaction that holds the head of the change log. f must not call mutate. If
// a statement failed, the transaction is rolled back even if f returns nil. If ctx ends before
// COMMIT starts, the transaction is rolled back; after that ctx has no effect. f is called again if
// the server ended the transaction to resolve a conflict.
func (db *DB) mutate(ctx context.Context, f func(t *tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case db.head <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-db.head }()
	return db.update(ctx, beginUpdate, f)
}

// write runs f in a transaction that does not take the head: f must lock what it reads before
// it changes it.
func (db *DB) write(ctx context.Context, f func(t *tx) error) error {
	return db.update(ctx, beginWrite, f)
}

// record is write for records of traffic, which are written many times a second: COMMIT waits for
// the server's disk, and for no replica.
func (db *DB) record(ctx context.Context, f func(t *tx) error) error {
	return db.update(ctx, beginRecord, f)
}

// update runs f in a transaction that begin begins, and again after a conflict.
func (db *DB) update(ctx context.Context, begin string, f func(*tx) error) (err error) {
	for attempt := 1; ; attempt++ {
		var again bool
		if again, err = db.try(ctx, begin, f); err == nil {
			db.wrote()
			return nil
		}
		if attempt == attempts || !again || ctx.Err() != nil {
			return err
		}
	}
}

// try runs one transaction. again says that it changed nothing and may succeed the next time.
func (db *DB) try(ctx context.Context, begin string, f func(*tx) error) (again bool, err error) {
	c, err := db.writer.take(ctx)
	if err != nil {
		return false, db.failUnlessOver(ctx, err)
	}
	defer db.writer.give(c)
	t := &tx{readTx: readTx{c: c, limit: writeTime}, now: db.now, random: db.random}
	if err := t.begin(ctx, begin); err != nil {
		c.abandon()
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		return lost(err), db.fail(translate("begin", err))
	}
	committed := false
	defer func() { // even if f panics
		if !committed {
			t.failed = errEnded
			c.abandon()
		}
	}()
	count := db.count(t)
	if err := f(t); err != nil {
		return db.afterFailure(t, cmp.Or(t.late, err))
	}
	defer count()()
	if t.failed != nil {
		return db.afterFailure(t, t.failed)
	}
	if err := ctx.Err(); err != nil {
		return false, err
	}
	t.failed, committed = errEnded, true
	if err := t.commit(); err != nil {
		open := c.inTransaction()
		c.abandon()
		if open { // the server has not carried out COMMIT: a statement before it failed
			return db.afterFailure(t, t.fail("commit", err))
		}
		return db.afterCommit(t, err)
	}
	return false, nil
}

// failUnlessOver notes an error of taking a connection, but not the end of ctx.
func (db *DB) failUnlessOver(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	return db.fail(err)
}

// afterFailure returns what try returns for err, the error of the function of a transaction, or
// of one of its statements.
func (db *DB) afterFailure(t *tx, err error) (again bool, _ error) {
	if code := fault.CodeOf(t.failed); t.failed != nil && (code == fault.Unavailable || code == fault.Internal) {
		state := stateOf(t.failed)
		switch {
		case state == serialization || state == deadlock:
			return true, err
		case errors.Is(t.failed, errOlderNode): // nothing is wrong with the database
			return false, err
		}
		_ = db.fail(t.failed)
	}
	return false, err
}

// afterCommit returns what try returns for err, the error of COMMIT. If the connection was
// lost, it asks the server what became of the transaction.
func (db *DB) afterCommit(t *tx, err error) (again bool, _ error) {
	switch state := stateOf(err); {
	case state == serialization || state == deadlock:
		return true, translate("commit", err)
	case state != "" && !lost(err):
		return false, db.fail(translate("commit", err))
	case t.xid == "":
		return false, db.fail(inDoubt(err))
	}
	committed, askErr := db.outcome(t.xid)
	switch {
	case askErr != nil:
		return false, db.fail(inDoubt(errors.Join(err, askErr)))
	case committed:
		return false, nil
	default:
		return false, db.fail(translate("commit", err))
	}
}

// inDoubt returns the error of a transaction whose COMMIT had no response, only err.
func inDoubt(err error) error {
	return &fault.Error{Code: fault.Unavailable, Message: unknownMessage, Err: fmt.Errorf("commit: %w: %w", control.ErrInDoubt, err)}
}

// outcome returns whether a transaction was committed whose COMMIT had no response.
func (db *DB) outcome(xid string) (committed bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), writeTime)
	defer cancel()
	for {
		var status *string
		// It may be the connection that is broken, and then the next one is new.
		err := db.writer.QueryRow(ctx, `SELECT pg_xact_status($1::text::xid8)`, xid).Scan(&status)
		if err == nil && status == nil {
			return false, errors.New("the server does not know the transaction any more")
		}
		if err == nil && *status != "in progress" {
			return *status == "committed", nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return false, errors.Join(err, ctx.Err())
		}
	}
}

// search reads for a report of this package, as Store.Search does.
func (db *DB) search(ctx context.Context, f func(*readTx) error) error {
	return db.view(ctx, db.searchers, func(t *readTx) error {
		t.interrupt = ctx
		return f(t)
	})
}

// view runs f in a reading transaction on a connection of p.
func (db *DB) view(ctx context.Context, p *pool, f func(*readTx) error) error {
	return db.viewFor(ctx, p, beginView, readTime, f)
}

// stream is view for statements that read a large part of the database.
func (db *DB) stream(ctx context.Context, p *pool, f func(*readTx) error) error {
	return db.viewFor(ctx, p, beginStream, streamTime, f)
}

func (db *DB) viewFor(ctx context.Context, p *pool, begin string, limit time.Duration, f func(*readTx) error) error {
	for attempt := 1; ; attempt++ {
		c, err := p.take(ctx)
		if err != nil {
			if ctx.Err() == nil {
				_ = db.note(err)
			}
			return err
		}
		t := &readTx{c: c, limit: limit}
		if err = t.begin(ctx, begin); err == nil {
			return db.run(t, p, f)
		}
		c.abandon()
		p.give(c)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !lost(err) || attempt == attempts {
			return db.note(translate("begin", err))
		}
	}
}

// statement runs f, which reads by one statement, without a transaction, on a connection of p. f is called again if
// the connection was lost.
func (db *DB) statement(ctx context.Context, p *pool, limit time.Duration, f func(*readTx) error) error {
	for attempt := 1; ; attempt++ {
		c, err := p.take(ctx)
		if err != nil {
			if ctx.Err() == nil {
				_ = db.note(err)
			}
			return err
		}
		t := &readTx{c: c, limit: limit}
		err = f(t)
		failed := t.failed
		t.failed = errEnded
		p.give(c)
		switch {
		case failed == nil:
			return err
		case !lost(failed) || attempt == attempts || ctx.Err() != nil:
			_ = db.note(failed)
			return err
		}
	}
}

// run runs f in a reading transaction that has begun, and ends it.
func (db *DB) run(t *readTx, p *pool, f func(*readTx) error) error {
	defer func() {
		failed := t.failed
		t.failed = errEnded
		if failed != nil {
			if stateOf(failed) != queryCanceled { // a slow search says nothing of the store
				_ = db.note(failed)
			}
			t.c.abandon()
		} else if t.c.commit() != nil {
			t.c.abandon()
		}
		p.give(t.c)
	}()
	return f(t)
}

// readTx reads within a transaction.
type readTx struct {
	c *conn
	// failed is the error of the first statement that failed. Every later call returns it,
	// as the server would.
	failed error
	// late is failed if a queued statement failed. f may take it for the error of the statement that was sent
	// with it, so it takes precedence over the error that f returns.
	late        error
	queued      []statement // in a writing transaction
	queuedBytes int
	// limit bounds a statement; in a writing transaction, all statements until end.
	limit time.Duration
	end   time.Time // zero in a reading transaction
	// interrupt interrupts a running statement when it ends; nil lets statements run to
	// their ends.
	interrupt context.Context //nolint:containedctx // of the transaction, which does not outlive the call
	number    int64           // of the newest change, in an Update
	mark      []byte          // of the newest change, in an Update
	xid       string          // of the transaction, in an Update
	reader    *reader         // in an Update; nil without nodes
}

// tx also writes.
type tx struct {
	readTx
	now    func() int64 // microseconds since 1970
	random io.Reader    // for marks
	direct int          // deliveries of events that the transaction has written itself
}

// begin begins the transaction and reads the head if the statement does.
func (t *readTx) begin(ctx context.Context, statement string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*writeTime)
	defer cancel()
	results, err := t.c.Conn.Conn().PgConn().Exec(ctx, statement).ReadAll()
	if err != nil {
		return err
	}
	if statement == beginUpdate {
		head, oldest := results[len(results)-2].Rows, results[len(results)-1].Rows
		if len(head) != 1 {
			return errors.New("the table change_head does not have one row")
		}
		if err := errors.Join(t.scanHead(head[0]), t.scanReader(oldest)); err != nil {
			return err
		}
	}
	if t.limit == writeTime {
		t.end = time.Now().Add(writeTime)
	}
	return nil
}

// scanHead takes the values of the head, which are texts.
func (t *readTx) scanHead(row [][]byte) error {
	if _, err := fmt.Sscanf(string(row[0]), "%d", &t.number); err != nil {
		return fmt.Errorf("read the head of the change log: %w", err)
	}
	if _, err := fmt.Sscanf(string(row[1]), `\x%x`, &t.mark); err != nil {
		return fmt.Errorf("read the head of the change log: %w", err)
	}
	t.xid = string(row[2])
	return nil
}

// scanReader takes the node that reads the oldest format, if there is one.
func (t *readTx) scanReader(rows [][][]byte) error {
	if len(rows) == 0 {
		return nil
	}
	format, err := strconv.Atoi(string(rows[0][0]))
	if err != nil {
		return fmt.Errorf("read the formats of the nodes: %w", err)
	}
	t.reader = &reader{format: format, name: string(rows[0][1]), version: string(rows[0][2])}
	return nil
}

// reader is the node with a lease that reads the oldest format of changes.
type reader struct {
	format        int
	name, version string
}

// ready returns an error if no statement may run.
func (t *readTx) ready(ctx context.Context) error {
	if t.failed != nil {
		return t.failed
	}
	return ctx.Err()
}

// during returns the context of a statement.
func (t *readTx) during() (context.Context, context.CancelFunc) {
	base := t.interrupt
	if base == nil {
		base = context.Background()
	}
	if !t.end.IsZero() {
		return context.WithDeadline(base, t.end)
	}
	return context.WithTimeout(base, t.limit)
}

// fault returns the error of a statement that failed with err.
func (t *readTx) fault(what string, err error) error {
	if t.interrupt != nil && t.interrupt.Err() != nil {
		return t.interrupt.Err()
	}
	return translate(what, err)
}

// rows calls scan for each row of the result, which must not use the transaction. The statement
// runs to its end even if ctx ends, except in a Search.
func (t *readTx) rows(ctx context.Context, what, query string, args []any, scan func(pgx.Rows) error) error {
	if err := t.ready(ctx); err != nil {
		return err
	}
	during, cancel := t.during()
	defer cancel()
	if _, err := t.send(during, query, args, scan); err != nil {
		return t.fail(what, err)
	}
	return nil
}

// row calls scan for the only row of the result. If there is none, the error is
// fault.NotFound for what.
func (t *readTx) row(ctx context.Context, what, query string, args []any, scan func(pgx.Rows) error) error {
	found := false
	err := t.rows(ctx, "read "+what, query, args, func(r pgx.Rows) error {
		found = true
		return scan(r)
	})
	if err == nil && !found {
		return fault.Missing(what)
	}
	return err
}

// texts returns the only column of the result.
func (t *readTx) texts(ctx context.Context, what, query string, args ...any) (list []string, err error) {
	err = t.rows(ctx, what, query, args, func(r pgx.Rows) error {
		var s string
		err := r.Scan(&s)
		list = append(list, s)
		return err
	})
	return list, err
}

// exec runs a statement and returns how many rows it changed.
func (t *tx) exec(ctx context.Context, what, query string, args ...any) (int64, error) {
	if err := t.ready(ctx); err != nil {
		return 0, err
	}
	during, cancel := t.during()
	defer cancel()
	tag, err := t.send(during, query, args, func(pgx.Rows) error { return nil })
	if err != nil {
		return 0, t.fail(what, err)
	}
	return tag.RowsAffected(), nil
}

// must runs a statement that changes one row. If it changes none, the error is fault.NotFound
// for record.
func (t *tx) must(ctx context.Context, what, record, query string, args ...any) error {
	n, err := t.exec(ctx, what, query, args...)
	if err == nil && n == 0 {
		return fault.Missing(record)
	}
	return err
}

// commit commits the transaction. It sends what is queued with COMMIT.
func (t *tx) commit() error {
	if len(t.queued) == 0 {
		return t.c.commit()
	}
	ctx, cancel := context.WithTimeout(context.Background(), writeTime)
	defer cancel()
	tag, err := t.send(ctx, `COMMIT`, nil, func(pgx.Rows) error { return nil })
	return cmp.Or(err, committed(tag))
}

// commit commits a transaction that has nothing queued.
func (c *conn) commit() error {
	ctx, cancel := context.WithTimeout(context.Background(), writeTime)
	defer cancel()
	results, err := c.Conn.Conn().PgConn().Exec(ctx, `COMMIT`).ReadAll()
	if err != nil {
		return err
	}
	return committed(results[len(results)-1].CommandTag)
}

// committed returns an error if tag, that of COMMIT, says that the server has rolled the transaction back.
func committed(tag pgconn.CommandTag) error {
	if tag.String() != "COMMIT" {
		return &pgconn.PgError{Code: serialization, Message: "the server has rolled back"}
	}
	return nil
}

// inTransaction reports whether the connection works and the server has a transaction open on it.
func (c *conn) inTransaction() bool {
	p := c.Conn.Conn().PgConn()
	return !p.IsClosed() && p.TxStatus() != 'I'
}

// abandon rolls the transaction back, if there is one. If that fails, it closes the connection,
// which rolls back too.
func (c *conn) abandon() {
	ctx, cancel := context.WithTimeout(context.Background(), cancelGrace)
	defer cancel()
	p := c.Conn.Conn().PgConn()
	if p.IsClosed() || p.TxStatus() == 'I' {
		return
	}
	if _, err := p.Exec(ctx, `ROLLBACK`).ReadAll(); err != nil {
		_ = c.Conn.Conn().Close(ctx)
	}
}
