package writer

import (
	"context"
	"errors"
	"testing"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/id"
)

// deaf is a store whose responses to writes are lost, until calls reaches 0.
type deaf struct {
	Store
	calls int
}

func (d *deaf) AppendAuditChunks(ctx context.Context, batch accesslog.BatchID, chunks []audit.Chunk, records []*audit.Record) error {
	err := d.Store.AppendAuditChunks(ctx, batch, chunks, records)
	if d.calls--; d.calls >= 0 {
		return errors.Join(errors.New("the connection was lost"), err)
	}
	return err
}

// Guarantee: records whose write had no response are written again, together with records taken
// since, and each is in the log once; so are gap records.
func TestLostResponseStoresOnce(t *testing.T) {
	b, _ := newBusy(t, 1)
	b.writer.cfg.Store = &deaf{Store: b.DB, calls: 3}
	b.writer.cfg.MaxHeld = 3 * recordWeight
	for i := range 10 {
		b.take(b.account, 1)
		if err := b.writer.Sync(t.Context()); (err != nil) != (i < 3) {
			t.Fatalf("Sync %d returned %v", i, err)
		}
	}
	o, err := b.AuditOpen(t.Context(), id.Format(id.Account, b.account))
	if err != nil {
		t.Fatal(err)
	}
	records, lost := 0, int64(b.writer.Lost())
	for _, c := range o.Chunks {
		records += c.Records
	}
	if lost == 0 || records+int(lost) != 10 {
		t.Errorf("%d records are stored and %d lost, want 10 in all, and some lost", records, lost)
	}
	if len(o.Records) != 1 {
		t.Errorf("the log has %d gaps, want 1", len(o.Records))
	}
	if held := b.writer.Held(); held != 0 {
		t.Errorf("%d bytes are held, want 0", held)
	}
}
