package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	driver "modernc.org/sqlite"
	result "modernc.org/sqlite/lib"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/store/rows"
)

// conn is a connection with its prepared statements. One goroutine uses it at a time.
type conn struct {
	from  *sql.DB
	codec *audit.Codec // for audit blocks
	pages *rows.PageCodec
	sql   *sql.Conn // nil until opened
	stmts map[string]*sql.Stmt
	since time.Time  // when it was taken from the pool
	row   *rows.Row  // that query uses; nil while it does
	level durability // "" for the level that connections are opened with
}

// open opens the connection if it is not open yet.
func (c *conn) open(ctx context.Context) error {
	if c.sql != nil {
		return nil
	}
	opened, err := c.from.Conn(ctx)
	if err != nil {
		return translate("open a connection", err)
	}
	c.sql, c.stmts = opened, map[string]*sql.Stmt{}
	return nil
}

// close closes the connection. open can open a new one.
func (c *conn) close() error {
	if c.sql == nil {
		return nil
	}
	var errs []error
	for _, s := range c.stmts {
		errs = append(errs, s.Close())
	}
	errs = append(errs, c.sql.Close())
	c.sql, c.stmts, c.level = nil, nil, ""
	return errors.Join(errs...)
}

// synchronous sets the durability of the following transactions. This PRAGMA takes effect
// when it is prepared, so it cannot be a prepared statement.
func (c *conn) synchronous(d durability) error {
	if c.level == d {
		return nil
	}
	if _, err := c.sql.ExecContext(context.Background(), "PRAGMA synchronous="+string(d)); err != nil {
		return err
	}
	c.level = d
	return nil
}

// stmt returns the prepared statement for query, which is rewritten as package rows says. Queries are constants or built
// from a few parts, so the map stays small.
func (c *conn) stmt(query string) (*sql.Stmt, error) {
	if s := c.stmts[query]; s != nil {
		return s, nil
	}
	s, err := c.sql.PrepareContext(context.Background(), rows.ForSQLite(query))
	if err != nil {
		return nil, fmt.Errorf("prepare %.60q: %w", query, err)
	}
	c.stmts[query] = s
	return s, nil
}

// exec runs a statement and returns how many rows it changed. It has no context: a statement
// always runs to its end.
func (c *conn) exec(query string, args ...any) (int64, error) {
	s, err := c.stmt(query) //nolint:sqlclosecheck // close closes the statements
	if err != nil {
		return 0, err
	}
	if args, err = listsAsJSON(args); err != nil {
		return 0, err
	}
	r, err := s.ExecContext(context.Background(), args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// interruptAfter is how long after the call of the driver a statement may be interrupted at the earliest.
const interruptAfter = 20 * time.Millisecond

// late returns a context that ends with ctx, but not at once, and what frees it. The driver interrupts a statement once, when
// its context ends. If the statement has not begun then, that has no effect, and it runs to its end.
func late(ctx context.Context) (_ context.Context, free func()) {
	if ctx.Done() == nil {
		return ctx, func() {}
	}
	began := time.Now()
	later, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(interruptAfter-time.Since(began), cancel) })
	return later, func() {
		stop()
		cancel()
	}
}

// query calls scan for each row. The end of ctx interrupts the statement.
func (c *conn) query(ctx context.Context, query string, args []any, scan func(*rows.Row) error) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	s, err := c.stmt(query) //nolint:sqlclosecheck // close closes the statements
	if err != nil {
		return err
	}
	if args, err = listsAsJSON(args); err != nil {
		return err
	}
	later, free := late(ctx)
	defer free()
	defer func() {
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			err = ctx.Err()
		}
	}()
	result, err := s.QueryContext(later, args...)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := result.Close(); err == nil {
			err = closeErr
		}
	}()
	row := c.row
	if c.row = nil; row == nil { // scan may run another query
		row = &rows.Row{}
	}
	defer func() {
		row.Release()
		c.row = row
	}()
	for row.Result = result; result.Next(); {
		if err := scan(row); err != nil {
			return err
		}
	}
	return result.Err()
}

// listsAsJSON returns arguments with lists as SQLite takes them (rows.ForSQLite).
func listsAsJSON(args []any) ([]any, error) {
	own := args
	for i, a := range args {
		switch a.(type) {
		case []string, []int64:
			text, err := json.Marshal(a)
			if err != nil {
				return nil, fmt.Errorf("encode a list: %w", err)
			}
			if &own[0] == &args[0] {
				own = slices.Clone(args)
			}
			own[i] = string(text)
		}
	}
	return own, nil
}

// rollback rolls back the transaction, if there still is one: after some errors SQLite has
// done it already. If that fails, it closes the connection, which rolls back too.
func (c *conn) rollback() {
	_, err := c.exec("ROLLBACK")
	var e *driver.Error
	if err == nil || errors.As(err, &e) && e.Code() == result.SQLITE_ERROR {
		return // SQLITE_ERROR: no transaction is active
	}
	// The error does not matter: the file has not changed.
	_ = c.close()
}

// pool is a fixed number of connections of one kind.
type pool struct {
	free chan *conn
	// urgent hands every second connection that is given back to a waiter with an urgent operation
	// (control.IsUrgent), if there is one: so urgent waiters pass the others, but do not keep them out.
	urgent chan *conn
	passed atomic.Bool // the last connection was handed to an urgent waiter
	size   int
	closed chan struct{}
	use    use
}

func newPool(from *sql.DB, size int, codec *audit.Codec, pages *rows.PageCodec) *pool {
	p := &pool{free: make(chan *conn, size), urgent: make(chan *conn), size: size, closed: make(chan struct{})}
	for range size {
		p.free <- &conn{from: from, codec: codec, pages: pages}
	}
	return p
}

// take returns a free connection. It waits for one until ctx ends. The caller must give it
// back.
func (p *pool) take(ctx context.Context) (*conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	asked := time.Now()
	select {
	case <-p.closed:
		return nil, fault.New(fault.Unavailable, closedMessage)
	default:
	}
	urgent := p.urgent
	if !control.IsUrgent(ctx) {
		urgent = nil
	}
	var c *conn
	select {
	case c = <-p.free:
	case c = <-urgent:
	case <-p.closed:
		return nil, fault.New(fault.Unavailable, closedMessage)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := c.open(context.WithoutCancel(ctx)); err != nil {
		p.hand(c)
		return nil, err
	}
	c.since = time.Now()
	p.use.waited.Add(int64(c.since.Sub(asked)))
	return c, nil
}

// give returns a connection to the pool.
func (p *pool) give(c *conn) {
	p.use.times.Add(1)
	p.use.held.Add(int64(time.Since(c.since)))
	p.hand(c)
}

// hand makes a connection free.
func (p *pool) hand(c *conn) {
	if !p.passed.Load() {
		select {
		case p.urgent <- c:
			p.passed.Store(true)
			return
		default:
		}
	}
	p.passed.Store(false)
	p.free <- c
}

// drain makes take fail, waits for the connections in use, calls last for each open
// connection, and closes all of them.
func (p *pool) drain(last func(*conn)) error {
	close(p.closed)
	var errs []error
	for range p.size {
		c := <-p.free
		if c.sql != nil && last != nil {
			last(c)
		}
		errs = append(errs, c.close())
	}
	return errors.Join(errs...)
}
