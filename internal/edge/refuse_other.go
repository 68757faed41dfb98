//go:build !linux

package edge

import "net"

// refuseNew does nothing: on this platform connections that arrive at the very end are reset.
func refuseNew(*net.TCPListener) error { return nil }

// hasQueued reports that no connection waits.
func hasQueued(*net.TCPListener) bool { return false }
