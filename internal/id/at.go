package id

import (
	"encoding/binary"
	"time"

	"github.com/google/uuid"
)

// NewAt returns a new identifier of kind k for the time t. Identifiers sort by that time,
// to the microsecond; those that one process creates for the same time sort in the order of
// creation. It panics like New.
func NewAt(k Kind, t time.Time) string {
	now := uuid.Must(uuid.NewV7()) // its first half grows with each call
	order := binary.BigEndian.Uint64(now[:8])
	order = order>>16<<12 | order&0xfff // milliseconds and a sequence, without the version
	u := timeHalf(t)
	// 44 bits of order wrap after 49 days; 18 random bits distinguish processes.
	binary.BigEndian.PutUint64(u[8:], 2<<62|order<<20>>2|uint64(now[8]&3)<<16|uint64(now[9])<<8|uint64(now[10]))
	return Format(k, u)
}

// Lowest returns the lower bound of the identifiers of kind k for the time t, to the
// microsecond: every identifier that NewAt creates for t or later is at or above it, and
// every one for an earlier time is below it.
func Lowest(k Kind, t time.Time) string { return Format(k, timeHalf(t)) }

// timeHalf returns a UUIDv7 with only its first half set, which encodes the time. Times
// before 1970 count as 1970.
func timeHalf(t time.Time) (u [16]byte) {
	us := max(t.UnixMicro(), 0)
	binary.BigEndian.PutUint64(u[:8], uint64(us/1000)<<16|7<<12|uint64(us%1000)<<2)
	return u
}
