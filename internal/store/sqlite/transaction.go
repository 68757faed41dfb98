package sqlite

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/store/rows"
	"github.com/keygate/keygate/internal/store/state"
)

var (
	_ control.Store  = (*DB)(nil)
	_ control.Tx     = (*tx)(nil)
	_ control.ReadTx = (*readTx)(nil)
)

// errEnded is returned by a transaction that is used after its function has returned.
var errEnded = errors.New("the transaction has ended")

// durability is what a committed transaction survives. It is a value of SQLite's PRAGMA
// synchronous.
type durability string

const (
	// onDisk survives a power failure, and so does everything committed before it.
	onDisk durability = "FULL"
	// inOrder survives the end of the process. A power failure may undo the last of these
	// transactions, each as a whole and the latest first.
	inOrder durability = "NORMAL"
)

// Update implements control.Store. f must not call Update. If a statement failed, the
// transaction is rolled back even if f returns nil. If ctx ends before COMMIT starts, the
// transaction is rolled back; after that ctx has no effect.
func (db *DB) Update(ctx context.Context, f func(control.Tx) error) error {
	return db.update(ctx, onDisk, func(t *tx) error { return f(t) })
}

// write is Update for the transactions of this package.
func (db *DB) write(ctx context.Context, f func(t *tx) error) error {
	return db.update(ctx, onDisk, f)
}

// record does what write does, for records of traffic, which are written many times a second and
// need to survive only the end of the process: it does not wait for the disk.
func (db *DB) record(ctx context.Context, f func(t *tx) error) error {
	return db.update(ctx, inOrder, f)
}

