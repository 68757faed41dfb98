package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
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

// record is write for records of traffic, which are written many times a second and need to
// survive only the end of the process: it does not wait for the disk.
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
		db.wrote()
	}
	db.checkpointer.committed()
	return nil
}

// count begins to count what a transaction changes, for Config.Counted. The function that it returns is called before
// COMMIT, and what that returns after it.
func (db *DB) count(t *tx) func() func() {
	if db.counted == nil {
		return func() func() { return func() {} }
	}
	total := func() (n int64) {
		_ = t.rows(context.Background(), "count changed rows", `SELECT total_changes()`, nil, func(r *sql.Rows) error { return r.Scan(&n) })
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
	defer func() {
		t.failed = errEnded
		c.rollback()
	}()
	return f(t)
}

// readTx reads within a transaction.
type readTx struct {
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
	now    func() int64 // microseconds since 1970
	wrote  bool         // whether a statement has changed a row
	direct int          // deliveries of events that the transaction has written itself
}

// ready returns an error if no statement may run.
func (t *readTx) ready(ctx context.Context) error {
	if t.failed != nil {
		return t.failed
	}
	return ctx.Err()
}

// rows calls scan for each row of the result. The statement runs to its end even if ctx ends,
// because interrupting it could roll back the transaction, except in a Search.
func (t *readTx) rows(ctx context.Context, what, query string, args []any, scan func(*sql.Rows) error) error {
	if err := t.ready(ctx); err != nil {
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

// row calls scan for the only row of the result. If there is none, the error is
// fault.NotFound for what.
func (t *readTx) row(ctx context.Context, what, query string, args []any, scan func(*sql.Rows) error) error {
	found := false
	err := t.rows(ctx, "read "+what, query, args, func(r *sql.Rows) error {
		found = true
		return scan(r)
	})
	if err == nil && !found {
		return fault.Missing(what)
	}
	return err
}

// exec runs a statement and returns how many rows it changed.
func (t *tx) exec(ctx context.Context, what, query string, args ...any) (int64, error) {
	if err := t.ready(ctx); err != nil {
		return 0, err
	}
	n, err := t.c.exec(query, args...)
	if err != nil {
		t.failed = translate(what, err)
		return 0, t.failed
	}
	t.wrote = t.wrote || n > 0
	return n, nil
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
