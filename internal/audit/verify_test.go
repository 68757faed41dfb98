package audit_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/id"
)

// chained returns a chain of n blocks of an account.
func chained(t testing.TB, accountID string, n int) (audit.Chain, []*audit.Block) {
	t.Helper()
	c := newCodec(t)
	chain := audit.Chain{AccountID: accountID}
	var blocks []*audit.Block
	now := time.Date(2027, 3, 1, 12, 0, 0, 0, time.UTC)
	for i := range n {
		var table audit.Table
		for r := range 5 {
			now = now.Add(time.Second)
			e := audit.Event{Time: now.UnixMicro(), Request: id.NewFastAt(now.UnixMilli()), Outcome: audit.Success, Method: "GET", Path: fmt.Sprintf("/%d/%d", i, r)}
			copy(e.Prefix[:], "kg_AbCdEf")
			table.AddEvent(&e)
		}
		m := audit.Record{Time: now, Kind: audit.Management, Outcome: audit.Success, Seq: int64(i + 1), Action: audit.KeyRevoke, Target: "key_1",
			Diff: audit.Diff{"state": {"active", "revoked"}}}
		if err := table.Add(&m); err != nil {
			t.Fatal(err)
		}
		table.Sort()
		content, err := table.Encode(c)
		if err != nil {
			t.Fatal(err)
		}
		first, last := table.Span()
		b := &audit.Block{AccountID: accountID, Number: int64(i + 1), Previous: chain.Head.Digest, First: first, Last: last, Sealed: now,
			Records: table.Len(), Content: content}
		b.Seal()
		chain.Head = b.End()
		blocks = append(blocks, b)
	}
	return chain, blocks
}

// each iterates over blocks without errors.
func each(blocks []*audit.Block) iter.Seq2[*audit.Block, error] {
	return func(yield func(*audit.Block, error) bool) {
		for _, b := range blocks {
			if !yield(b, nil) {
				return
			}
		}
	}
}

