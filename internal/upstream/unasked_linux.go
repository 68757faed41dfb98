package upstream

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// hasUnasked reports whether bytes have arrived although the peer has acknowledged none of the n bytes
// that were written last. Every segment that a peer sends acknowledges what it has received before, so
// a response never looks like this. It is called for each request: the descriptor is
// non-blocking, and the first call, mostly the only one, bypasses the scheduler.
func hasUnasked(fd uintptr, n int) bool {
	var b [1]byte
	for {
		//nolint:gosec // recvfrom(2) takes an address
		got, _, err := unix.RawSyscall6(unix.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&b)), uintptr(len(b)), unix.MSG_PEEK|unix.MSG_DONTWAIT, 0, 0)
		switch {
		case err == unix.EINTR:
			continue
		case err != 0 || got == 0:
			return false
		}
		unacknowledged, failed := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
		return failed == nil && unacknowledged >= n
	}
}
