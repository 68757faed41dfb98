//go:build !linux

package porttest

import "net"

// reserve returns a port that was free a moment ago. On this system it cannot reserve
// it.
func reserve() (addr string, release func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	return l.Addr().String(), func() {}, l.Close()
}
