package id

import (
	"encoding/binary"
	"time"

	"github.com/google/uuid"
)

// NewAt returns a fresh identifier of kind k for what was made at t, so that
// identifiers sort by that time, and those of one process and one time by the
// order in which they were made. It panics like New.
func NewAt(k Kind, t time.Time) string {
	now := uuid.Must(uuid.NewV7()) // its first half grows with each call
	order := binary.BigEndian.Uint64(now[:8])
	order = order>>16<<12 | order&0xfff // milliseconds and a sequence, without the version
	u := timeHalf(t)
	// 44 bits of order go round in 49 days; 18 random bits tell processes apart.
	binary.BigEndian.PutUint64(u[8:], 2<<62|order<<20>>2|uint64(now[8]&3)<<16|uint64(now[9])<<8|uint64(now[10]))
	return Format(k, u)
}

// Lowest returns what no identifier of kind k that NewAt made for t or a later
// time is below, and every one for an earlier time is, to the microsecond.
func Lowest(k Kind, t time.Time) string { return Format(k, timeHalf(t)) }

// timeHalf returns the half of a UUIDv7 that tells the time, of before 1970 as 1970.
func timeHalf(t time.Time) (u [16]byte) {
	us := max(t.UnixMicro(), 0)
	binary.BigEndian.PutUint64(u[:8], uint64(us/1000)<<16|7<<12|uint64(us%1000)<<2)
	return u
}
