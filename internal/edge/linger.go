package edge

import (
	"net"
	"time"

	"github.com/keygate/keygate/internal/proxy"
)

// lingerBuffer is the size of the buffer for discarded bytes.
const lingerBuffer = 16 << 10

// linger discards what a client still sends after its connection was closed on this side.
func linger(l *proxy.Linger, c net.Conn) {
	began := time.Now()
	l.Discard(make([]byte, lingerBuffer), func(b []byte) (int, error) {
		if err := c.SetReadDeadline(proxy.LingerUntil(began)); err != nil {
			return 0, err
		}
		return c.Read(b)
	})
}
