package edge

import (
	"errors"
	"io"
	"net"

	"golang.org/x/sys/unix"
)

// peek looks at the first bytes of c, without taking them, until enough says
// that they suffice or buf is full. It returns io.EOF if c ends before its first
// byte.
func peek(c *net.TCPConn, buf []byte, enough func(seen []byte) bool) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		for {
			n, _, err := unix.Recvfrom(int(fd), buf, unix.MSG_PEEK|unix.MSG_DONTWAIT)
			switch {
			case errors.Is(err, unix.EINTR):
				continue
			case errors.Is(err, unix.EAGAIN):
				return false
			case err != nil:
				failed = err
			case n == 0:
				failed = io.EOF
			default:
				// What was only looked at stays, and the next bytes wake us again.
				return enough(buf[:n]) || n == len(buf)
			}
			return true
		}
	})
	if err == nil {
		err = failed
	}
	return err
}
