package canary

import "github.com/keygate/keygate/internal/fairslots"

// What callers and minutes of a step take in memory, about.
const (
	callerBytes = 64
	minuteBytes = 640
)

// Room bounds the bytes that several steps take for what they tell apart, by account.
type Room = fairslots.Shares[string]

// NewRoom returns a room of a number of bytes.
func NewRoom(bytes int) *Room {
	r := fairslots.NewShares[string](bytes)
	return &r
}
