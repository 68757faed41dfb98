package storetest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/audit"
	auditwriter "github.com/keygate/keygate/internal/audit/writer"
	"github.com/keygate/keygate/internal/control"
)

// scannedRecord is a line of a scan.
type scannedRecord struct {
	Time      time.Time     `json:"time"`
	Kind      audit.Kind    `json:"kind"`
	Outcome   audit.Outcome `json:"outcome"`
	KeyPrefix string        `json:"key_prefix"`
	KeyID     string        `json:"key_id"`
	GatewayID string        `json:"gateway_id"`
	Method    string        `json:"method"`
	Path      string        `json:"path"`
	ClientIP  string        `json:"client_ip"`
	RequestID string        `json:"request_id"`
	Rest      *audit.Record `json:"rest"` // of a record that has more fields
}

// scan reads a whole scan step by step, each in a transaction of its own. It calls between after
// each step.
func (d *auditHarness) scan(f audit.Filter, between func()) (all []audit.Record) {
	d.Helper()
	codec, err := audit.NewCodec()
	if err != nil {
		d.Fatal(err)
	}
	s := get(d.harness, func(ctx context.Context, tx control.ReadTx) (*audit.Scan, error) {
		return codec.Scan(ctx, tx.AuditSource(d.account.ID), d.account.ID, f)
	})
	to := audit.NewLineEncoder(audit.JSONL, func(dst []byte, r *audit.Record) ([]byte, error) {
		line, err := json.Marshal(scannedRecord{Rest: r})
		return append(append(dst, line...), '\n'), err
	})
	for {
		step := get(d.harness, func(ctx context.Context, tx control.ReadTx) (*audit.ScanStep, error) {
			return s.Read(ctx, tx.AuditSource(d.account.ID))
		})
		if step == nil {
			return all
		}
		err := step.Encode(to, func(lines []byte) error {
			for line := range bytes.Lines(lines) {
				var r scannedRecord
				if err := json.Unmarshal(line, &r); err != nil {
					return fmt.Errorf("decode %s: %w", line, err)
				}
				if r.Rest == nil {
					r.Rest = &audit.Record{
						Time: r.Time, Kind: r.Kind, Outcome: r.Outcome, KeyPrefix: r.KeyPrefix, KeyID: r.KeyID, GatewayID: r.GatewayID,
						Method: r.Method, Path: r.Path, ClientIP: r.ClientIP, RequestID: r.RequestID,
					}
				}
				r.Rest.AccountID = d.account.ID
				all = append(all, *r.Rest)
			}
			return nil
		})
		if err != nil {
			d.Fatal(err)
		}
		if between != nil {
			between()
		}
	}
}

// checkScan compares a scan with the records that it must have.
func (d *auditHarness) checkScan(what string, got, want []audit.Record) {
	d.Helper()
	if len(got) != len(want) {
		d.Errorf("%s: got %d records, want %d", what, len(got), len(want))
	}
	for i := range min(len(got), len(want)) {
		same(d.harness, what, got[i], want[i])
	}
}

// oldestFirst returns the records that a scan must have: in the order of their times, and records of the same time
// in the order of the log.
func (d *auditHarness) oldestFirst(f audit.Filter) []audit.Record {
	want := d.want(f)
	slices.Reverse(want)
	slices.SortStableFunc(want, func(a, b audit.Record) int { return a.Time.Compare(b.Time) })
	return want
}

