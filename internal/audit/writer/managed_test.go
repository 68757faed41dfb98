package writer

import (
	"context"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/id"
)

// Guarantee: a transaction that seals removes at most 1,500 management records, however many an account has, as after
// the deletion of a gateway with 100,000 routes; in the end all are sealed, each once, in their order.
func TestManagementRecordsAreSealedInPieces(t *testing.T) {
	const records = 2*audit.OldestRecords + 700
	for name, requests := range map[string]int{"alone": 0, "between requests": audit.RunRecords + 100} {
		t.Run(name, func(t *testing.T) {
			b, accounts := newBusy(t, 1)
			accountID := id.Format(id.Account, accounts[0])
			add := func(n int) {
				t.Helper()
				err := b.Update(t.Context(), func(tx control.Tx) error {
					for range n {
						b.now = b.now.Add(time.Millisecond)
						r := audit.Record{AccountID: accountID, Time: b.now, Kind: audit.Management, Outcome: audit.Success, Action: audit.RouteDelete, Target: id.New(id.Route)}
						if err := tx.AppendAudit(t.Context(), &r); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			add(records / 2)
			b.take(accounts[0], requests)
			add(records - records/2)
			seals := &counting{busy: b}
			b.writer.cfg.Store = seals
			if err := b.writer.Seal(t.Context()); err != nil {
				t.Fatal(err)
			}
			if seals.most > 1500 || len(seals.order) != records {
				t.Errorf("%d management records were sealed, up to %d in a transaction; want %d, up to 1500", len(seals.order), seals.most, records)
			}
			last := int64(0)
			for _, seq := range seals.order {
				if seq <= last {
					t.Fatalf("record %d was sealed after record %d", seq, last)
				}
				last = seq
			}
			if o, err := b.AuditOpen(t.Context(), accountID); err != nil || len(o.Records)+len(o.Chunks) > 0 {
				t.Errorf("%d records and %d chunks are left, error %v", len(o.Records), len(o.Chunks), err)
			}
		})
	}
}

// counting is a store that keeps which management records each transaction seals.
type counting struct {
	*busy
	most  int
	order []int64
}

func (c *counting) SealAudit(ctx context.Context, s *audit.Seal) error {
	c.most, c.order = max(c.most, len(s.Managed)), append(c.order, s.Managed...)
	return c.DB.SealAudit(ctx, s)
}
