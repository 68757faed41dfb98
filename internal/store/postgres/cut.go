package postgres

import (
	"context"
	"net"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/keygate/keygate/internal/fault"
)

// wires are network connections to the server, and attempts to open one, that can be ended all at once. The zero
// value is ready for use. It is safe for concurrent use.
type wires struct {
	mu   sync.Mutex
	ends map[any]func() // by connection or attempt
	cut  bool
}

// wire is a network connection to the server.
type wire struct {
	net.Conn
	of *wires
}

// Close closes the connection.
func (w *wire) Close() error {
	w.of.forget(w)
	return w.Conn.Close()
}

// carry makes ws carry the connections that are opened with c. Nothing may set the functions of c afterwards.
func (ws *wires) carry(c *pgx.ConnConfig) {
	lookUp, dial := c.LookupFunc, c.DialFunc
	c.LookupFunc = func(ctx context.Context, host string) ([]string, error) {
		ctx, done, err := ws.attempt(ctx)
		if err != nil {
			return nil, err
		}
		defer done()
		return lookUp(ctx, host)
	}
	c.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, done, err := ws.attempt(ctx)
		if err != nil {
			return nil, err
		}
		defer done()
		opened, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		w := &wire{opened, ws}
		if err := ws.note(w, func() { _ = opened.Close() }); err != nil { // the user of w sees the error
			_ = opened.Close() // nothing was sent
			return nil, err
		}
		return w, nil
	}
}

// attempt returns a context that ends with ctx, or when close is called. The caller must call done. After close it
// fails.
func (ws *wires) attempt(ctx context.Context) (_ context.Context, done func(), _ error) {
	ctx, cancel := context.WithCancel(ctx)
	if err := ws.note(&cancel, cancel); err != nil {
		cancel()
		return nil, nil, err
	}
	return ctx, func() {
		ws.forget(&cancel)
		cancel()
	}, nil
}

// note makes close call end. After close it fails.
func (ws *wires) note(of any, end func()) error {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.cut {
		return fault.New(fault.Unavailable, closedMessage)
	}
	if ws.ends == nil {
		ws.ends = map[any]func(){}
	}
	ws.ends[of] = end
	return nil
}

// forget undoes note.
func (ws *wires) forget(of any) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	delete(ws.ends, of)
}

// Cut ends every use of the database at once, even by calls that their contexts cannot end, and makes
// further calls fail. It is for a server that does not respond and for which the process must not wait. What
// a call has changed is unknown, as after any lost connection. Close is still to be called.
func (db *DB) Cut() { db.wires.close() }

// close closes all connections, ends all attempts, and lets no connection be opened.
func (ws *wires) close() {
	ws.mu.Lock()
	ws.cut = true
	ends := ws.ends
	ws.ends = nil
	ws.mu.Unlock()
	for _, end := range ends {
		end()
	}
}

// isCut reports whether close was called.
func (ws *wires) isCut() bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.cut
}
