package proxy

import "golang.org/x/sys/unix"

// IsClosed reports whether the peer of a socket has closed its sending side or the connection is
// broken, even if bytes that the peer sent have not been read.
func IsClosed(fd uintptr) bool {
	p := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(p[:], 0)
	return err == nil && n == 1 && p[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0
}

// HasArrived reports whether bytes that the peer of a socket sent have not been read.
func HasArrived(fd uintptr) bool {
	unread, err := unix.IoctlGetInt(int(fd), unix.SIOCINQ)
	return err == nil && unread > 0
}

// IsReset reports whether the connection of a socket was reset, or both sides are closed.
func IsReset(fd uintptr) bool {
	p := [1]unix.PollFd{{Fd: int32(fd)}}
	n, err := unix.Poll(p[:], 0)
	return err == nil && n == 1 && p[0].Revents != 0
}

// Traffic returns how many bytes the peer of a socket has sent and acknowledged so far, how many of
// the bytes that it sent have not been read, and how many bytes it has not acknowledged.
func Traffic(fd uintptr) (moved uint64, unread, unsent int) {
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
