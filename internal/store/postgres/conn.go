package postgres

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/store/rows"
	"github.com/keygate/keygate/internal/store/state"
)

const (
	connectTimeout = 5 * time.Second
	// connLifetime bounds how long a connection is used, so that nodes spread over the
	// servers of an address again after one was added, and no server's session grows.
	connLifetime = 30 * time.Minute
	connJitter   = 5 * time.Minute
	connIdle     = 5 * time.Minute
	// cancelGrace is how long a statement may take to end after it was cancelled. Then the
	// connection is closed.
	cancelGrace = time.Second
)

// conn is a connection in use. One goroutine uses it at a time.
type conn struct {
	*pgxpool.Conn
	*means
	since time.Time // when it was taken from the pool
}

// means is what all connections of a store share.
type means struct {
	codec   *audit.Codec // for audit blocks
	pages   *rows.PageCodec
	dialect dialect
}

// pool is the connections of one kind.
type pool struct {
	*pgxpool.Pool
	*means
	use    use
	closed atomic.Bool
}

// close waits for the connections in use and closes all of them. take fails from then on.
func (p *pool) close() {
	p.closed.Store(true)
	p.Close()
}

// newPool returns a pool of up to size connections, on wires. It opens them when they are needed.
func newPool(ctx context.Context, settings *pgxpool.Config, size int32, shared *means, on *wires) (*pool, error) {
	settings = settings.Copy()
	settings.MaxConns, settings.MinConns, settings.MinIdleConns = size, 0, 0
	settings.MaxConnLifetime, settings.MaxConnLifetimeJitter, settings.MaxConnIdleTime = connLifetime, connJitter, connIdle
	configure(settings.ConnConfig)
	on.carry(settings.ConnConfig)
	p, err := pgxpool.NewWithConfig(ctx, settings)
	if err != nil {
		return nil, err
	}
	return &pool{Pool: p, means: shared}, nil
}

// configure sets what all connections of Keygate have in common. A server that does not accept
// writes is refused. A statement whose context ends is cancelled at the server.
func configure(c *pgx.ConnConfig) {
	c.ConnectTimeout = connectTimeout
	c.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	c.RuntimeParams["application_name"] = "keygate"
	c.BuildContextWatcherHandler = func(p *pgconn.PgConn) ctxwatch.Handler {
		return &canceler{conn: p, grace: cancelGrace}
	}
	// Keepalive detects that the network path of a pooled connection has failed.
	c.DialFunc = (&net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: time.Second, Count: 3}}).DialContext
	c.OnNotice = keepWarning
	c.Tracer = nil
}

// take returns a free connection. It waits for one until ctx ends. The caller must give it
// back.
func (p *pool) take(ctx context.Context) (*conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	asked := time.Now()
	c, err := p.Acquire(ctx)
	if err != nil {
		switch {
		case p.closed.Load():
			return nil, fault.New(fault.Unavailable, closedMessage)
		case ctx.Err() != nil:
			return nil, ctx.Err()
		}
		return nil, translate("connect", err)
	}
	now := time.Now()
	p.use.waited.Add(int64(now.Sub(asked)))
	return &conn{Conn: c, means: p.means, since: now}, nil
}

// give returns a connection to the pool, which closes it if it is broken or in a transaction.
func (p *pool) give(c *conn) {
	p.use.times.Add(1)
	p.use.held.Add(int64(time.Since(c.since)))
	c.Release()
}

// use counts how the connections of a pool are used.
type use struct{ times, waited, held atomic.Int64 }

func (u *use) read() state.Use {
	return state.Use{Transactions: u.times.Load(), Waited: time.Duration(u.waited.Load()), Held: time.Duration(u.held.Load())}
}
