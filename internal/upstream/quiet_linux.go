package upstream

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// isQuiet reports whether nothing has come on a connection, its end included. The
// descriptor is never blocking, so the scheduler need not know of the call, which
// is made for each request.
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
