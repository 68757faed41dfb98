package wire

import (
	"net"
	"runtime"

	"golang.org/x/sys/unix"
)

// waitSent returns once the peer's kernel has everything that was written to c, or the
// connection is broken.
func waitSent(c net.Conn) {
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return
	}
	for waits := true; waits; runtime.Gosched() {
		if err := raw.Control(func(fd uintptr) {
			p := [1]unix.PollFd{{Fd: int32(fd)}}
			if _, err := unix.Poll(p[:], 0); err == nil && p[0].Revents != 0 { // broken
				waits = false
				return
			}
			unsent, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
			waits = err == nil && unsent > 0
		}); err != nil {
			return
		}
	}
}
