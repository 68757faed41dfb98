package h1

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// canPump reports that receive and send work on this platform.
const canPump = true

// receive reads the available bytes into b, without blocking. n is 0 without an error at
// the end of the stream. The system call never blocks, so it bypasses the scheduler.
func receive(fd int, b []byte) (n int, err syscall.Errno) {
	for {
		//nolint:gosec // recvfrom(2) takes an address
		r, _, e := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_DONTWAIT, 0, 0)
		switch e {
		case 0:
			return int(r), 0
		case unix.EINTR:
		default:
			return 0, e
		}
	}
}

// send writes as much of b as fits into the socket's buffer, without blocking.
func send(fd int, b []byte) (n int, err syscall.Errno) {
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

const again = unix.EAGAIN

// isClosed reports whether the peer has closed its sending side or the connection is
// broken, even if bytes that the peer sent have not been read.
func isClosed(fd uintptr) bool {
	p := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(p[:], 0)
	return err == nil && n == 1 && p[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0
}

// isReset reports whether the connection was reset, or both sides are closed.
func isReset(fd uintptr) bool {
	p := [1]unix.PollFd{{Fd: int32(fd)}}
	n, err := unix.Poll(p[:], 0)
	return err == nil && n == 1 && p[0].Revents != 0
}

// traffic returns how many bytes the peer has sent and acknowledged so far, how many of the
// sent ones have not been read, and how many bytes the peer has not acknowledged.
func traffic(fd uintptr) (moved uint64, unread, unsent int) {
	info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return 0, 0, 0
	}
	if unread, err = unix.IoctlGetInt(int(fd), unix.SIOCINQ); err != nil {
		unread = 0
	}
	if unsent, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ); err != nil {
		unsent = 0
	}
	return info.Bytes_acked + info.Bytes_received, unread, unsent
}
