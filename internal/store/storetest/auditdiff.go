package storetest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/audit"
	auditwriter "github.com/keygate/keygate/internal/audit/writer"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/id"
)

// largeDiff returns a diff with two values that are too large for a record: each tenth has 950 KB, as much as a
// call can make them, and the others 20 KB.
func largeDiff(n int) audit.Diff {
	size := 20_000
	if n%10 == 0 {
		size = 950_000
	}
	origins := func(of string) any {
		return map[string]any{"origins": []any{fmt.Sprintf("https://%d.%s.example", n, strings.Repeat(of, size))}}
	}
	return audit.Diff{"cors": {origins("a"), origins("b")}, "timeout": {"60s", fmt.Sprintf("%ds", n+1)}}
}

// Guarantee: changes whose values are as large as a call can make them leave small records, which never keep
// the log from being listed, exported, verified and sealed.
func testAuditLargeDiffs(h *harness) {
	d := h.newAuditHarnessNamed("large", auditwriter.Config{})
	for i := range 40 {
		d.now = d.now.Add(time.Second)
		d.take(d.entry(byte(i%9), 0, accesslog.Forwarded, fmt.Sprint("/", i)))
		d.manageWith(1, id.New(id.Gateway), largeDiff(i))
	}
	d.sync()
	for _, sealed := range []bool{false, true} {
		if sealed {
			d.now = d.now.Add(time.Hour)
			d.must(d.Maintain(h.Context()))
			same(h, "what is open", d.waiting(), 0)
			d.sealed, d.open = ordered(d.open), nil
		}
		for _, f := range []audit.Filter{{}, {Kind: audit.Management}, {Actor: keyID(1), Since: epoch().Add(20 * time.Second)}} {
			d.checkDiffs(fmt.Sprintf("sealed %v, by %+v", sealed, f), f)
		}
	}
	d.verify()
}

// Guarantee: the open end of an account's log is sealed early when its diffs take 4 MiB, and not before.
func testAuditSealsEarly(h *harness) {
	d := h.newAuditHarnessNamed("early", auditwriter.Config{})
	diff := audit.Diff{}
	for i := range 64 {
		diff[fmt.Sprintf("setting_%d", i)] = [2]any{strings.Repeat("a", 2000), strings.Repeat("b", 2000)}
	}
	change := func(n int) {
		for range n {
			d.now = d.now.Add(time.Second)
			d.manageWith(1, id.New(id.Gateway), diff) // some 256 KB
		}
		d.sync()
		d.must(d.Maintain(h.Context()))
	}
	change(15)
	same(h, "what is open below 4 MiB", d.waiting(), 15)
	change(3)
	same(h, "what is open beyond 4 MiB", d.waiting(), 0)
	d.sealed, d.open = ordered(d.open), nil
	d.verify()
}

// manageWith writes the management record of a change.
func (d *auditHarness) manageWith(key byte, target string, diff audit.Diff) {
	d.Helper()
	d.seq++
	r := audit.Record{
		AccountID: d.account.ID, Time: d.now, Kind: audit.Management, Outcome: audit.Success, KeyPrefix: "kga_AbCdEf", KeyID: keyID(key),
		Method: "PATCH", Path: "/v1/gateways/" + target, ClientIP: "127.0.0.1", RequestID: id.New(id.Request), Action: audit.GatewayUpdate,
		Target: target, ActorKeyID: keyID(key), Diff: diff,
	}
	d.update(func(ctx context.Context, tx control.Tx) error { return tx.AppendAudit(ctx, &r) })
	r.Seq = d.seq
	d.open = append(d.open, r)
}

// checkDiffs checks that a list in pages and a scan have every record, and none a large value.
func (d *auditHarness) checkDiffs(what string, f audit.Filter) {
	d.Helper()
	want := len(d.want(f))
	for how, list := range map[string][]audit.Record{"list": d.list(f, 7, nil), "scan": d.scan(f, nil)} {
		if len(list) != want {
			d.Errorf("%s, %s: got %d records, want %d", how, what, len(list), want)
		}
		for i := range list {
			b, err := json.Marshal(list[i].Diff)
			if err != nil || len(b) > 2*audit.MaxDiffValue {
				d.Fatalf("%s, %s: a diff has %d bytes, error %v", how, what, len(b), err)
			}
			if list[i].Kind == audit.Management && (!strings.Contains(string(b), `"omitted":true`) || list[i].Diff["timeout"][0] != "60s") {
				d.Fatalf("%s, %s: got the diff %s, want cors omitted and timeout whole", how, what, b)
			}
		}
	}
}
