//go:build !linux && !windows

package upstream

import "syscall"

// isQuiet reports whether a connection has nothing to read, not even its end.
func isQuiet(fd uintptr) bool {
	var b [1]byte
	for {
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		if err != syscall.EINTR {
			return err == syscall.EAGAIN
		}
	}
}
