package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// cancelSettles is how long a request to cancel may still reach its statement after the server has taken it.
// Until then, the connection runs no other statement.
const cancelSettles = 100 * time.Millisecond

// canceler asks the server to cancel the statement of a connection whose context has ended. If the statement has not
// ended after grace, the connection is unusable.
//
// Unlike pgx's own handler, it never breaks off a request to cancel because the statement has ended meanwhile:
// PgBouncer 1.18 ends its whole process if a client leaves while its request to cancel is passed on.
type canceler struct {
	conn  *pgconn.PgConn
	grace time.Duration
	ended chan struct{} // closed when no request to cancel is under way
}

// HandleCancel implements ctxwatch.Handler.
func (c *canceler) HandleCancel(context.Context) {
	deadline := time.Now().Add(c.grace)
	_ = c.conn.Conn().SetDeadline(deadline)
	ended := make(chan struct{})
	c.ended = ended
	go func() { //nolint:gosec // the caller's context has ended; the deadline bounds this
		defer close(ended)
		asking, cancel := context.WithDeadline(context.Background(), deadline)
		defer cancel()
		_ = c.conn.CancelRequest(asking) // the deadline ends the statement too
		<-time.After(cancelSettles)
	}()
}

// HandleUnwatchAfterCancel implements ctxwatch.Handler.
func (c *canceler) HandleUnwatchAfterCancel() {
	<-c.ended
	_ = c.conn.Conn().SetDeadline(time.Time{})
}
