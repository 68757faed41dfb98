package meter_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/store/sqlite"
	"github.com/keygate/keygate/internal/store/sqlite/sqlitetest"
	"github.com/keygate/keygate/internal/traffic"
)

// deaf is a store whose responses to writes are lost, until calls reaches 0.
type deaf struct {
	*sqlite.DB
	calls int
}

func (d *deaf) AppendTraffic(ctx context.Context, batch accesslog.BatchID, chunks []traffic.Chunk) error {
	err := d.DB.AppendTraffic(ctx, batch, chunks)
	if d.calls--; d.calls >= 0 {
		return errors.Join(errStore, err)
	}
	return err
}

// Guarantee: counts whose write had no response are written again, together with counts taken
// since, and each is counted once.
func TestLostResponseCountsOnce(t *testing.T) {
	store := &deaf{DB: sqlitetest.Open(t, sqlite.Config{}), calls: 3}
	c := &clock{at: time.Date(2026, 5, 6, 12, 0, 0, 0, time.UTC)}
	m, account := newMeter(t, store, c), id.NewFast()
	for n := range 10 {
		m.Take([]accesslog.Entry{entry(account, n, c.now())})
		if err := m.Sync(t.Context()); (err != nil) != (n < 3) {
			t.Fatalf("Sync %d returned %v", n, err)
		}
	}
	wantTotal(t, "afterwards", store, account, 10)
}
