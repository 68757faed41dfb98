package upstream

import (
	"time"

	"golang.org/x/sys/unix"
)

// setVanishTime makes a connection end when what was sent is not acknowledged within vanishTime.
func setVanishTime(fd uintptr) {
	_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(vanishTime.Milliseconds()))
}

// setProbes sets when probes of a silent connection are sent.
func setProbes(fd uintptr, idle, every time.Duration) {
	_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, int(idle/time.Second))
	_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, int(every/time.Second))
}
