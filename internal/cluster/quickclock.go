package cluster

import (
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/cluster/lease"
)

const (
	// sameTime is how far the offset of the wall clock from the monotonic clock may have moved before
	// the machine is taken to have been suspended. Two readings within one call differ by less.
	sameTime = time.Millisecond
	// tight is how long a measurement of the offsets may take. If it takes longer, the thread may have
	// been descheduled between two readings.
	tight = 100 * time.Microsecond
	// ahead is how far a quick clock is ahead of the clock it stands for, so that it is never behind. A
	// suspension that is not noticed is shorter than sameTime plus the error of a measurement.
	ahead = 2 * sameTime
)

// NewQuickClock returns a function that tells the time of clock, which goes on while the machine is
// suspended, without a system call in the usual case. It is never behind clock, and ahead of it by 3 ms at
// most. It is safe for concurrent use and does not allocate, except after a suspension.
//
// A suspension, like every step of the wall clock, moves the wall clock away from the monotonic clock, and
// both are cheap to read. While these two have not moved apart, clock and the monotonic clock have not
// either. A suspension would be missed only if the wall clock stepped back by exactly its length before
// anything reads the quick clock.
func NewQuickClock(clock func() lease.Instant) func() lease.Instant {
	return (&quickClock{clock: clock, readings: readings(time.Now())}).read
}

type quickClock struct {
	clock    func() lease.Instant
	readings func() (monotonic, wall time.Duration) // read one after the other, the wall clock first
	known    atomic.Pointer[offsets]
}

// offsets is what is added to the monotonic clock.
type offsets struct {
	wall  time.Duration // for the wall clock
	clock time.Duration // for the clock that the quick clock stands for
}

// readings returns a function that reads the time since began by the monotonic clock, and the wall clock.
func readings(began time.Time) func() (monotonic, wall time.Duration) {
	return func() (monotonic, wall time.Duration) {
		now := time.Now()
		return now.Sub(began), time.Duration(now.UnixNano())
	}
}

func (q *quickClock) read() lease.Instant {
	monotonic, wall := q.readings()
	known := q.known.Load()
	if known == nil || (wall-monotonic-known.wall).Abs() > sameTime {
		return q.measure()
	}
	return lease.Instant(monotonic + known.clock + ahead)
}

// measure reads the clock itself, and keeps the offsets if they are exact enough.
func (q *quickClock) measure() lease.Instant {
	first, _ := q.readings()
	monotonic, wall := q.readings()
	at := q.clock()
	if last, _ := q.readings(); last-first <= tight {
		q.known.Store(&offsets{wall: wall - monotonic, clock: time.Duration(at) - monotonic})
	}
	return at.Add(ahead)
}
