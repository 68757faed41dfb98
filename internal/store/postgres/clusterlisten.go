package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// changesChannel is notified of each commit with changes.
const changesChannel = "keygate_changes"

// probeTime is how long a notification may take in Probe.
const probeTime = 2 * time.Second

// Listener receives the notifications of changes, over a connection of its own. Its methods must not
// overlap, except Close.
type Listener struct {
	db   *DB // that sends the notification of Probe
	pool *owned
	mu   sync.Mutex    // held by the call that runs
	conn *pgxpool.Conn // that listens, or nil
}

// OpenListener returns a Listener of the database of a URL, which must be the database of db. It connects
// with the first call.
func OpenListener(ctx context.Context, url string, db *DB) (*Listener, error) {
	settings, err := parseURL(url)
	if err != nil {
		return nil, err
	}
	p, err := ownPool(ctx, settings)
	if err != nil {
		return nil, fmt.Errorf("open the connection that listens: %w", translate("open", err))
	}
	return &Listener{db: db, pool: p}, nil
}

// Close closes the connection. A call that still runs, because the server does not respond, ends with an error.
func (l *Listener) Close() {
	if l.mu.TryLock() {
		l.drop()
		l.mu.Unlock()
	}
	l.pool.Close()
}

// Wait returns when changes were committed, or a connection was just opened, so that some may have been
// missed. If ctx ends first, the error is ctx.Err().
func (l *Listener) Wait(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	opened, err := l.listen(ctx)
	if err != nil || opened {
		return err
	}
	if _, err := l.conn.Conn().WaitForNotification(ctx); err != nil {
		if ctx.Err() == nil || l.conn.Conn().IsClosed() {
			l.drop()
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return translate("listen", err)
	}
	return nil
}

// Probe reports whether notifications arrive. They do not arrive behind a pooler in transaction
// mode, which gives no error.
func (l *Listener) Probe(ctx context.Context) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.listen(ctx); err != nil {
		return false, err
	}
	probe := rand.Text()
	if _, err := l.db.writer.Exec(ctx, `SELECT pg_notify($1, $2)`, changesChannel, probe); err != nil {
		return false, translate("notify", err)
	}
	waiting, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	for {
		n, err := l.conn.Conn().WaitForNotification(waiting)
		switch {
		case err == nil && n.Payload == probe:
			return true, nil
		case err == nil:
		case ctx.Err() != nil:
			return false, ctx.Err()
		case errors.Is(err, context.DeadlineExceeded):
			l.drop()
			return false, nil
		default:
			l.drop()
			return false, translate("listen", err)
		}
	}
}

// listen opens a connection that listens, unless there is one.
func (l *Listener) listen(ctx context.Context) (opened bool, err error) {
	if l.conn != nil {
		return false, nil
	}
	c, err := l.pool.Acquire(ctx)
	if err != nil {
		return false, translate("connect", err)
	}
	if _, err := c.Exec(ctx, `LISTEN `+changesChannel); err != nil {
		c.Release()
		return false, translate("listen", err)
	}
	l.conn = c
	return true, nil
}

// drop closes the connection.
func (l *Listener) drop() {
	if l.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), cancelGrace)
	defer cancel()
	_ = l.conn.Conn().Close(ctx)
	l.conn.Release()
	l.conn = nil
}
