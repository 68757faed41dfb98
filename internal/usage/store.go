package usage

import (
	"context"
	"time"
)

// Tier is the length of the periods of records: an hour, or a day.
type Tier uint8

// The tiers.
const (
	Hours Tier = iota
	Days
)

// Block is a part of the final records of an account.
type Block struct {
	AccountID string
	Tier      Tier
	Number    int64 // from 1, without gaps, in the order in which the blocks of the account and tier became final
	Start     int64 // Unix second at which the hour or day begins
	Body      []byte
}

// BlockQuery selects blocks of one account and tier: those whose hour or day begins at From or later and before Before,
// in Unix seconds, the first Limit of them whose number is at least First.
type BlockQuery struct {
	AccountID    string
	Tier         Tier
	From, Before int64
	First        int64
	Limit        int
}

// Closing is what makes records final: in one transaction, blocks take the place of what they were made from.
type Closing struct {
	AccountID string
	Tier      Tier
	Start     int64 // Unix second at which the hour or day begins
	Made      []Body
	// Kept is what of the chunks does not become final: it makes chunks in state Merged.
	Kept []Body
	// Chunks are the sequence numbers of chunks, and Blocks the numbers of blocks of tier Hours, that go.
	Chunks, Blocks []int64
	// Tell, unless it is 0, raises usage.finalized with this number of records: those of Made, and of earlier closings that
	// raised none. After a crash it names those that were made since.
	Tell int
}

// Closed is what a closing has made.
type Closed struct {
	Last int64   // the number of the last block of Made; 0 if there are none
	Kept []int64 // the sequence numbers of the chunks of Kept
}

// Records returns the number of records.
func (c *Closing) Records() (n int) {
	for i := range c.Made {
		n += c.Made[i].Records
	}
	return n
}

// OldBlocks are blocks of an account and an hour.
type OldBlocks struct {
	AccountID string
	Start     int64
	Numbers   []int64
}

// Store stores final records. The chunks of which they are made are those of part Usage of traffic.Store.
type Store interface {
	// MarkUsage notes that the store has what counts of all requests that ended in a process before the time until. It takes the
	// place of what was noted of the process before, also of a later time: the clock may have been ahead.
	MarkUsage(ctx context.Context, process string, until time.Time) error
	// UsageState returns until when all hours were closed, and whether all processes whose nodes live have marked a time that
	// is until or later. Where no other process shares the store, there are none.
	UsageState(ctx context.Context, until time.Time) (closed time.Time, complete bool, err error)
	// EndUsage notes that all hours before until were closed, and not whether later ones were, and forgets processes that have marked
	// no time since forget.
	EndUsage(ctx context.Context, until, forget time.Time) error
	// CloseUsage carries out a closing. If one of the chunks or blocks does not exist, it changes nothing and returns
	// fault.Conflict: another node was faster.
	CloseUsage(ctx context.Context, c *Closing, now time.Time) (*Closed, error)
	// UsageBlocks calls yield for each block that q selects, in the order of their numbers, until yield returns an error,
	// which it returns. yield must not keep the block.
	UsageBlocks(ctx context.Context, q BlockQuery, yield func(*Block) error) error
	// UsageEnd returns the number of the last block of an account and tier; 0 if there never was one.
	UsageEnd(ctx context.Context, accountID string, t Tier) (number int64, err error)
	// OldUsage returns blocks of tier Hours whose hour begins before the Unix second: of up to limit accounts and hours, the
	// earliest first.
	OldUsage(ctx context.Context, before int64, limit int) ([]OldBlocks, error)
	// TrimUsage removes up to limit blocks of tier Days whose day begins before the Unix second. more says that there may be
	// others.
	TrimUsage(ctx context.Context, before int64, limit int) (more bool, err error)
}
