package porttest

import (
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"
)

// reserve binds a socket to a port without listening. Linux allows another socket to
// listen on that port by its number if both have SO_REUSEADDR, which Go's listeners
// have, but does not give the port to a program that asks for any free port.
func reserve() (addr string, release func(), err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", nil, err
	}
	release = func() { _ = unix.Close(fd) }
	if addr, err = bind(fd); err != nil {
		release()
		return "", nil, err
	}
	return addr, release, nil
}

// bind binds a socket to a free port of 127.0.0.1 and returns its address.
func bind(fd int) (addr string, err error) {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return "", err
	}
	loopback := [4]byte{127, 0, 0, 1}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: loopback}); err != nil {
		return "", err
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return "", err
	}
	bound, ok := name.(*unix.SockaddrInet4)
	if !ok {
		return "", errors.New("the socket has no IPv4 address")
	}
	return netip.AddrPortFrom(netip.AddrFrom4(loopback), uint16(bound.Port)).String(), nil
}
