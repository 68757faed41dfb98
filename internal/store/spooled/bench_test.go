package spooled_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/store/spooled"
)

// BenchmarkSpool measures how long a batch of the audit log of 1,000 requests takes into the spool, how long from
// there into the database, and how many bytes it has for each request.
func BenchmarkSpool(b *testing.B) {
	const records = 1000
	var table audit.Table
	for i := range records {
		e := audit.Event{Time: time.Now().UnixMicro(), Request: id.NewFast(), Outcome: audit.Success, Method: "GET", Path: fmt.Sprintf("/orders/%d", i*7919%100_000)}
		e.Key[0], e.Client[15] = byte(i%50), byte(i)
		table.AddEvent(&e)
	}
	h := newHarness(b, 4<<30)
	h.cfg.Dir = filepath.Join(b.TempDir(), "spool")
	h.kill()
	chunks, err := table.Chunks(h.account)
	h.must(err)
	h.db.set(away)
	began := time.Now()
	for n := range b.N {
		if err := h.AppendAuditChunks(b.Context(), accesslog.BatchID{Writer: "w", Number: int64(n + 1)}, chunks, nil); err != accesslog.ErrSpooled { //nolint:errorlint // it is returned as it is
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(time.Since(began).Microseconds())/float64(b.N), "us/append")
	b.ReportMetric(float64(h.Bytes())/float64(b.N*records), "bytes/request")
	h.db.set(well)
	began = time.Now()
	h.must(h.Sync(b.Context()))
	b.ReportMetric(float64(time.Since(began).Microseconds())/float64(b.N), "us/drain")
	if h.lost[spooled.Audit] != 0 {
		b.Error("records were lost")
	}
}
