package edge

import (
	"errors"
	"io"
	"net"

	"golang.org/x/sys/unix"
)

// peek fills buf with the first bytes of c without consuming them. It returns once
// enough reports that the bytes seen suffice, or buf is full. If c ends before its
// first byte, the error is io.EOF.
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
				// The bytes stay in the socket; the arrival of more wakes us again.
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
