package sqlite_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/store/sqlite"
)

// auditBlocks is 50 million records.
const auditBlocks = 50_000_000/audit.MaxRecords + 1

// library is an audit log of 50 million records of mixed traffic. It repeats 32 different
// blocks at different times, some with rare records. The content of a block has the time at
// which it was first made; its bounds have the time at which it is in the log.
type library struct {
	db      *sqlite.DB
	account string
	start   time.Time
	rare    int // blocks with the rare key
}

const (
	libraryBlocks = 32
	blockSpan     = 2 * time.Second
)

func newLibrary(b *testing.B) *library {
	b.Helper()
	path := filepath.Join(b.TempDir(), "keygate.db")
	l := &library{db: open(b, path), account: id.New(id.Account), start: time.Date(2027, 3, 1, 0, 0, 0, 0, time.UTC)}
	ctx := b.Context()
	a := account.Account{ID: l.account, Name: "library", Plan: account.Scale, CreatedAt: l.start}
	if err := l.db.Update(ctx, func(tx control.Tx) error { return tx.InsertAccount(ctx, &a) }); err != nil {
		b.Fatal(err)
	}
	codec, err := audit.NewCodec()
	if err != nil {
		b.Fatal(err)
	}
	type made struct {
		block   audit.Block
		summary []byte
	}
	make1 := func(n int, rare bool) made {
		var t audit.Table
		fillMixed(&t, n, l.start, rare)
		t.Sort()
		content, err := t.Encode(codec)
		if err != nil {
			b.Fatal(err)
		}
		return made{audit.Block{AccountID: l.account, Records: t.Len(), Content: content}, t.Summary(1).Marshal()}
	}
	var blocks []made
	for n := range libraryBlocks {
		blocks = append(blocks, make1(n, false))
	}
	rare := make1(libraryBlocks, true)
	var head audit.Head
	for from := 0; from < auditBlocks; {
		seal := &audit.Seal{AccountID: l.account}
		for ; from < auditBlocks && len(seal.Blocks) < audit.GroupSize; from++ {
			m := blocks[from%libraryBlocks]
			if from%1000 == 500 {
				m = rare
				l.rare++
			}
			block := m.block
			block.Number, block.Previous = head.Number+1, head.Digest
			block.First = l.start.Add(time.Duration(from) * blockSpan)
			block.Last = block.First.Add(blockSpan)
			block.Sealed = block.Last
			block.Seal()
			head = block.End()
			s, err := audit.ReadSummary(m.summary)
			if err != nil {
				b.Fatal(err)
			}
			s.Number, s.First, s.Last = block.Number, block.First.UnixMicro(), block.Last.UnixMicro()
			seal.Blocks, seal.Summaries = append(seal.Blocks, &block), append(seal.Summaries, s)
		}
		if err := l.db.SealAudit(ctx, seal); err != nil {
			b.Fatal(err)
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		b.Fatal(err)
	}
	b.Logf("%d blocks, %.2f bytes of the file for each record", auditBlocks, float64(info.Size())/float64(auditBlocks)/audit.MaxRecords)
	return l
}

// fillMixed adds the traffic of two seconds: by 1,000 keys that are used very unevenly, from
// 1,500 addresses, on four gateways. Half of the paths have a unique number; one request in
// twelve is refused.
func fillMixed(t *audit.Table, n int, at time.Time, rare bool) {
	random := rand.New(rand.NewPCG(uint64(n), 1))
	keys, clients := rand.NewZipf(random, 1.1, 10, 999), rand.NewZipf(random, 1.1, 20, 1499)
	now := at.UnixMicro()
	for i := range audit.MaxRecords {
		now += int64(random.ExpFloat64() * 450)
		k := keys.Uint64()
		e := audit.Event{Time: now, Request: id.NewFastAt(now / 1000), Outcome: audit.Success, Method: "GET"}
		e.Key, e.Gateway = benchID(byte(k>>8), byte(k)), benchID(9, byte(k%4))
		copy(e.Prefix[:], fmt.Sprintf("kg_%06d", k))
		ip := clients.Uint64() * 2654435761
		copy(e.Client[10:], []byte{0xff, 0xff, byte(ip >> 24), byte(ip >> 16), byte(ip >> 8), byte(ip)})
		e.Path = fmt.Sprintf("/v1/catalogue/items/%d/price", random.IntN(300))
		if random.IntN(2) == 0 {
			e.Path = fmt.Sprintf("/v1/orders/%d", random.IntN(10_000_000))
		}
		if random.IntN(12) == 0 {
			e.Outcome, e.Key = audit.KeyInvalid, [16]byte{}
		}
		if rare && i == 2000 {
			e.Outcome, e.Key = audit.KeyExpired, benchID(200, 200)
		}
		t.AddEvent(&e)
	}
}

func benchID(a, b byte) [16]byte { return [16]byte{6: 0x70, 8: 0x80, 14: a, 15: b} }

// BenchmarkAuditQueries measures queries over 50 million records. Each should take less than
// 100 ms, whether it finds many records, few or none.
func BenchmarkAuditQueries(b *testing.B) {
	l := newLibrary(b)
	key := func(x, y byte) string { return id.Format(id.Key, benchID(x, y)) }
	gateway := id.Format(id.Gateway, benchID(9, 1))
	middle := l.start.Add(auditBlocks / 2 * blockSpan)
	for _, q := range []struct {
		name   string
		filter audit.Filter
		found  int
	}{
		{"newest", audit.Filter{}, 101},
		{"busy key", audit.Filter{KeyID: key(0, 1)}, 101},
		{"busy prefix on a gateway", audit.Filter{KeyPrefix: "kg_000001", GatewayID: gateway}, 101},
		{"refused for an invalid key", audit.Filter{Outcome: audit.KeyInvalid}, 101},
		{"rare key, in one block of a thousand", audit.Filter{KeyID: key(200, 200)}, l.rare},
		{"rare outcome", audit.Filter{Outcome: audit.KeyExpired}, l.rare},
		{"refusals of a busy prefix that has none", audit.Filter{KeyPrefix: "kg_000001", Outcome: audit.ScopeInsufficient}, 0},
		{"expiries of a busy key that has none", audit.Filter{KeyID: key(0, 1), Outcome: audit.KeyExpired}, 0},
		{"busy key on a busy gateway that it never calls", audit.Filter{KeyID: key(0, 0), GatewayID: gateway}, 0},
		{"key without records", audit.Filter{KeyID: key(99, 99)}, 0},
		{"prefix without records", audit.Filter{KeyPrefix: "kg_nobody"}, 0},
		{"actor without records", audit.Filter{Actor: key(1, 1)}, 0},
		{"management", audit.Filter{Kind: audit.Management}, 0},
		{"outcome that there is not", audit.Filter{Outcome: audit.ScopeInsufficient}, 0},
		{"times that there are not", audit.Filter{Until: l.start.Add(-time.Hour)}, 0},
		{"rare key in a time without it", audit.Filter{KeyID: key(200, 200), Since: middle, Until: middle.Add(100 * blockSpan)}, 0},
	} {
		b.Run(strings.ReplaceAll(q.name, " ", "_"), func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				begun := time.Now()
				err := l.db.View(context.Background(), func(tx control.ReadTx) error {
					list, err := tx.AuditLog(b.Context(), l.account, q.filter, control.Page{Limit: 101})
					if err == nil && len(list) != q.found {
						b.Fatalf("%d records, want %d", len(list), q.found)
					}
					return err
				})
				if err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(begun))
			}
			b.ReportMetric(float64(slices.Max(took).Microseconds())/1000, "ms-max")
		})
	}
}
