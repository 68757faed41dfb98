package upstream_test

import (
	"crypto/tls"
	"net"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// established reports whether neither side has closed the connection.
func established(c net.Conn) bool {
	if over, ok := c.(*tls.Conn); ok {
		c = over.NetConn()
	}
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return false
	}
	const stateEstablished = 1 // TCP_ESTABLISHED
	is := false
	err = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		is = err == nil && info.State == stateEstablished
	})
	return err == nil && is
}

// fullListener returns a loopback address at which connections are neither accepted nor
// refused: its backlog is full.
func fullListener(t *testing.T) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(name.(*unix.SockaddrInet4).Port))
	for range 16 {
		c, err := net.DialTimeout("tcp", addr, 200*time.Millisecond)
		if err != nil {
			return addr
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	t.Fatal("the backlog does not fill up")
	return ""
}
