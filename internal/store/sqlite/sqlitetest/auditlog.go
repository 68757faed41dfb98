package sqlitetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/store/sqlite"
)

// BlockSpan is the time that each block of a log made by FillAuditLog covers.
const BlockSpan = 2 * time.Second

// AuditID returns the identifier of a key or gateway in a log made by FillAuditLog: keys are
// AuditID(k>>8, k) for k below 1,000, gateways AuditID(9, g) for g below 4. The key AuditID(200,
// 200) occurs in one of a thousand blocks, once in each such block.
func AuditID(a, b byte) [16]byte { return [16]byte{6: 0x70, 8: 0x80, 14: a, 15: b} }

// FillAuditLog seals blocks of audit.MaxRecords records of mixed traffic each into the log of an
// account that has none, the first at start, one every BlockSpan. It returns how many blocks have
// the rare key. The log repeats 32 different blocks at different times, some with rare
// records. The content of a block has the time at which it was first made; its bounds have
// the time at which it is in the log.
func FillAuditLog(ctx context.Context, db *sqlite.DB, accountID string, start time.Time, blocks int) (rare int, err error) {
	const different, every = 32, 1000
	codec, err := audit.NewCodec()
	if err != nil {
		return 0, err
	}
	type made struct {
		block   audit.Block
		summary []byte
	}
	all := make([]made, different+1) // the last one has rare records
	for n := range all {
		var t audit.Table
		fillMixed(&t, n, start, n == different)
		t.Sort()
		content, err := t.Encode(codec)
		if err != nil {
			return 0, err
		}
		all[n] = made{audit.Block{AccountID: accountID, Records: t.Len(), Content: content}, t.Summary(1).Marshal()}
	}
	var head audit.Head
	for from := 0; from < blocks; {
		seal := &audit.Seal{AccountID: accountID}
		for ; from < blocks && len(seal.Blocks) < audit.GroupSize; from++ {
			m := all[from%different]
			if from%every == every/2 {
				m = all[different]
				rare++
			}
			block := m.block
			block.Number, block.Previous = head.Number+1, head.Digest
			block.First = start.Add(time.Duration(from) * BlockSpan)
			block.Last = block.First.Add(BlockSpan)
			block.Sealed = block.Last
			block.Seal()
			head = block.End()
			s, err := audit.ReadSummary(m.summary)
			if err != nil {
				return 0, err
			}
			s.Number, s.First, s.Last = block.Number, block.First.UnixMicro(), block.Last.UnixMicro()
			seal.Blocks, seal.Summaries = append(seal.Blocks, &block), append(seal.Summaries, s)
		}
		if err := db.SealAudit(ctx, seal); err != nil {
			return 0, err
		}
	}
	return rare, nil
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
		e.Key, e.Gateway = AuditID(byte(k>>8), byte(k)), AuditID(9, byte(k%4))
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
			e.Outcome, e.Key = audit.KeyExpired, AuditID(200, 200)
		}
		t.AddEvent(&e)
	}
}
