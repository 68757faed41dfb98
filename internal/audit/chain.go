package audit

import (
	"crypto/sha256"
	"encoding/binary"
	"time"
)

// Digest is the SHA-256 digest of a block, which chains it to the block before.
type Digest [sha256.Size]byte

// Block is a sealed part of an account's log: up to MaxRecords records, compressed, and
// chained to the block before by a hash.
type Block struct {
	AccountID   string
	Number      int64     // from 1, without gaps
	Digest      Digest    // of this block and, through Previous, of all blocks before
	Previous    Digest    // of the block before; zero for block 1
	First, Last time.Time // of its records
	Sealed      time.Time
	Records     int
	Content     []byte // in the format of Table.Encode
}

// Chain is the state of an account's chain of blocks.
type Chain struct {
	AccountID string
	Base      Head // the last block that retention removed, or number 0; the chain begins with the next block
	Head      Head // the last sealed block
	Cut       Cut
}

// Cut is the records that were removed early because the log was larger than its maximum
// size on disk. Records is 0 if there are none.
type Cut struct {
	Records     int64
	First, Last time.Time
}

// chainLabel is hashed first, so that no digest of other data is a valid digest of a
// block.
const chainLabel = "keygate audit block 1\n"

// Seal sets the digest of b, which covers all its other fields.
func (b *Block) Seal() { b.Digest = b.sum() }

// Intact reports whether the digest matches the other fields.
func (b *Block) Intact() bool { return b.Digest == b.sum() }

func (b *Block) sum() (d Digest) {
	h := sha256.New()
	var n [8]byte
	number := func(v int64) {
		binary.BigEndian.PutUint64(n[:], uint64(v))
		h.Write(n[:])
	}
	h.Write([]byte(chainLabel))
	number(int64(len(b.AccountID)))
	h.Write([]byte(b.AccountID))
	h.Write(b.Previous[:])
	number(b.Number)
	number(b.First.UnixMicro())
	number(b.Last.UnixMicro())
	number(b.Sealed.UnixMicro())
	number(int64(b.Records))
	number(int64(len(b.Content)))
	h.Write(b.Content)
	h.Sum(d[:0])
	return d
}

// End returns the head of a chain whose last block is b.
func (b *Block) End() Head { return Head{Number: b.Number, Digest: b.Digest, Time: b.Sealed} }

// Seal is one step of sealing: it moves records from the open end of an account's log to
// its chain.
type Seal struct {
	AccountID string
	Blocks    []*Block   // in order; the first continues the chain
	Summaries []*Summary // of each block
	Chunks    []int64    // the ID of each chunk in the blocks
	Managed   []int64    // the Seq of each management record in the blocks
}

// SealAfter is the age of its oldest record at which the open end of a log is sealed whole.
const SealAfter = 10 * time.Minute

// Waiting is the size of the open end of an account's log.
type Waiting struct {
	AccountID string
	Chunks    int
	Records   int       // in the chunks
	Managed   int       // management records
	DiffBytes int64     // size of the diffs of these, as stored
	Oldest    time.Time // time of the oldest record
}

// Total returns the number of records that are in no block yet.
func (w *Waiting) Total() int64 { return int64(w.Records) + int64(w.Managed) }

// SealedBy returns by when a running server seals them; zero if there are none.
func (w *Waiting) SealedBy() time.Time {
	if w.Total() == 0 {
		return time.Time{}
	}
	return w.Oldest.Add(SealAfter)
}

// Trimmed is what a step of retention removed from an account's log.
type Trimmed struct {
	AccountID string
	Blocks    int
	Records   int64
	Last      time.Time // of the records
	Early     bool      // before the end of their retention, because of the maximum size
}
