package upstream

import (
	"time"

	"golang.org/x/sys/unix"
)

// setProbes sets when probes of a silent connection are sent, and after how long without an acknowledgement it ends; 0 stands
// for the default.
func setProbes(fd uintptr, idle, every, vanish time.Duration) {
	_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, int(idle/time.Second))
	_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, int(every/time.Second))
	_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(vanish.Milliseconds()))
}

// hasVanished reports whether nothing was acknowledged for vanishTime, though something was sent: data, or a probe. A server
// that takes no more data acknowledges the probes.
func hasVanished(fd uintptr) bool {
	info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil || info.Unacked == 0 && info.Probes == 0 {
		return false
	}
	return time.Duration(info.Last_ack_recv)*time.Millisecond >= vanishTime
}

// breakOff ends a connection as if the server had closed it.
func breakOff(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) }
