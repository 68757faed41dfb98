package id

import (
	"encoding/binary"
	"math/rand/v2"
	"time"
)

// NewFast returns a UUIDv7 for what is made for every request: it costs tens of
// nanoseconds and no system call. Its randomness is the runtime's, which is
// ChaCha8, seeded by the system and kept for each thread: unique, and not to be
// guessed from others, but no secret.
func NewFast() (u [16]byte) { return NewFastAt(time.Now().UnixMilli()) }

// NewFastAt is NewFast for a time in milliseconds since 1970.
func NewFastAt(ms int64) (u [16]byte) {
	binary.BigEndian.PutUint64(u[:8], uint64(ms)<<16|7<<12|rand.Uint64()&0xfff)
	binary.BigEndian.PutUint64(u[8:], 2<<62|rand.Uint64()>>2)
	return u
}
