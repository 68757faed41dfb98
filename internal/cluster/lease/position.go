package lease

import "time"

// Position names a state of the change log: its newest change. The zero value is the empty log.
type Position struct {
	Number int64
	Mark   [8]byte // random, of this change
}

// Boot identifies one start of a process. It is random.
type Boot [16]byte

// Instant is a reading of a clock that never steps back and goes on while the machine is suspended, in
// nanoseconds. Instants of different machines cannot be compared.
type Instant int64

// Add returns i plus d.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Sub returns the time from j to i.
func (i Instant) Sub(j Instant) time.Duration { return time.Duration(i - j) }

// Expiry returns how long a grant with the given TTL may be in use after an observer has seen it, by
// the observer's clock: the TTL, and a margin for clocks that run at different speeds and for the
// moment between a node's last look at its lease and what it does next.
func Expiry(ttl time.Duration) time.Duration { return ttl + 200*time.Millisecond + ttl/1000 }
