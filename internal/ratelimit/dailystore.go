package ratelimit

import (
	"context"
	"time"
)

// DailyCount is the count of a daily cap in the store: Used requests of the UTC day Day (in days
// since 1970) count against the limit identified by LimitID and KeyID, over all nodes.
type DailyCount struct {
	LimitID string // identifier of the route
	KeyID   string // identifier of the key's bucket for a limit with per: key, or ""
	Day     int64
	Used    int64
	Lost    int64 // how many of Used have not passed, at most: they were reserved when a process crashed, or are now
	Own     int64 // how many of Used the asking node has written
	OwnLost int64 // how many of Lost it has written
}

// DailyClaim is what a node claims of a daily cap for a day. Its figures are absolute, so that a
// claim that is repeated changes nothing.
type DailyClaim struct {
	LimitID, KeyID string
	Cap            int64
	Used           int64 // requests that have passed on this node
	Lost           int64 // how many of Used have not, because a range could not be given back
	Ahead          int64 // requests that the node wants to reserve in addition
	Needed         int64 // how many of Ahead requests wait for: 0 or 1

	// The answer.
	Granted    int64 // of Ahead
	OthersUsed int64 // requests that count against the cap apart from this claim
	OthersLost int64 // how many of these have not passed, at most
}

// DailyFigures is what the store has of a cap, in all or of one node.
type DailyFigures struct{ Used, Lost int64 }

// Grant sets the answer to the claim c. The store has the figures total for its cap, which include the node's
// own figures. Grant returns what both become. The store must let no other claim to the same cap come between
// reading and writing them. Beyond Needed, it grants no more than all nodes together may lose if all of them
// crash.
func (c *DailyClaim) Grant(total, own DailyFigures) (newTotal, newOwn DailyFigures) {
	c.OthersUsed, c.OthersLost = total.Used-own.Used, total.Lost-own.Lost
	c.Granted = max(0, min(c.Ahead, c.Cap-c.OthersUsed-c.Used))
	c.Granted = min(c.Granted, max(c.Needed, budgetOf(c.Cap)-c.OthersLost-c.Lost))
	newOwn = DailyFigures{c.Used + c.Granted, c.Lost + c.Granted}
	return DailyFigures{c.OthersUsed + newOwn.Used, c.OthersLost + newOwn.Lost}, newOwn
}

// DailyStore stores daily counts. A node is a process here: it has a name that no other process ever had.
type DailyStore interface {
	// LoadDailyCounts returns the counts of a day: of the named limits, or of all limits if none is named.
	LoadDailyCounts(ctx context.Context, node string, day int64, limitIDs ...string) ([]DailyCount, error)
	// ReserveDaily writes what the node claims on the day, all of it or nothing, and sets the answers.
	// An error may come after it was written. now is the store's clock, or zero if that is the node's.
	// A store with a clock of its own returns an error for a day that is not the present day by that
	// clock.
	ReserveDaily(ctx context.Context, node string, day int64, claims []DailyClaim) (now time.Time, err error)
}
