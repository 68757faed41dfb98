package audit

import (
	"crypto/sha256"
	"encoding/binary"
	"time"
)

// Digest is the SHA-256 that chains a block to the one before.
type Digest [sha256.Size]byte

// Block is a run of an account's records that was sealed: packed, bounded and
// chained to the block before.
type Block struct {
	AccountID   string
	Number      int64     // from 1, without gaps
	Digest      Digest    // of this block and, through Previous, of all before it
	Previous    Digest    // of the block before; zeros for the first
	First, Last time.Time // of its records
	Sealed      time.Time
	Records     int
	Content     []byte // see Table.Encode
}

// Chain tells what an account's log holds.
type Chain struct {
	AccountID string
	Base      Head // the last block that retention removed; number 0 if none was: the rest begins with the block after
	Head      Head // the last sealed block
	Cut       Cut
}

// Cut is what was removed before its time, because the log had outgrown its
// bounds on disk. Zero Records is nothing.
type Cut struct {
	Records     int64
	First, Last time.Time
}

// chainLabel begins what is hashed, so that no digest of something else can
// pass for one of a block.
const chainLabel = "keygate audit block 1\n"

// Seal sets the digest of b, over all its other members.
func (b *Block) Seal() { b.Digest = b.sum() }

// Intact reports whether the digest is that of the block as it is.
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

// End returns the head of a chain that ends with b.
func (b *Block) End() Head { return Head{Number: b.Number, Digest: b.Digest, Time: b.Sealed} }

// Seal is one step of sealing: what moves from the open end of an account's log
// to its chain.
type Seal struct {
	AccountID string
	Blocks    []*Block   // in order; the first continues the chain
	Summaries []*Summary // of each
	Through   int64      // chunks up to this one are in the blocks
	Managed   []int64    // the Seq of each management record that is
}

// Waiting is how much of an account's log is open.
type Waiting struct {
	AccountID string
	Chunks    int
	Records   int       // in the chunks
	Managed   int       // management records
	Oldest    time.Time // of all of them
}

// Trimmed is what a step of retention removed from an account's log.
type Trimmed struct {
	AccountID string
	Blocks    int
	Records   int64
	Last      time.Time // of the records
	Early     bool      // before their time, for want of space
}
