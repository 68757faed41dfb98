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

// chained makes a chain of n blocks of an account.
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

func each(blocks []*audit.Block) iter.Seq2[*audit.Block, error] {
	return func(yield func(*audit.Block, error) bool) {
		for _, b := range blocks {
			if !yield(b, nil) {
				return
			}
		}
	}
}

func export(t testing.TB, chain audit.Chain, blocks []*audit.Block) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := audit.Export(&out, chain, each(blocks)); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// Guarantee: an export that nobody touched holds, whole or from a base on, and
// leads through every head that it ever had.
func TestVerify(t *testing.T) {
	account := id.New(id.Account)
	chain, blocks := chained(t, account, 6)
	report, err := audit.VerifyExport(bytes.NewReader(export(t, chain, blocks)), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := audit.Report{AccountID: account, Blocks: 6, Records: 36, First: blocks[0].First, Last: blocks[5].Last, Head: chain.Head}
	if report.Base = (audit.Head{}); report != want {
		t.Errorf("got %+v, want %+v", report, want)
	}
	rest := chain
	rest.Base, rest.Cut = blocks[2].End(), audit.Cut{Records: 6, First: blocks[0].First, Last: blocks[0].Last}
	for from, all := range map[int]audit.Chain{0: chain, 3: rest} {
		for i := max(0, from-1); i < len(blocks); i++ {
			given := blocks[i].Digest
			report, err := audit.VerifyExport(bytes.NewReader(export(t, all, blocks[from:])), &given)
			if err != nil || report.Given != blocks[i].Number || report.Cut != all.Cut {
				t.Errorf("from block %d with the head of block %d: %+v, %v", from+1, i+1, report, err)
			}
		}
	}
	if report, err := audit.VerifyExport(bytes.NewReader(export(t, audit.Chain{AccountID: account}, nil)), nil); err != nil || report.Blocks != 0 {
		t.Errorf("an empty chain gave %+v, %v", report, err)
	}
}

// reseal makes the chain anew from block from on, as a forger would.
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

// Guarantee: whatever is altered, removed, reordered, cut off or put in from
// another account's log is found; what a forger who makes the whole chain anew
// does is found by a head that was kept elsewhere.
func TestVerifyFindsTampering(t *testing.T) {
	account, other := id.New(id.Account), id.New(id.Account)
	_, foreign := chained(t, other, 6)
	for _, tc := range []struct {
		name   string
		tamper func(chain *audit.Chain, blocks []*audit.Block) []*audit.Block
		byHead bool // found by the given head alone
	}{
		{"a bit of the content", func(_ *audit.Chain, b []*audit.Block) []*audit.Block { b[2].Content[40] ^= 1; return b }, false},
		{"a bound", func(_ *audit.Chain, b []*audit.Block) []*audit.Block {
			b[2].First = b[2].First.Add(time.Microsecond)
			return b
		}, false},
		{"the time of sealing", func(_ *audit.Chain, b []*audit.Block) []*audit.Block {
			b[2].Sealed = b[2].Sealed.Add(time.Hour)
			return b
		}, false},
		{"the number of records", func(_ *audit.Chain, b []*audit.Block) []*audit.Block { b[2].Records--; return b }, false},
		{"a digest", func(_ *audit.Chain, b []*audit.Block) []*audit.Block { b[2].Digest[0] ^= 1; return b }, false},
		{"a block altered with its digest", func(_ *audit.Chain, b []*audit.Block) []*audit.Block {
			b[2].Content = b[3].Content
			b[2].Seal()
			return b
		}, false},
		{"the last block altered with its digest", func(_ *audit.Chain, b []*audit.Block) []*audit.Block {
			b[5].Sealed = b[5].Sealed.Add(1e9)
			b[5].Seal()
			return b
		}, false},
		{"a block removed", func(_ *audit.Chain, b []*audit.Block) []*audit.Block { return slices.Delete(b, 2, 3) }, false},
		{"the first block removed", func(_ *audit.Chain, b []*audit.Block) []*audit.Block { return b[1:] }, false},
		{"the first block removed and the second made the first", func(c *audit.Chain, b []*audit.Block) []*audit.Block {
			c.Base = audit.Head{}
			b[1].Number, b[1].Previous = 1, audit.Digest{}
			return b[1:]
		}, false},
		{"two blocks in each other's place", func(_ *audit.Chain, b []*audit.Block) []*audit.Block { b[2], b[3] = b[3], b[2]; return b }, false},
		{"two blocks in each other's place, with their numbers", func(_ *audit.Chain, b []*audit.Block) []*audit.Block {
			b[2], b[3] = b[3], b[2]
			b[2].Number, b[3].Number = b[3].Number, b[2].Number
			return b
		}, false},
		{"a block twice", func(_ *audit.Chain, b []*audit.Block) []*audit.Block { return slices.Insert(b, 3, b[2]) }, false},
		{"the end cut off", func(_ *audit.Chain, b []*audit.Block) []*audit.Block { return b[:4] }, false},
		{"everything cut off", func(_ *audit.Chain, _ []*audit.Block) []*audit.Block { return nil }, false},
		{"a block of another account", func(_ *audit.Chain, b []*audit.Block) []*audit.Block { b[2] = foreign[2]; return b }, false},
		{"the end of another account's chain", func(c *audit.Chain, b []*audit.Block) []*audit.Block {
			c.Head = foreign[5].End()
			return append(b[:3:3], foreign[3:]...)
		}, false},
		{"another account's whole chain", func(c *audit.Chain, _ []*audit.Block) []*audit.Block {
			c.Head = foreign[5].End()
			return slices.Clone(foreign)
		}, false},
		{"a false base", func(c *audit.Chain, b []*audit.Block) []*audit.Block {
			c.Base = audit.Head{Number: 1, Digest: [32]byte{1}}
			return b[1:]
		}, false},
		{"the end cut off with the head", func(c *audit.Chain, b []*audit.Block) []*audit.Block { c.Head = b[3].End(); return b[:4] }, true},
		{"a block removed and the rest made anew", func(c *audit.Chain, b []*audit.Block) []*audit.Block {
			b = slices.Delete(b, 2, 3)
			reseal(c, b, 2)
			return b
		}, true},
		{"a block altered and the rest made anew", func(c *audit.Chain, b []*audit.Block) []*audit.Block {
			b[0].Content, b[0].First, b[0].Last = b[1].Content, b[1].First, b[1].Last
			reseal(c, b, 0)
			return b
		}, true},
		{"everything removed with the head", func(c *audit.Chain, _ []*audit.Block) []*audit.Block { c.Head = audit.Head{}; return nil }, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			chain, blocks := chained(t, account, 6)
			head := audit.Digest(chain.Head.Digest)
			blocks = tc.tamper(&chain, blocks)
			var problem *audit.Problem
			if _, err := audit.VerifyExport(bytes.NewReader(export(t, chain, blocks)), &head); !errors.As(err, &problem) {
				t.Errorf("with the head that was kept: %v", err)
			}
			_, err := audit.VerifyExport(bytes.NewReader(export(t, chain, blocks)), nil)
			if found := errors.As(err, &problem); found == tc.byHead {
				t.Errorf("without a head: %v", err)
			}
		})
	}
}

// Guarantee: no single byte of an export can be changed, removed or cut off
// without being found, except where the meaning stays the same.
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
			t.Fatalf("a change at byte %d was not found: %+v\n%s", at, report, changed[max(0, at-60):min(len(changed), at+60)])
		}
	}
}

// sameExport reports whether two exports say the same of the chain: names of
// members may be in any case, and the times of its ends tell people alone.
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

// Guarantee: no bytes make the verifier panic.
func FuzzVerifyExport(f *testing.F) {
	chain, blocks := chained(f, id.New(id.Account), 3)
	f.Add(export(f, chain, blocks))
	f.Add([]byte("{}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if report, err := audit.VerifyExport(bytes.NewReader(b), nil); err == nil && report.Blocks > 0 && !bytes.Contains(b, []byte("content")) {
			t.Fatalf("an export without blocks has %d", report.Blocks)
		}
	})
}
