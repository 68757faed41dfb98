package proxy

import "net"

// TCPOf returns the TCP connection beneath nc, or nil.
func TCPOf(nc net.Conn) *net.TCPConn {
	for {
		if tcp, ok := nc.(*net.TCPConn); ok {
			return tcp
		}
		w, ok := nc.(interface{ NetConn() net.Conn })
		if !ok {
			return nil
		}
		nc = w.NetConn()
	}
}

// Acknowledged returns a number that grows with the bytes that the peer of a connection has
// acknowledged or sent. It is 0 on systems that do not show it.
func Acknowledged(nc net.Conn) (moved uint64) {
	tcp := TCPOf(nc)
	if tcp == nil {
		return 0
	}
	raw, err := tcp.SyscallConn()
	if err == nil {
		_ = raw.Control(func(fd uintptr) { moved, _, _ = Traffic(fd) }) // closed: nothing moves
	}
	return moved
}

// HasClosed reports whether the peer of a connection has closed its sending side, or the
// connection is broken, even if bytes that the peer sent have not been read. It is false on systems
// that do not show it.
func HasClosed(nc net.Conn) (closed bool) {
	tcp := TCPOf(nc)
	if tcp == nil {
		return false
	}
	raw, err := tcp.SyscallConn()
	return err == nil && (raw.Control(func(fd uintptr) { closed = IsClosed(fd) }) != nil || closed)
}
