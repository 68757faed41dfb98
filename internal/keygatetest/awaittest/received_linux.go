package awaittest

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// Received waits until the peer's kernel has everything that was written to c, a TCP connection, or c is broken.
func Received(t testing.TB, c net.Conn) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Error(err)
		return
	}
	if !Holds(func() (done bool) {
		err := raw.Control(func(fd uintptr) {
			unsent, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
			info, failed := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
			done = err != nil || failed != nil || unsent == 0 || info.State == unix.BPF_TCP_CLOSE
		})
		return done || err != nil // closed
	}) {
		t.Errorf("the peer has not received everything after %v", Timeout)
	}
}
