package audit

import (
	"fmt"
	"iter"
	"time"
)

// Report describes a valid chain.
type Report struct {
	AccountID   string
	Blocks      int64
	Records     int64
	Events      int64     // that the records stand for, by their counts
	First, Last time.Time // of the records; zero if there are no records
	Base, Head  Head
	Given       int64 // number of the block with the given digest; 0 if no digest was given
	Cut         Cut
	// Unsealed describes the records of the account that are in no block yet, so that nothing is known of them; nil
	// if the blocks are not from a store, so that their number is not known.
	Unsealed *Waiting
}

// Problem is the error for an invalid chain.
type Problem struct {
	Block  int64 // number of the first block that is not as it was sealed; 0 if the problem is not in one block
	Reason string
}

func (p *Problem) Error() string {
	if p.Block == 0 {
		return "the audit log does not hold: " + p.Reason
	}
	return fmt.Sprintf("the audit log does not hold from block %d on: %s", p.Block, p.Reason)
}

// Verify checks that the blocks, in order, form the chain, and that each is as it was
// sealed. Someone who can write the whole log can also forge a whole chain. To detect
// that, pass the digest of a block that was kept elsewhere as given: the chain must
// contain it. If given is nil, it is not checked. The error for an invalid chain is a
// *Problem.
func Verify(chain Chain, blocks iter.Seq2[*Block, error], given *Digest) (Report, error) {
	codec, err := NewCodec()
	if err != nil {
		return Report{}, err
	}
	v := verifier{codec: codec, chain: chain, last: chain.Base}
	v.report = Report{AccountID: chain.AccountID, Base: chain.Base, Cut: chain.Cut}
	if given != nil && chain.Base.Number > 0 && chain.Base.Digest == *given {
		v.report.Given = chain.Base.Number
	}
	for b, err := range blocks {
		if err != nil {
			return Report{}, err
		}
		if err := v.block(b); err != nil {
			return Report{}, err
		}
		if given != nil && b.Digest == *given {
			v.report.Given = b.Number
		}
	}
	return v.report, v.end(given)
}

type verifier struct {
	codec  *Codec
	chain  Chain
	last   Head
	report Report
}

func (v *verifier) block(b *Block) error {
	wrong := func(format string, args ...any) error {
		return &Problem{v.last.Number + 1, fmt.Sprintf(format, args...)}
	}
	switch {
	case b.AccountID != v.chain.AccountID:
		return wrong("it is of another account, %s", b.AccountID)
	case b.Number > v.last.Number+1:
		return wrong("it is missing: block %d follows on block %d", b.Number, v.last.Number)
	case b.Number <= v.last.Number:
		return wrong("block %d stands where it should", b.Number)
	case b.Previous != v.last.Digest:
		return wrong("it does not continue the block before it")
	case !b.Intact():
		return wrong("it was altered")
	}
	view, err := v.codec.Open(b.Content)
	if err == nil {
		err = view.All()
	}
	if err != nil {
		return wrong("its records cannot be read")
	}
	if view.n != b.Records || view.times[0] != b.First.UnixMicro() || view.times[view.n-1] != b.Last.UnixMicro() {
		return wrong("it has other records than it says")
	}
	events := int64(0)
	for i := range view.n {
		r, err := view.Record(i)
		if err != nil {
			return wrong("its records cannot be read")
		}
		events += max(1, r.Count)
	}
	v.last = b.End()
	r := &v.report
	r.Blocks++
	r.Records += int64(b.Records)
	r.Events += events
	if r.First.IsZero() || b.First.Before(r.First) {
		r.First = b.First
	}
	if b.Last.After(r.Last) {
		r.Last = b.Last
	}
	return nil
}

func (v *verifier) end(given *Digest) error {
	v.report.Head = v.last
	switch head := v.chain.Head; {
	case v.last.Number < head.Number:
		return &Problem{v.last.Number + 1, fmt.Sprintf("it is missing: the log should go on to block %d", head.Number)}
	case v.last.Number > head.Number || v.last.Digest != head.Digest:
		return &Problem{v.last.Number, "it is not the end that the log names"}
	}
	if given != nil && v.report.Given == 0 {
		return &Problem{0, "no block has the digest that was given: blocks at the end are missing, the whole was made anew, or the digest is of another account's log or of one that retention has removed"}
	}
	return nil
}
