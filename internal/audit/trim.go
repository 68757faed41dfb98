package audit

import (
	"time"

	"github.com/keygate/keygate/internal/account"
)

// TrimBlocks is how many blocks one step of retention removes at most, so that it does not delay
// other writers for long.
const TrimBlocks = 32

// LogStart is the first remaining block of an account's log.
type LogStart struct {
	AccountID string
	Tier      account.Tier
	Number    int64
	Last      time.Time // of its records
}

// OldBlock is what retention needs to know of a block.
type OldBlock struct {
	Number              int64
	Digest              Digest
	First, Last, Sealed time.Time
	Records, Bytes      int64
}

// Trim is one step of retention: it removes blocks from the beginning of one account's log.
type Trim struct {
	AccountID string
	From      int64     // the first block to remove
	Before    time.Time // records before it are past the retention of the account's tier
	excess    int64     // bytes to remove early; 0 means to remove only what is past its retention
	ended     bool

	Removed     Trimmed
	Base        Head // the last block to remove
	Bytes       int64
	First, Last time.Time // of the removed records
}

// NextTrim returns the next step of retention at a time, or nil if nothing is to be removed. starts
// are the starts of all logs, beginning with the log that has the oldest block, and size is the
// size of all blocks. Blocks that are past the retention of their tier go first. If there are none
// and the blocks take more than maxBytes, the oldest go, whatever their tier.
func NextTrim(starts []LogStart, size, maxBytes int64, now time.Time) *Trim {
	for _, s := range starts {
		if before := expiry(s.Tier, now); s.Last.Before(before) {
			return newTrim(s, before, 0)
		}
	}
	if len(starts) > 0 && size > maxBytes {
		return newTrim(starts[0], expiry(starts[0].Tier, now), size-maxBytes)
	}
	return nil
}

// expiry returns the time before which the tier keeps no records.
func expiry(t account.Tier, now time.Time) time.Time {
	return now.Add(-time.Duration(t.AuditRetentionDays()) * 24 * time.Hour).Truncate(time.Microsecond)
}

func newTrim(s LogStart, before time.Time, excess int64) *Trim {
	return &Trim{AccountID: s.AccountID, From: s.Number, Before: before, excess: excess, Removed: Trimmed{AccountID: s.AccountID, Early: excess > 0}}
}

// Take decides about the next block of the log. It must be called for the blocks from t.From on in
// their order, for at most TrimBlocks. The blocks that it takes, up to t.Base, are to be removed.
func (t *Trim) Take(b *OldBlock) {
	t.ended = t.ended || t.excess == 0 && !b.Last.Before(t.Before) || t.excess > 0 && t.Bytes >= t.excess
	if t.ended {
		return
	}
	if t.Removed.Blocks == 0 || b.First.Before(t.First) {
		t.First = b.First
	}
	if t.Removed.Blocks == 0 || b.Last.After(t.Last) {
		t.Last = b.Last
	}
	t.Base = Head{Number: b.Number, Digest: b.Digest, Time: b.Sealed}
	t.Bytes += b.Bytes
	t.Removed.Blocks++
	t.Removed.Records += b.Records
	t.Removed.Last = t.Last
}