// Guarantee: a scan has the records that match its filter as the log was at its beginning,
// oldest first and each once, also if records are added, sealed and removed by retention between
// its steps.
func testAuditScan(h *harness) {
	const blocks = 2*audit.GroupSize + 40
	for _, f := range []audit.Filter{{}, {KeyID: keyID(3)}, {Kind: audit.Management}, {Since: epoch().Add(30 * time.Minute)}} {
		d := h.newAuditHarnessNamed(fmt.Sprintf("scanned %+v", f), auditwriter.Config{})
		for i := range blocks {
			d.now = d.now.Add(time.Minute)
			for k := range 3 {
				d.take(d.entry(byte((i+k)%9), time.Duration(k)*time.Second, accesslog.Forwarded, "/x"))
			}
			if i%50 == 7 {
				d.manage(2, 0, "one")
			}
			d.seal()
		}
		d.take(d.entry(3, 0, accesslog.Forwarded, "/open"))
		d.sync()
		want := d.oldestFirst(f)
		got := d.scan(f, func() {
			d.now = d.now.Add(time.Second)
			d.take(d.entry(3, 0, accesslog.Forwarded, "/later"))
			d.manage(2, 0, "later")
			d.seal()
		})
		d.checkScan(fmt.Sprintf("scan by %+v during changes", f), got, want)
	}
}

// Guarantee: retention that overtakes a scan removes records from it, and never breaks it. Records
// that were removed early leave a gap record.
func testAuditScanTrimmed(h *harness) {
	for _, early := range []bool{false, true} {
		d := h.newAuditHarnessNamed(fmt.Sprint("overtaken early: ", early), auditwriter.Config{})
		const blocks = 100
		for i := range blocks {
			d.now = d.now.Add(time.Minute)
			d.take(d.entry(byte(i%9), 0, accesslog.Forwarded, fmt.Sprint("/", i)))
			d.seal()
		}
		steps, removed := 0, 0
		got := d.scan(audit.Filter{}, func() {
			if steps++; steps > 1 {
				return
			}
			now, most := d.now.Add(365*24*time.Hour-40*time.Minute), int64(1<<40)
			if early {
				now, most = d.now, 0
			}
			for removed < 60 {
				trimmed, err := h.TrimAudit(h.Context(), now, most)
				if err != nil {
					h.Fatal(err)
				}
				if trimmed == nil {
					break
				}
				if trimmed.AccountID == d.account.ID {
					removed += trimmed.Blocks
				}
			}
		})
		if len(got) >= blocks || len(got) <= blocks-removed || got[0].Path != "/0" || got[len(got)-1].Path != "/99" {
			h.Errorf("early %v: %d of %d records were removed, and the scan has %d", early, removed, blocks, len(got))
		}
		gaps := slices.DeleteFunc(got, func(r audit.Record) bool { return r.Action != audit.GapNoted })
		switch {
		case early && (len(gaps) != 1 || fmt.Sprint(gaps[0].Diff["lost_records"][1]) != strconv.Itoa(removed)):
			h.Errorf("got the gaps %+v, want one of %d records", gaps, removed)
		case !early && len(gaps) > 0:
			h.Errorf("got the gaps %+v, want none: retention removes what is over", gaps)
		}
	}
}

// Guarantee: a scan is in the order of the times, exactly, whatever the order in which records were stored and sealed:
// some come late, from several nodes, and the clock may have been set back.
func testAuditScanOrder(h *harness) {
	d := h.newAuditHarness(auditwriter.Config{})
	start := d.now
	for i := range 60 {
		d.now = start.Add(time.Duration(i) * time.Second)
		if i == 40 {
			d.now = start.Add(-time.Hour)
		}
		for _, after := range []time.Duration{0, 7 * time.Second, -25 * time.Second, time.Duration(i%5) * time.Minute} {
			d.take(d.entry(byte(i%9), after, accesslog.Forwarded, fmt.Sprint("/", i)))
		}
		d.manage(2, -3*time.Second, fmt.Sprint(i))
		if i%3 == 0 {
			d.seal()
		}
	}
	d.sync()
	for _, f := range []audit.Filter{{}, {KeyID: keyID(3)}, {Kind: audit.Management}} {
		got := d.scan(f, nil)
		if !slices.IsSortedFunc(got, func(a, b audit.Record) int { return a.Time.Compare(b.Time) }) {
			h.Errorf("the scan by %+v is not in the order of the times", f)
		}
		d.checkScan(fmt.Sprintf("scan by %+v", f), got, d.oldestFirst(f))
	}
}
