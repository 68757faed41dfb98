package sqlite_test

import (
	"context"
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
	"github.com/keygate/keygate/internal/store/sqlite/sqlitetest"
)

// auditBlocks is 50 million records.
const auditBlocks = 50_000_000/audit.MaxRecords + 1

// library is an audit log of 50 million records.
type library struct {
	db      *sqlite.DB
	account string
	start   time.Time
	rare    int // blocks with the rare key
}

func newLibrary(b *testing.B) *library {
	b.Helper()
	path := filepath.Join(b.TempDir(), "keygate.db")
	l := &library{db: open(b, path), account: id.New(id.Account), start: time.Date(2027, 3, 1, 0, 0, 0, 0, time.UTC)}
	ctx := b.Context()
	a := account.Account{ID: l.account, Name: "library", Tier: account.Scale, CreatedAt: l.start}
	if err := l.db.Update(ctx, func(tx control.Tx) error { return tx.InsertAccount(ctx, &a) }); err != nil {
		b.Fatal(err)
	}
	var err error
	if l.rare, err = sqlitetest.FillAuditLog(ctx, l.db, l.account, l.start, auditBlocks); err != nil {
		b.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		b.Fatal(err)
	}
	b.Logf("%d blocks, %.2f bytes of the file for each record", auditBlocks, float64(info.Size())/float64(auditBlocks)/audit.MaxRecords)
	return l
}

// BenchmarkAuditQueries measures queries over 50 million records. Each should take less than
// 100 ms, whether it finds many records, few or none.
func BenchmarkAuditQueries(b *testing.B) {
	l := newLibrary(b)
	key := func(x, y byte) string { return id.Format(id.Key, sqlitetest.AuditID(x, y)) }
	gateway := id.Format(id.Gateway, sqlitetest.AuditID(9, 1))
	middle := l.start.Add(auditBlocks / 2 * sqlitetest.BlockSpan)
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
		{"rare key in a time without it", audit.Filter{KeyID: key(200, 200), Since: middle, Until: middle.Add(100 * sqlitetest.BlockSpan)}, 0},
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
