package edge

import (
	"errors"
	"time"

	"github.com/keygate/keygate/internal/winsock"
)

// peekNow fills buf with the first bytes of a connection that have arrived. n is 0 without
// an error at the end of the stream.
func peekNow(fd uintptr, buf []byte) (n int, err error) {
	n, err = winsock.Peek(fd, buf)
	if errors.Is(err, winsock.ErrNothing) {
		err = errNothing
	}
	return n, err
}

// waitForMore waits a moment: bytes that stay in the socket keep it readable.
func waitForMore() { time.Sleep(10 * time.Millisecond) }