func (db *DB) update(ctx context.Context, d durability, f func(*tx) error) error {
	c, err := db.writer.take(ctx)
	if err != nil {
		return err
	}
	defer db.writer.give(c)
	if err := c.synchronous(d); err != nil {
		return db.fail(translate("set the durability", err))
	}
	if _, err := c.exec("BEGIN IMMEDIATE"); err != nil {
		return db.fail(translate("begin", err))
	}
	t := &tx{readTx: readTx{c: c}, now: db.now}
	t.Reader = rows.Reader{ReadTx: &t.readTx, Pages: c.pages, Codec: c.codec}
	t.Writer = rows.NewWriter(&t.Reader, t)
	committed := false
	defer func() { // even if f panics
		if code := fault.CodeOf(t.failed); t.failed != nil && (code == fault.Unavailable || code == fault.Internal) {
			_ = db.fail(t.failed)
		}
		t.failed = errEnded
		if !committed {
			c.rollback()
		}
	}()
	if db.beforeWrite != nil {
		if err := db.beforeWrite(); err != nil {
			return err
		}
	}
	count := db.count(t)
	if err := f(t); err != nil {
		return err
	}
	if t.failed != nil {
		return t.failed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	defer count()()
	if _, err := c.exec("COMMIT"); err != nil {
		return db.fail(translate("commit", err))
	}
	committed = true
	if t.wrote {
		db.Wrote()
	}
	db.checkpointer.committed()
	return nil
}

// count begins to count the rows that a transaction changes, for Config.Counted. It returns a function to call before
// COMMIT, which returns another to call after it.
func (db *DB) count(t *tx) func() func() {
	if db.counted == nil {
		return func() func() { return func() {} }
	}
	total := func() (n int64) {
		_ = t.Query(context.Background(), "count changed rows", `SELECT total_changes()`, nil, func(r *rows.Row) error { return r.Scan(&n) })
		return n
	}
	begun, before := time.Now(), total()
	return func() func() {
		rows := total() - before
		return func() { db.counted(state.Counted{Rows: rows, Took: time.Since(begun)}) }
	}
}

// View implements control.Store.
func (db *DB) View(ctx context.Context, f func(control.ReadTx) error) error {
	return view(ctx, db.readers, func(t *readTx) error { return f(t) })
}

// Search implements control.Store.
func (db *DB) Search(ctx context.Context, f func(control.ReadTx) error) error {
	return db.search(ctx, func(t *readTx) error { return f(t) })
}

// search reads for a report of this package, as Store.Search does.
func (db *DB) search(ctx context.Context, f func(*readTx) error) error {
	return view(ctx, db.searchers, func(t *readTx) error {
		t.interrupt = ctx
		return f(t)
	})
}

// view runs f in a reading transaction on a connection of p.
func view(ctx context.Context, p *pool, f func(*readTx) error) error {
	c, err := p.take(ctx)
	if err != nil {
		return err
	}
	defer p.give(c)
	if _, err := c.exec("BEGIN"); err != nil {
		return translate("begin", err)
	}
	t := &readTx{c: c}
	t.Reader = rows.Reader{ReadTx: t, Pages: c.pages, Codec: c.codec}
	defer func() {
		t.failed = errEnded
		c.rollback()
	}()
	return f(t)
}

// readTx reads within a transaction.
type readTx struct {
	rows.Reader
	c *conn
	// failed is the error of the first statement that failed. Every later call returns it:
	// SQLite may have rolled back, so that later statements would be committed one by one.
	failed error
	// interrupt interrupts a running statement when it ends; nil lets statements run to
	// their ends.
	interrupt context.Context //nolint:containedctx // of the transaction, which does not outlive the call
}

// tx also writes.
type tx struct {
	readTx
	rows.Writer
	now   func() int64 // microseconds since 1970
	wrote bool         // whether a statement has changed a row

	configuration int64 // that NoteConfiguration has noted
}

var _ rows.Tx = (*tx)(nil)

// Ready implements rows.Queries.
func (t *readTx) Ready(ctx context.Context) error {
	if t.failed != nil {
		return t.failed
	}
	return ctx.Err()
}

// Query implements rows.Queries. The statement runs to its end even if ctx ends,
// because interrupting it could roll back the transaction, except in a Search.
func (t *readTx) Query(ctx context.Context, what, query string, args []any, scan func(*rows.Row) error) error {
	if err := t.Ready(ctx); err != nil {
		return err
	}
	during := t.interrupt
	if during == nil {
		during = context.Background()
	}
	if err := t.c.query(during, query, args, scan); err != nil {
		t.failed = cmp.Or(during.Err(), translate(what, err))
		return t.failed
	}
	return nil
}

// Exec implements rows.Statements.
func (t *tx) Exec(ctx context.Context, what, statement string, args ...any) (int64, error) {
	if err := t.Ready(ctx); err != nil {
		return 0, err
	}
	n, err := t.c.exec(statement, args...)
	if err != nil {
		return 0, t.Fail(translate(what, err))
	}
	t.wrote = t.wrote || n > 0
	return n, nil
}

// Queue implements rows.Statements. It runs the statement at once.
func (t *tx) Queue(ctx context.Context, what, statement string, args ...any) error {
	_, err := t.Exec(ctx, what, statement, args...)
	return err
}

// QueueEach implements rows.Statements.
func (t *tx) QueueEach(ctx context.Context, what, statement string, args ...any) error {
	return rows.EachRow(args, func(args []any) error { return t.Queue(ctx, what, statement, args...) })
}

// QueryEach implements rows.Statements.
func (t *tx) QueryEach(ctx context.Context, what, query string, args []any, scan func(*rows.Row) error) error {
	return rows.EachRow(args, func(args []any) error { return t.Query(ctx, what, query, args, scan) })
}

// QueueOne implements rows.Statements.
func (t *tx) QueueOne(ctx context.Context, what, record, statement string, args ...any) error {
	n, err := t.Exec(ctx, what, statement, args...)
	if err == nil && n == 0 {
		return t.Fail(fault.Missing(record))
	}
	return err
}

// QueueOrFail implements rows.Statements.
func (t *tx) QueueOrFail(ctx context.Context, what string, fails error, statement string, args ...any) error {
	n, err := t.Exec(ctx, what, statement, args...)
	if err == nil && n == 0 {
		return t.Fail(fails)
	}
	return err
}

// MayDelete implements rows.Statements.
func (t *tx) MayDelete(ctx context.Context, _, _ string, _ ...any) (bool, error) {
	return true, t.Ready(ctx)
}

// Delete implements rows.Statements.
func (t *tx) Delete(ctx context.Context, what, statement string, args ...any) (int64, error) {
	return t.Exec(ctx, what, statement, args...)
}

// Held implements rows.Tx.
func (t *tx) Held() bool { return false }

// Now implements rows.Tx.
func (t *tx) Now() int64 { return t.now() }

// Fail implements rows.Statements.
func (t *tx) Fail(err error) error {
	t.failed = cmp.Or(t.failed, err)
	return t.failed
}
