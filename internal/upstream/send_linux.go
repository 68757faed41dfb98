package upstream

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// sendNow sends as much of p as fits into the socket's buffer, without blocking. n is less
// than len(p) without an error if the buffer is full. The system call never blocks, so it
// bypasses the scheduler.
func sendNow(fd uintptr, p []byte) (n int, err error) {
	for n < len(p) {
		rest := p[n:]
		//nolint:gosec // sendto(2) takes an address
		r, _, e := unix.RawSyscall6(unix.SYS_SENDTO, fd, uintptr(unsafe.Pointer(unsafe.SliceData(rest))), uintptr(len(rest)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
		switch e {
		case 0:
			n += int(r)
		case unix.EINTR:
		case unix.EAGAIN:
			return n, nil
		default:
			return n, e
		}
	}
	return n, nil
}
