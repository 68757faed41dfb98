package edge

import (
	"io"
	"net"

	"github.com/keygate/keygate/internal/nowait"
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
		n, errno := nowait.Peek(int(fd), buf)
		switch {
		case errno == nowait.Again:
			return false
		case errno != 0:
			failed = errno
		case n == 0:
			failed = io.EOF
		case !enough(buf[:n]) && n < len(buf):
			waitForMore()
			return false
		}
		return true
	})
	if err == nil {
		err = failed
	}
	return err
}
