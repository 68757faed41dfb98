//go:build unix

package edge

import (
	"errors"

	"golang.org/x/sys/unix"
)

// peekNow fills buf with the first bytes of a connection that have arrived. n is 0 without
// an error at the end of the stream.
func peekNow(fd uintptr, buf []byte) (n int, err error) {
	for {
		n, _, err := unix.Recvfrom(int(fd), buf, unix.MSG_PEEK|unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return 0, errNothing
		default:
			return n, err
		}
	}
}

// waitForMore does nothing: bytes that stay in the socket do not make it readable again, but
// the arrival of more does.
func waitForMore() {}
