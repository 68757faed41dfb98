package closing_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/store/sqlite"
	"github.com/keygate/keygate/internal/usage"
	"github.com/keygate/keygate/internal/usage/closing"
)

// watched is a store that notes what closings write, and refuses those of one account.
type watched struct {
	*sqlite.DB
	refuses     string
	calls       int
	rows, bytes int // of the largest closing
}

var errRefused = errors.New("refused")

func (w *watched) CloseUsage(ctx context.Context, c *usage.Closing, now time.Time) error {
	if c.AccountID == w.refuses && c.Tier == usage.Hours {
		return errRefused
	}
	w.calls++
	size := 0
	for i := range c.Made {
		size += len(c.Made[i].Bytes)
	}
	w.rows, w.bytes = max(w.rows, len(c.Made)+len(c.Chunks)+len(c.Blocks)), max(w.bytes, size)
	return w.DB.CloseUsage(ctx, c, now)
}

// Guarantee: no closing writes more than 2,000 rows and some 16 MiB, however many keys with however long names of owners
// were used, and all of it is counted once.
func TestClosingIsBounded(t *testing.T) {
	const owners = 60_000
	f := newFixture(t)
	f.complete = true
	batch := make([]accesslog.Entry, owners)
	for n := range batch {
		e := &batch[n]
		e.Start, e.Account, e.Gateway, e.Status, e.Owner = f.now.UnixMicro(), uuid(1), uuid(3), 200, fmt.Sprintf("%0255d", n)
		binary.BigEndian.PutUint32(e.OwnerID[12:], uint32(n+1))
		binary.BigEndian.PutUint32(e.Key[12:], uint32(n+1))
		e.SetPeriod(0, math.MaxInt64)
	}
	f.m.Take(batch)
	db := &watched{DB: f.db}
	f.closer = mustClose(t, closing.Config{Store: db, Alone: true, Now: func() time.Time { return f.now }, Flush: f.m.Sync})
	f.at(11, 0, 4)
	if db.rows > 1990 || db.bytes > 17<<20 || db.calls < 2 {
		t.Errorf("the largest of %d closings has %d rows and %d bytes; want at least 2, with at most 1,990 rows and 17 MiB", db.calls, db.rows, db.bytes)
	}
	if _, units := f.final(usage.Hours); units != owners {
		t.Errorf("got %d units, want %d", units, owners)
	}
}

func mustClose(t *testing.T, cfg closing.Config) *closing.Closer {
	t.Helper()
	c, err := closing.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Guarantee: an account whose usage cannot be closed keeps neither the records of others from becoming final, nor old
// records of others from becoming those of days.
func TestClosingThatFailsStopsNoOther(t *testing.T) {
	f := newFixture(t)
	f.complete = true
	f.use()
	f.at(11, 0, 4)
	f.now = f.now.Add(36 * 24 * time.Hour)
	other := accesslog.Entry{Record: accesslog.Record{Start: f.now.UnixMicro(), Account: uuid(9), Key: uuid(2), Gateway: uuid(3), Status: 200}}
	other.SetPeriod(0, math.MaxInt64)
	f.m.Take([]accesslog.Entry{other})
	f.use()
	db := &watched{DB: f.db, refuses: id.Format(id.Account, uuid(9))}
	closer := mustClose(t, closing.Config{Store: db, Alone: true, Now: func() time.Time { return f.now }, Flush: f.m.Sync})
	f.now = f.now.Add(time.Hour)
	if err := closer.Step(t.Context()); !errors.Is(err, errRefused) {
		t.Errorf("got %v, want the error of the store", err)
	}
	if records, _ := f.final(usage.Hours); records != 1 {
		t.Errorf("the account has %d records of hours, want the new one", records)
	}
	if records, _ := f.final(usage.Days); records != 1 {
		t.Errorf("the account has %d records of days, want that of the old hour", records)
	}
}
