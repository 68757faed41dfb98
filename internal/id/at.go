package id

import (
	"encoding/binary"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// order is the lower half of the last identifier of NewAt. It begins anywhere in the lower half of its
// 62 bits and grows by 32 random bits with each identifier, so that it lasts for a billion of them.
var order atomic.Uint64 //nolint:gochecknoglobals // as the generator that it extends

func init() { order.Store(rand.Uint64() >> 3) } //nolint:gochecknoinits // processes must begin at different values

// NewAt returns a new identifier of kind k for the time t. Identifiers sort by that time, to the
// microsecond; if one process creates several for the same time, these sort in the order of
// creation. The next identifier cannot be guessed from others: see NewFast.
func NewAt(k Kind, t time.Time) string {
	u := timeHalf(t)
	binary.BigEndian.PutUint64(u[8:], 2<<62|order.Add(1+uint64(rand.Uint32()))&(1<<62-1))
	return Format(k, u)
}

// Lowest returns the lower bound of the identifiers of kind k for the time t, to the
// microsecond: every identifier that NewAt creates for t or later is at or above it, and every
// identifier for an earlier time is below it.
func Lowest(k Kind, t time.Time) string { return Format(k, timeHalf(t)) }

// timeHalf returns a UUIDv7 with only its first half set, which encodes the time. Times
// before 1970 count as 1970.
func timeHalf(t time.Time) (u [16]byte) {
	us := max(t.UnixMicro(), 0)
	binary.BigEndian.PutUint64(u[:8], uint64(us/1000)<<16|7<<12|uint64(us%1000)<<2)
	return u
}
