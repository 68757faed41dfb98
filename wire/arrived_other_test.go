//go:build !linux

package wire

import "net"

// waitSent does nothing: only Linux shows when the peer's kernel has everything.
func waitSent(net.Conn) {}
