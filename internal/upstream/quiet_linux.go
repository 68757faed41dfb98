package upstream

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// isQuiet reports whether a connection has nothing to read, not even its end. The
// descriptor is non-blocking, so the call, which is made for each request, bypasses the
// scheduler.
func isQuiet(fd uintptr) bool {
	var b [1]byte
	for {
		//nolint:gosec // recvfrom(2) takes an address
		_, _, err := unix.RawSyscall6(unix.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&b)), uintptr(len(b)), unix.MSG_PEEK|unix.MSG_DONTWAIT, 0, 0)
		if err != unix.EINTR {
			return err == unix.EAGAIN
		}
	}
}
