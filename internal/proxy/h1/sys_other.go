//go:build !linux

package h1

// isClosed and isReset report that the connection stands: on this platform, the gateway
// notices that a client has left when it reads from it or writes to it.
func isClosed(uintptr) bool { return false }

// hasArrived reports that nothing has.
func hasArrived(uintptr) bool { return false }

func isReset(uintptr) bool { return false }

// traffic reports that something always waits to be read and nothing to be sent: stalls
// cannot be detected on this platform.
func traffic(uintptr) (moved uint64, unread, unsent int) { return 0, 1, 0 }
