package cluster

import (
	"golang.org/x/sys/unix"

	"github.com/keygate/keygate/internal/cluster/lease"
)

// NewClock returns a function that reads a clock which goes on while the machine is suspended. It does not
// allocate.
func NewClock() func() lease.Instant {
	return func() lease.Instant {
		var t unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
			panic("cluster: read CLOCK_BOOTTIME: " + err.Error()) // every supported kernel has it
		}
		return lease.Instant(t.Nano())
	}
}
