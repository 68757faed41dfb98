package h1

import "golang.org/x/sys/unix"

// isClosed reports whether the peer has closed its sending side or the connection is
// broken, even if bytes that the peer sent have not been read.
func isClosed(fd uintptr) bool {
	p := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(p[:], 0)
	return err == nil && n == 1 && p[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0
}

// hasArrived reports whether bytes that the peer sent have not been read.
func hasArrived(fd uintptr) bool {
	unread, err := unix.IoctlGetInt(int(fd), unix.SIOCINQ)
	return err == nil && unread > 0
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
