package writer_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/requestlog"
	requestwriter "github.com/keygate/keygate/internal/requestlog/writer"
	"github.com/keygate/keygate/internal/store/sqlite"
)

// deaf is a store whose responses to writes are lost, until calls reaches 0.
type deaf struct {
	*sqlite.DB
	calls int
}

func (d *deaf) AppendRequests(ctx context.Context, batch accesslog.BatchID, records []requestlog.Record, left []requestlog.LeftOut) error {
	err := d.DB.AppendRequests(ctx, batch, records, left)
	if d.calls--; d.calls >= 0 {
		return errors.Join(errStore, err)
	}
	return err
}

// Guarantee: omitted requests whose write had no response are counted once, and so are requests
// that are omitted meanwhile.
func TestLostResponseCountsOnce(t *testing.T) {
	r := newWriter(t, requestwriter.Config{Store: &deaf{DB: open(t), calls: 3}, PerSecond: 1})
	a := id.NewFast()
	for i := range 10 {
		r.Take([]accesslog.Entry{refused(a, time.Duration(i)*time.Millisecond)})
		if err := r.Sync(t.Context()); (err != nil) != (i < 3) {
			t.Fatalf("Sync %d returned %v", i, err)
		}
	}
	if got := list(t, r, a); len(got) != 1 || got[0].LeftOut != 9 {
		t.Errorf("got %+v, want 1 request with 9 left out", got)
	}
}
