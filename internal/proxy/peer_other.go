//go:build !linux

package proxy

// IsClosed and IsReset report that the connection is open: on this platform, the gateway notices
// that a client has hung up when it reads from the connection or writes to it.
func IsClosed(uintptr) bool { return false }

// HasArrived reports that nothing has.
func HasArrived(uintptr) bool { return false }

// IsReset: see IsClosed.
func IsReset(uintptr) bool { return false }

// Traffic reports that something always waits to be read and nothing to be sent: stalls cannot be
// detected on this platform.
func Traffic(uintptr) (moved uint64, unread, unsent int) { return 0, 1, 0 }
