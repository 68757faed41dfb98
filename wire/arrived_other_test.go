//go:build !linux

package wire

import "net"

// arrived would wait until the other side's system has what was written to c.
func arrived(net.Conn) {}
