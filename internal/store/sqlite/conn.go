package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	driver "modernc.org/sqlite"
	result "modernc.org/sqlite/lib"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/fault"
)

// conn is one connection with the statements prepared on it. It is used by one
// goroutine at a time.
type conn struct {
	from  *sql.DB
	codec *audit.Codec // of audit blocks
	sql   *sql.Conn    // nil until opened
	stmts map[string]*sql.Stmt
	since time.Time  // since when it is taken
	level durability // "" is that with which connections are opened
}

// open opens the connection unless it is open.
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

// close closes the connection; open opens a new one.
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

// synchronous sets what the transactions that follow outlast. The statement works
// when it is prepared, so that it must be prepared each time.
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

// stmt returns the prepared statement of query. The texts are constants or
// built from a few parts, so the map stays small.
func (c *conn) stmt(query string) (*sql.Stmt, error) {
	if s := c.stmts[query]; s != nil {
		return s, nil
	}
	s, err := c.sql.PrepareContext(context.Background(), query)
	if err != nil {
		return nil, fmt.Errorf("prepare %.60q: %w", query, err)
	}
	c.stmts[query] = s
	return s, nil
}

// exec runs a statement to its end, whatever becomes of the caller, and
// returns how many rows it changed.
func (c *conn) exec(query string, args ...any) (int64, error) {
	s, err := c.stmt(query) //nolint:sqlclosecheck // close closes the statements
	if err != nil {
		return 0, err
	}
	r, err := s.ExecContext(context.Background(), args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// query calls scan for each row, whatever becomes of the caller.
func (c *conn) query(query string, args []any, scan func(*sql.Rows) error) (err error) {
	s, err := c.stmt(query) //nolint:sqlclosecheck // close closes the statements
	if err != nil {
		return err
	}
	rows, err := s.QueryContext(context.Background(), args...)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := rows.Close(); err == nil {
			err = closeErr
		}
	}()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// rollback ends a transaction that may have ended by itself, as SQLite does
// after some errors. A connection that cannot roll back is closed, which does.
func (c *conn) rollback() {
	_, err := c.exec("ROLLBACK")
	var e *driver.Error
	if err == nil || errors.As(err, &e) && e.Code() == result.SQLITE_ERROR {
		return // SQLITE_ERROR: no transaction is active
	}
	// The error of closing tells nothing more: the file has not changed.
	_ = c.close()
}

// pool hands out connections of one kind.
type pool struct {
	free   chan *conn
	size   int
	closed chan struct{}
	use    use
}

func newPool(from *sql.DB, size int, codec *audit.Codec) *pool {
	p := &pool{free: make(chan *conn, size), size: size, closed: make(chan struct{})}
	for range size {
		p.free <- &conn{from: from, codec: codec}
	}
	return p
}

// take waits for a connection until ctx ends. Each must be given back.
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
	select {
	case c := <-p.free:
		if err := c.open(context.WithoutCancel(ctx)); err != nil {
			p.free <- c
			return nil, err
		}
		c.since = time.Now()
		p.use.waited.Add(int64(c.since.Sub(asked)))
		return c, nil
	case <-p.closed:
		return nil, fault.New(fault.Unavailable, closedMessage)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pool) give(c *conn) {
	p.use.times.Add(1)
	p.use.held.Add(int64(time.Since(c.since)))
	p.free <- c
}

// drain refuses further takers, waits for the connections in use and calls
// last for each, open ones only; then it closes them.
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
