//go:build unix

package proctest

import (
	"time"

	"golang.org/x/sys/unix"
)

func cpuTime() (time.Duration, error) {
	var u unix.Rusage
	err := unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), err
}
