//go:build !linux

package cluster

import (
	"time"

	"github.com/keygate/keygate/internal/cluster/lease"
)

// NewClock returns a function that reads the monotonic clock. It may stand still while the machine is
// suspended.
func NewClock() func() lease.Instant {
	began := time.Now()
	return func() lease.Instant { return lease.Instant(time.Since(began)) + 1 }
}
