package postgres

import (
	"context"
	"net"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/keygate/keygate/internal/fault"
)

// wires are open network connections to the server that can be closed all at once. The zero value is ready for
// use. It is safe for concurrent use.
type wires struct {
	mu   sync.Mutex
	open map[*wire]struct{}
	cut  bool
}

// wire is a network connection to the server.
type wire struct {
	net.Conn
	of *wires
}

// Close closes the connection.
func (w *wire) Close() error {
	w.of.mu.Lock()
	delete(w.of.open, w)
	w.of.mu.Unlock()
	return w.Conn.Close()
}

// dialer returns next with its connections noted. After close it fails.
func (ws *wires) dialer(next pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := next(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		ws.mu.Lock()
		defer ws.mu.Unlock()
		if ws.cut {
			_ = c.Close() // nothing was sent
			return nil, fault.New(fault.Unavailable, closedMessage)
		}
		w := &wire{c, ws}
		if ws.open == nil {
			ws.open = map[*wire]struct{}{}
		}
		ws.open[w] = struct{}{}
		return w, nil
	}
}

// Cut ends every use of the database at once, even by calls that their contexts cannot end, and makes
// further calls fail. It is for a server that does not respond and for which the process must not wait. What
// a call has changed is unknown, as after any lost connection. Close is still to be called.
func (db *DB) Cut() { db.wires.close() }

// close closes all connections, and lets none be opened.
func (ws *wires) close() {
	ws.mu.Lock()
	ws.cut = true
	open := ws.open
	ws.open = nil
	ws.mu.Unlock()
	for w := range open {
		_ = w.Conn.Close() // its user sees the error
	}
}