// export returns the export of a chain.
func export(t testing.TB, chain audit.Chain, blocks []*audit.Block) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := audit.Export(&out, chain, each(blocks)); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// Guarantee: an export that was not changed is verified, whole or from a base on, and with
// any earlier head of its chain.
func TestVerifyAcceptsAnUnchangedExport(t *testing.T) {
	account := id.New(id.Account)
	chain, blocks := chained(t, account, 6)
	t.Run("whole", func(t *testing.T) {
		got, err := audit.VerifyExport(bytes.NewReader(export(t, chain, blocks)), nil)
		if err != nil {
			t.Fatal(err)
		}
		want := audit.Report{AccountID: account, Blocks: 6, Records: 36, Events: 36, First: blocks[0].First, Last: blocks[5].Last, Head: chain.Head}
		if got.Base = (audit.Head{}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
	rest := chain
	rest.Base, rest.Cut = blocks[2].End(), audit.Cut{Records: 6, First: blocks[0].First, Last: blocks[0].Last}
	for from, chain := range map[int]audit.Chain{0: chain, 3: rest} {
		for i := max(0, from-1); i < len(blocks); i++ {
			t.Run(fmt.Sprintf("from block %d with the head of block %d", from+1, i+1), func(t *testing.T) {
				head := blocks[i].Digest
				got, err := audit.VerifyExport(bytes.NewReader(export(t, chain, blocks[from:])), &head)
				if err != nil {
					t.Fatal(err)
				}
				if got.Given != blocks[i].Number {
					t.Errorf("got the given head at block %d, want %d", got.Given, blocks[i].Number)
				}
				if got.Cut != chain.Cut {
					t.Errorf("got the cut %+v, want %+v", got.Cut, chain.Cut)
				}
			})
		}
	}
	t.Run("empty", func(t *testing.T) {
		got, err := audit.VerifyExport(bytes.NewReader(export(t, audit.Chain{AccountID: account}, nil)), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got.Blocks != 0 {
			t.Errorf("got %d blocks, want 0", got.Blocks)
		}
	})
}

// reseal seals all blocks again from index from on, as a forger would.
func reseal(chain *audit.Chain, blocks []*audit.Block, from int) {
	for i := from; i < len(blocks); i++ {
		if i > 0 {
			blocks[i].Previous = blocks[i-1].Digest
		}
		blocks[i].Number = chain.Base.Number + int64(i) + 1
		blocks[i].Seal()
		chain.Head = blocks[i].End()
	}
}

// tampering changes a chain of six blocks before it is exported.
type tampering struct {
	name   string
	tamper func(chain *audit.Chain, blocks []*audit.Block) []*audit.Block
}

// tamperings are changes that a verification finds without a head that was kept elsewhere.
// foreign is the chain of another account.
func tamperings(foreign []*audit.Block) []tampering {
	return []tampering{
		{"a bit of the content", func(_ *audit.Chain, b []*audit.Block) []*audit.Block { b[2].Content[40] ^= 1; return b }},
		{"the time of the first record", func(_ *audit.Chain, b []*audit.Block) []*audit.Block {
			b[2].First = b[2].First.Add(time.Microsecond)
			return b
		}},
		{"the time of sealing", func(_ *audit.Chain, b []*audit.Block) []*audit.Block {
			b[2].Sealed = b[2].Sealed.Add(time.Hour)
			return b
		}},
		{"the number of records", func(_ *audit.Chain, b []*audit.Block) []*audit.Block { b[2].Records--; return b }},
		{"a digest", func(_ *audit.Chain, b []*audit.Block) []*audit.Block { b[2].Digest[0] ^= 1; return b }},
		{"a block altered with its digest", func(_ *audit.Chain, b []*audit.Block) []*audit.Block {
			b[2].Content = b[3].Content
			b[2].Seal()
			return b
		}},
		{"the last block altered with its digest", func(_ *audit.Chain, b []*audit.Block) []*audit.Block {
			b[5].Sealed = b[5].Sealed.Add(1e9)
			b[5].Seal()
			return b
		}},
		{"a block removed", func(_ *audit.Chain, b []*audit.Block) []*audit.Block { return slices.Delete(b, 2, 3) }},
		{"the first block removed", func(_ *audit.Chain, b []*audit.Block) []*audit.Block { return b[1:] }},
		{"the first block removed and the second made the first", func(c *audit.Chain, b []*audit.Block) []*audit.Block {
			c.Base = audit.Head{}
			b[1].Number, b[1].Previous = 1, audit.Digest{}
			return b[1:]
		}},
		{"two blocks swapped", func(_ *audit.Chain, b []*audit.Block) []*audit.Block { b[2], b[3] = b[3], b[2]; return b }},
		{"two blocks swapped, with their numbers", func(_ *audit.Chain, b []*audit.Block) []*audit.Block {
			b[2], b[3] = b[3], b[2]
			b[2].Number, b[3].Number = b[3].Number, b[2].Number
			return b
		}},
		{"a block repeated", func(_ *audit.Chain, b []*audit.Block) []*audit.Block { return slices.Insert(b, 3, b[2]) }},
		{"the end cut off", func(_ *audit.Chain, b []*audit.Block) []*audit.Block { return b[:4] }},
		{"everything cut off", func(_ *audit.Chain, _ []*audit.Block) []*audit.Block { return nil }},
		{"a block of another account", func(_ *audit.Chain, b []*audit.Block) []*audit.Block { b[2] = foreign[2]; return b }},
		{"the end of another account's chain", func(c *audit.Chain, b []*audit.Block) []*audit.Block {
			c.Head = foreign[5].End()
			return append(b[:3:3], foreign[3:]...)
		}},
		{"another account's whole chain", func(c *audit.Chain, _ []*audit.Block) []*audit.Block {
			c.Head = foreign[5].End()
			return slices.Clone(foreign)
		}},
		{"a false base", func(c *audit.Chain, b []*audit.Block) []*audit.Block {
			c.Base = audit.Head{Number: 1, Digest: [32]byte{1}}
			return b[1:]
		}},
	}
}

// forgeries are changes by someone who can seal the whole chain again. A verification finds
// them only with a head that was kept elsewhere.
func forgeries() []tampering {
	return []tampering{
		{"the end cut off with the head", func(c *audit.Chain, b []*audit.Block) []*audit.Block { c.Head = b[3].End(); return b[:4] }},
		{"a block removed and the rest sealed again", func(c *audit.Chain, b []*audit.Block) []*audit.Block {
			b = slices.Delete(b, 2, 3)
			reseal(c, b, 2)
			return b
		}},
		{"a block altered and the rest sealed again", func(c *audit.Chain, b []*audit.Block) []*audit.Block {
			b[0].Content, b[0].First, b[0].Last = b[1].Content, b[1].First, b[1].Last
			reseal(c, b, 0)
			return b
		}},
		{"everything removed with the head", func(c *audit.Chain, _ []*audit.Block) []*audit.Block { c.Head = audit.Head{}; return nil }},
	}
}

// Guarantee: a change, removal, reordering or truncation of blocks, and blocks of another
// account, are found. If the chain was sealed again, it takes a head that was kept elsewhere
// to find it.
func TestVerifyFindsTampering(t *testing.T) {
	account := id.New(id.Account)
	_, foreign := chained(t, id.New(id.Account), 6)
	// verify verifies a tampered export, with the original head or without one.
	verify := func(t *testing.T, tc tampering, withHead bool) error {
		t.Helper()
		chain, blocks := chained(t, account, 6)
		var head *audit.Digest
		if withHead {
			digest := audit.Digest(chain.Head.Digest)
			head = &digest
		}
		blocks = tc.tamper(&chain, blocks)
		_, err := audit.VerifyExport(bytes.NewReader(export(t, chain, blocks)), head)
		return err
	}
	var problem *audit.Problem
	for _, tc := range tamperings(foreign) {
		t.Run(tc.name, func(t *testing.T) {
			for _, withHead := range []bool{true, false} {
				if err := verify(t, tc, withHead); !errors.As(err, &problem) {
					t.Errorf("with a head: %v: got the error %v, want a Problem", withHead, err)
				}
			}
		})
	}
	for _, tc := range forgeries() {
		t.Run(tc.name, func(t *testing.T) {
			if err := verify(t, tc, true); !errors.As(err, &problem) {
				t.Errorf("with a head: got the error %v, want a Problem", err)
			}
			if err := verify(t, tc, false); err != nil {
				t.Errorf("without a head: got the error %v, want none", err)
			}
		})
	}
}

// Guarantee: changing or removing any byte of an export, or cutting it off anywhere, is found,
// unless the export still has the same meaning.
func TestVerifyFindsEveryByte(t *testing.T) {
	chain, blocks := chained(t, id.New(id.Account), 3)
	whole := export(t, chain, blocks)
	head := blocks[2].Digest
	random := rand.New(rand.NewPCG(1, 2))
	for range 400 {
		at := random.IntN(len(whole))
		changed := slices.Clone(whole)
		switch random.IntN(3) {
		case 0:
			changed[at] ^= 1 << random.IntN(8)
		case 1:
			changed = slices.Delete(changed, at, at+1)
		default:
			changed = changed[:at]
		}
		if sameExport(whole, changed) {
			continue
		}
		if report, err := audit.VerifyExport(bytes.NewReader(changed), &head); err == nil {
			t.Fatalf("a change at byte %d was verified as %+v, want an error\n%s", at, report, changed[max(0, at-60):min(len(changed), at+60)])
		}
	}
}

// sameExport reports whether two exports describe the same chain: property names may be in
// any case, and the times of heads are only for people.
func sameExport(a, b []byte) bool {
	type line struct {
		Version    int    `json:"keygate_audit_export"`
		Account    string `json:"account_id"`
		Base, Head struct {
			Number int
			Digest string
		}
		Cut              any
		Number, Records  int
		Previous, Digest string
		First            time.Time `json:"first_at"`
		Last             time.Time `json:"last_at"`
		Sealed           time.Time `json:"sealed_at"`
		Content          []byte
	}
	read := func(b []byte) (lines []line) {
		for _, text := range bytes.Split(bytes.TrimSpace(b), []byte("\n")) {
			var l line
			if json.Unmarshal(text, &l) != nil {
				return nil
			}
			l.Base.Digest, l.Head.Digest = strings.ToLower(l.Base.Digest), strings.ToLower(l.Head.Digest)
			l.Previous, l.Digest = strings.ToLower(l.Previous), strings.ToLower(l.Digest)
			lines = append(lines, l)
		}
		return lines
	}
	return reflect.DeepEqual(read(a), read(b))
}

// Guarantee: the verifier does not panic for any bytes, and reports no blocks without content.
func FuzzVerifyExport(f *testing.F) {
	chain, blocks := chained(f, id.New(id.Account), 3)
	f.Add(export(f, chain, blocks))
	f.Add([]byte("{}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if report, err := audit.VerifyExport(bytes.NewReader(b), nil); err == nil && report.Blocks > 0 && !bytes.Contains(b, []byte("content")) {
			t.Fatalf("got %d blocks in an export without content, want 0", report.Blocks)
		}
	})
}
