//go:build !unix

package proxy

import (
	"io"
	"net"
)

// passSocket is Pass from a socket.
func passSocket(to io.Writer, from *net.TCPConn) (passed int64, err error) {
	return passAny(to, from)
}
