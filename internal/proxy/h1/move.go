package h1

import (
	"io"
	"net"

	"github.com/keygate/keygate/internal/proxy"
)

// move moves bytes from the socket of from to another, with splice(2) on Linux. This takes a pipe
// as long as it lasts, even while the peer stalls, so if too many pipes are in use the bytes are
// copied.
func (e *Engine) move(to *net.TCPConn, from *io.LimitedReader) (int64, error) {
	defer e.pipes.Add(-1)
	if e.pipes.Add(1) > int64(e.cfg.MaxPipes) {
		return proxy.Pass(to, from)
	}
	return to.ReadFrom(from)
}
