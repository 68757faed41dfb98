package audit

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"
)

// The format of an export is JSON lines: the first line is the chain, and each other line
// a block, in order. Blocks are exported exactly as they are stored, so that anyone can
// recompute the digests.
type (
	exportHead struct {
		Version   int        `json:"keygate_audit_export"`
		AccountID string     `json:"account_id"`
		Base      exportEnd  `json:"base"`
		Head      exportEnd  `json:"head"`
		Cut       *exportCut `json:"cut,omitempty"`
	}
	exportEnd struct {
		Number int64     `json:"number"`
		Digest Digest    `json:"digest"`
		Time   time.Time `json:"time"`
	}
	exportCut struct {
		Records int64     `json:"records"`
		First   time.Time `json:"first_at"`
		Last    time.Time `json:"last_at"`
	}
	exportBlock struct {
		Number   int64     `json:"number"`
		Previous Digest    `json:"previous"`
		Digest   Digest    `json:"digest"`
		First    time.Time `json:"first_at"`
		Last     time.Time `json:"last_at"`
		Sealed   time.Time `json:"sealed_at"`
		Records  int       `json:"records"`
		Content  []byte    `json:"content"` // base 64
	}
)

const exportVersion = 1

// maxLine is the maximum length of a line, in bytes.
const maxLine = maxContent/3*4 + 1<<16

// MarshalText returns the digest in hexadecimal.
func (d Digest) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, d[:]), nil }

// UnmarshalText parses a digest in hexadecimal.
func (d *Digest) UnmarshalText(b []byte) error {
	if len(b) != hex.EncodedLen(len(d)) {
		return fmt.Errorf("a digest must have %d hexadecimal digits", hex.EncodedLen(len(d)))
	}
	_, err := hex.Decode(d[:], b)
	return err
}

// ParseDigest parses a digest in hexadecimal.
func ParseDigest(s string) (d Digest, err error) {
	err = d.UnmarshalText([]byte(s))
	return d, err
}

// Export writes a chain and its blocks, in order, in the format of VerifyExport.
func Export(w io.Writer, chain Chain, blocks iter.Seq2[*Block, error]) error {
	out := json.NewEncoder(w)
	head := exportHead{
		Version: exportVersion, AccountID: chain.AccountID,
		Base: exportEnd{chain.Base.Number, chain.Base.Digest, chain.Base.Time.UTC()},
		Head: exportEnd{chain.Head.Number, chain.Head.Digest, chain.Head.Time.UTC()},
	}
	if c := chain.Cut; c.Records > 0 {
		head.Cut = &exportCut{c.Records, c.First, c.Last}
	}
	if err := out.Encode(head); err != nil {
		return fmt.Errorf("export the audit log: %w", err)
	}
	for b, err := range blocks {
		if err != nil {
			return err
		}
		line := exportBlock{b.Number, b.Previous, b.Digest, b.First.UTC(), b.Last.UTC(), b.Sealed.UTC(), b.Records, b.Content}
		if err := out.Encode(line); err != nil {
			return fmt.Errorf("export the audit log: %w", err)
		}
	}
	return nil
}

// VerifyExport verifies an export, as Verify does a chain. The error is a *Problem also if
// the export is malformed.
func VerifyExport(r io.Reader, given *Digest) (Report, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	var head exportHead
	if !lines.Scan() {
		return Report{}, errors.Join(&Problem{0, "the export is empty"}, lines.Err())
	}
	if err := strictly(lines.Bytes(), &head); err != nil || head.Version != exportVersion {
		return Report{}, &Problem{0, "its first line is not the first line of an export"}
	}
	chain := Chain{
		AccountID: head.AccountID,
		Base:      Head{head.Base.Number, head.Base.Digest, head.Base.Time},
		Head:      Head{head.Head.Number, head.Head.Digest, head.Head.Time},
	}
	if c := head.Cut; c != nil {
		chain.Cut = Cut{c.Records, c.First, c.Last}
	}
	number := chain.Base.Number
	return Verify(chain, func(yield func(*Block, error) bool) {
		for lines.Scan() {
			number++
			var b exportBlock
			if err := strictly(lines.Bytes(), &b); err != nil {
				yield(nil, &Problem{number, "its line is malformed"})
				return
			}
			if !yield(&Block{head.AccountID, b.Number, b.Digest, b.Previous, b.First, b.Last, b.Sealed, b.Records, b.Content}, nil) {
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield(nil, fmt.Errorf("read the export: %w", err))
		}
	}, given)
}

// strictly decodes one JSON value, all of whose fields to must have.
func strictly(line []byte, to any) error {
	if !json.Valid(line) {
		return errDamaged
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	return d.Decode(to)
}
