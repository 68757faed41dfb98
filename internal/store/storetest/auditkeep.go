package storetest

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/audit"
	auditwriter "github.com/keygate/keygate/internal/audit/writer"
	"github.com/keygate/keygate/internal/id"
)

func (d *auditHarness) maintain() {
	d.Helper()
	if err := d.Maintain(d.Context()); err != nil {
		d.Fatal(err)
	}
}

// Guarantee: maintenance seals full blocks at once and older records after ten minutes, even
// records of another process. Other records stay unsealed. It logs the heads of the chains.
func testAuditMaintenance(h *harness) {
	var log bytes.Buffer
	d := h.newAuditHarness(auditwriter.Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
	for i := range audit.RunRecords + 10 {
		d.take(d.entry(byte(i%9), time.Duration(i)*time.Microsecond, accesslog.Forwarded, "/x"))
	}
	d.sync()
	d.maintain()
	r := d.verify()
	same(h, "full blocks", fmt.Sprint(r.Blocks, r.Records), fmt.Sprint(1, audit.RunRecords))
	same(h, "open", d.waiting(), 10)
	d.manage(1, time.Minute, "change")

	d.now = d.now.Add(9 * time.Minute)
	d.maintain()
	same(h, "open after nine minutes", d.waiting(), 11)
	d.now = d.now.Add(2 * time.Minute)
	cfg := auditwriter.Config{Store: h.Engine, Keeper: h.Engine, OperatorID: d.account.ID, Now: func() time.Time { return d.now }}
	successor, err := auditwriter.New(cfg)
	if err != nil {
		h.Fatal(err)
	}
	if err := successor.Maintain(h.Context()); err != nil {
		h.Fatal(err)
	}
	same(h, "open after eleven minutes", d.waiting(), 0)
	r = d.verify()
	same(h, "blocks", fmt.Sprint(r.Blocks, r.Records), fmt.Sprint(2, audit.RunRecords+11))
	d.check("the whole log", audit.Filter{}, 100)

	d.manage(1, 0, "a change alone")
	d.now = d.now.Add(time.Hour)
	d.maintain()
	same(h, "open after an hour", d.waiting(), 0)
	head := d.chain().Head
	d.maintain()
	same(h, "head of a log at rest", d.chain().Head, head)
	d.now = d.now.Add(time.Hour)
	d.maintain()
	if want := fmt.Sprintf("%x", head.Digest); !strings.Contains(log.String(), want) {
		h.Errorf("the server's log does not contain the head %s:\n%s", want, log.String())
	}
}

// Guarantee: Stop loses no record, however many goroutines pass records to the writer, and the
// next writer continues the log.
func testAuditStartStop(h *harness) {
	const sources, batches, size = 4, 50, 40
	a := h.insertAccount("running")
	total := 0
	for range 3 {
		cfg := auditwriter.Config{Store: h.Engine, Keeper: h.Engine, OperatorID: a.ID, Period: time.Millisecond}
		j, err := auditwriter.New(cfg)
		if err != nil {
			h.Fatal(err)
		}
		if err := j.Start(h.Context()); err != nil {
			h.Fatal(err)
		}
		d := &auditHarness{harness: h, Writer: j, account: a, now: time.Now()}
		var all sync.WaitGroup
		for g := range sources {
			all.Go(func() {
				for b := range batches {
					var batch []accesslog.Entry
					for i := range size {
						batch = append(batch, d.entry(byte((g+b+i)%9), time.Duration(b*size+i)*time.Microsecond, accesslog.Forwarded, fmt.Sprint("/", g, "/", b, "/", i)))
					}
					j.Take(batch)
					j.Record(&audit.Record{Time: d.now, Kind: audit.Authentication, Outcome: audit.KeyInvalid, Method: "GET", Path: "/v1/keys",
						ClientIP: fmt.Sprintf("10.0.%d.%d", g, b), RequestID: id.New(id.Request)}) // many of one address would be one record
				}
			})
		}
		all.Wait()
		if err := j.Stop(h.Context()); err != nil {
			h.Fatal(err)
		}
		total += sources * batches * (size + 1)
		same(h, "lost", j.Lost(), uint64(0))
		same(h, "held", j.Held(), 0)
		same(h, "records", len(d.list(audit.Filter{}, 1000, nil)), total)
		same(h, "records without an account, which belong to the operator", len(d.list(audit.Filter{Outcome: audit.KeyInvalid}, 1000, nil)), total/(size+1))
	}
}
