package storetest

import (
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/requestlog"
	"github.com/keygate/keygate/internal/traffic"
)

// Guarantee: a repeated batch of traffic, of the request log or of the audit log is stored once,
// and changes nothing when a later batch of its writer is stored. Batches of other writers, and
// batches without a writer, do not count as repetitions of it.
func testRepeatedBatch(h *harness) {
	a := h.insertAccount("a")
	second := epoch().Unix()
	table := audit.Table{}
	table.AddEvent(&audit.Event{Time: epoch().UnixMicro(), Request: id.NewFast(), Outcome: audit.Success, Method: "GET", Path: "/"})
	chunks, err := table.Chunks(a.ID)
	h.must(err)
	kinds := []struct {
		name  string
		write func(accesslog.BatchID) error
		count func() int
	}{
		{"traffic", func(b accesslog.BatchID) error {
			return h.AppendTraffic(h.Context(), b, []traffic.Chunk{newChunk(a.ID, traffic.Keys, traffic.Minutes, 60, 1, 2)})
		}, func() int {
			return len(h.readTraffic(traffic.ChunkQuery{AccountID: a.ID, Part: traffic.Keys, Before: 3600}))
		}},
		{"omitted requests", func(b accesslog.BatchID) error {
			return h.AppendRequests(h.Context(), b, nil, []requestlog.LeftOut{{AccountID: a.ID, Second: second, Count: 1}})
		}, func() int {
			r := newRequest(a.ID, 0)
			h.must(h.AppendRequests(h.Context(), accesslog.BatchID{}, []requestlog.Record{r}, nil))
			got, err := h.RequestRecord(h.Context(), a.ID, r.ID)
			h.must(err)
			return int(got.LeftOut)
		}},
		{"audit records", func(b accesslog.BatchID) error { return h.AppendAuditChunks(h.Context(), b, chunks, nil) }, func() int {
			o, err := h.AuditOpen(h.Context(), a.ID)
			h.must(err)
			return len(o.Chunks)
		}},
		{"gaps", func(b accesslog.BatchID) error {
			return h.AppendAuditChunks(h.Context(), b, nil, []*audit.Record{audit.NewGap(a.ID, 1, epoch(), epoch())})
		}, func() int { return len(h.auditLog(a.ID)) }},
	}
	for _, kind := range kinds {
		h.run(kind.name, func(h *harness) {
			one := func(number int64) accesslog.BatchID {
				return accesslog.BatchID{Writer: kind.name + " one", Number: number}
			}
			for i, step := range []struct {
				batch accesslog.BatchID
				want  int // batches stored after it
			}{
				{one(1), 1}, {one(1), 1}, {one(2), 2}, {one(1), 2}, {one(2), 2},
				{accesslog.BatchID{Writer: kind.name + " other", Number: 1}, 3}, {one(4), 4}, {one(3), 4},
				{accesslog.BatchID{}, 5}, {accesslog.BatchID{}, 6},
			} {
				h.must(kind.write(step.batch))
				if got := kind.count(); got != step.want {
					h.Fatalf("after step %d, %+v: %d are stored, want %d", i+1, step.batch, got, step.want)
				}
			}
		})
	}
	h.run("writers are forgotten after their last batch", func(h *harness) {
		_, err := h.TrimRequests(h.Context(), time.Now().Add(31*24*time.Hour), 1000)
		h.must(err)
		h.must(kinds[0].write(accesslog.BatchID{Writer: "traffic one", Number: 1}))
		if got := kinds[0].count(); got != 7 {
			h.Fatalf("%d batches are stored, want 7", got)
		}
	})
}
