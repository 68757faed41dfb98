//go:build unix

package cputest

import (
	"time"

	"golang.org/x/sys/unix"
)

func used() (time.Duration, error) {
	var u unix.Rusage
	err := unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), err
}
