package id

import (
	"encoding/binary"
	"math/rand/v2"
	"time"
)

// NewFast returns a UUIDv7 for something that is created with every request: it costs tens
// of nanoseconds and no system call. Its random bits come from the runtime's ChaCha8
// generator, which is seeded by the system and kept for each thread. They are unique and
// cannot be guessed from other identifiers, but must not serve as a secret.
func NewFast() (u [16]byte) { return NewFastAt(time.Now().UnixMilli()) }

// NewFastAt is NewFast for the time ms, in milliseconds since 1970.
func NewFastAt(ms int64) (u [16]byte) {
	binary.BigEndian.PutUint64(u[:8], uint64(ms)<<16|7<<12|rand.Uint64()&0xfff)
	binary.BigEndian.PutUint64(u[8:], 2<<62|rand.Uint64()>>2)
	return u
}

// FastTime returns the time of NewFastAt in an identifier that it made.
func FastTime(u [16]byte) time.Time {
	var ms int64
	for _, b := range u[:6] {
		ms = ms<<8 | int64(b)
	}
	return time.UnixMilli(ms)
}
