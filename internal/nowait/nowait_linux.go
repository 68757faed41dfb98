package nowait

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Works reports that Send works on this platform.
const Works = true

// Receive reads what has arrived into b. n is 0 without an error at the end of the stream. If
// nothing has arrived, the error is Again.
func Receive(fd int, b []byte) (n int, err syscall.Errno) { return receive(fd, b, unix.MSG_DONTWAIT) }

// Peek is Receive, but leaves the bytes in the socket.
func Peek(fd int, b []byte) (n int, err syscall.Errno) {
	return receive(fd, b, unix.MSG_DONTWAIT|unix.MSG_PEEK)
}

func receive(fd int, b []byte, flags uintptr) (n int, err syscall.Errno) {
	for {
		//nolint:gosec // recvfrom(2) takes an address
		r, _, e := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), flags, 0, 0)
		switch e {
		case 0:
			return int(r), 0
		case unix.EINTR:
		default:
			return 0, e
		}
	}
}

// Send writes as much of b as fits into the socket's buffer. If that is not all, the error is
// Again.
func Send(fd int, b []byte) (n int, err syscall.Errno) {
	for n < len(b) {
		rest := b[n:]
		//nolint:gosec // sendto(2) takes an address
		r, _, e := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(rest))), uintptr(len(rest)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
		switch e {
		case 0:
			n += int(r)
		case unix.EINTR:
		default:
			return n, e
		}
	}
	return n, 0
}
