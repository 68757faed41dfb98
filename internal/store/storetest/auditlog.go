package storetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/audit"
	auditwriter "github.com/keygate/keygate/internal/audit/writer"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
)

// Guarantee: after any sequence of records, changes and seals, every list is complete, in order
// and without duplicates, for every filter and page size, even if records are added and sealed
// between its pages.
func testAuditLog(h *harness) {
	n := 0
	rapid.Check(h, func(t *rapid.T) {
		n++
		if n > 25 {
			return // each run is expensive
		}
		d := h.newAuditHarnessNamed(fmt.Sprint("audited ", n), auditwriter.Config{})
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			d.now = d.now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "wait")) * time.Millisecond)
			for range rapid.IntRange(0, 12).Draw(t, "events") {
				d.take(d.entry(byte(rapid.IntRange(0, 8).Draw(t, "key")), time.Duration(rapid.IntRange(0, 4000).Draw(t, "after"))*time.Millisecond,
					rapid.SampledFrom([]accesslog.Result{accesslog.Forwarded, accesslog.Limited, accesslog.KeyInvalid, accesslog.KeyExpired, accesslog.WrongScope, accesslog.AddressDenied}).Draw(t, "decision"),
					rapid.SampledFrom([]string{"/a", "/b/1"}).Draw(t, "path")))
			}
			if rapid.Bool().Draw(t, "a change") {
				d.manage(byte(rapid.IntRange(0, 2).Draw(t, "actor")), 0, "target")
			}
			switch rapid.IntRange(0, 2).Draw(t, "then") {
			case 0:
				d.seal()
			case 1:
				d.sync()
			}
		}
		d.sync()
		for range 4 {
			f := anyAuditFilter(d.now).Draw(t, "filter")
			d.check(fmt.Sprintf("list by %+v", f), f, rapid.IntRange(1, 9).Draw(t, "limit"))
		}
		f := anyAuditFilter(d.now).Draw(t, "filter of a list that is interrupted")
		want, turn := d.want(f), 0
		got := d.list(f, rapid.IntRange(1, 9).Draw(t, "limit"), func() {
			turn++
			d.now = d.now.Add(10 * time.Second)
			d.take(d.entry(byte(turn%9), 0, accesslog.Forwarded, "/later"))
			if turn%3 == 1 {
				d.seal()
			} else {
				d.sync()
			}
		})
		d.compare("a list during changes", got, want)
		d.seal()
		if r := d.verify(); r.Records != int64(len(d.sealed)) {
			t.Fatalf("the chain has %d records, want %d", r.Records, len(d.sealed))
		}
	})
}

func anyAuditFilter(now time.Time) *rapid.Generator[audit.Filter] {
	return rapid.Custom(func(t *rapid.T) audit.Filter {
		key := byte(rapid.IntRange(0, 9).Draw(t, "key"))
		return audit.Filter{
			Kind:      maybe(rapid.SampledFrom([]audit.Kind{audit.Authentication, audit.Management})).Draw(t, "kind"),
			Outcome:   maybe(rapid.SampledFrom([]audit.Outcome{audit.Success, audit.KeyInvalid, audit.KeyExpired, audit.ScopeInsufficient, audit.AddressNotAllowed})).Draw(t, "outcome"),
			Notable:   rapid.Bool().Draw(t, "notable"),
			KeyPrefix: rapid.SampledFrom([]string{"", "", "", "kg_Abcde" + string('0'+key), "kg_none"}).Draw(t, "prefix"),
			KeyID:     rapid.SampledFrom([]string{"", "", "", keyID(key)}).Draw(t, "key id"),
			GatewayID: rapid.SampledFrom([]string{"", "", "", gatewayID(key)}).Draw(t, "gateway"),
			Actor:     rapid.SampledFrom([]string{"", "", "", "", keyID(key % 3)}).Draw(t, "actor"),
			Since: maybe(rapid.Custom(func(t *rapid.T) time.Time {
				return now.Add(-time.Duration(rapid.IntRange(0, 20000).Draw(t, "ms")) * time.Millisecond)
			})).Draw(t, "since"),
			Until: maybe(rapid.Custom(func(t *rapid.T) time.Time {
				return now.Add(-time.Duration(rapid.IntRange(0, 20000).Draw(t, "ms")) * time.Millisecond)
			})).Draw(t, "until"),
		}
	})
}

// Guarantee: lists are right for every filter over hundreds of blocks whose summaries are folded
// into groups.
func testAuditGroups(h *harness) {
	const blocks = 2*audit.GroupSize + 9
	d := h.newAuditHarness(auditwriter.Config{})
	for i := range blocks {
		d.now = d.now.Add(time.Minute)
		for k := range 3 {
			d.take(d.entry(byte((i+k)%9), time.Duration(k)*time.Second, accesslog.Forwarded, "/x"))
		}
		switch i {
		case 5, 70, 130:
			d.take(d.entry(9, 0, accesslog.KeyExpired, "/rare"))
		case 77:
			d.manage(2, 0, "one")
		}
		d.seal()
	}
	start := epoch()
	for _, f := range []audit.Filter{
		{}, {KeyID: keyID(3)}, {KeyPrefix: "kg_Abcde9"}, {KeyID: keyID(9), Outcome: audit.KeyExpired}, {KeyID: keyID(9), Outcome: audit.Success},
		{Outcome: audit.KeyExpired}, {Outcome: audit.KeyInvalid}, {Kind: audit.Management}, {Notable: true}, {Notable: true, KeyID: keyID(9)}, {Actor: keyID(2)}, {Actor: keyID(3)},
		{GatewayID: gatewayID(1), Since: start.Add(20 * time.Minute), Until: start.Add(90 * time.Minute)},
		{Since: start.Add(64 * time.Minute), Until: start.Add(64*time.Minute + time.Second)}, {KeyPrefix: "kg_nobody"},
		{Kind: audit.Management, KeyID: keyID(2)}, {Kind: audit.Management, KeyID: keyID(4)}, {Kind: audit.Management, Outcome: audit.KeyExpired},
	} {
		d.check(fmt.Sprintf("list by %+v", f), f, 100)
		d.check(fmt.Sprintf("list by %+v in small pages", f), f, 7)
	}
	if r := d.verify(); r.Blocks != blocks {
		h.Fatalf("the chain has %d blocks, want %d", r.Blocks, blocks)
	}
}

// Guarantee: sealed blocks continue the chain and contain each record once, and records cannot be
// sealed twice.
func testAuditBlocks(h *harness) {
	d := h.newAuditHarness(auditwriter.Config{})
	same(h, "an empty chain", d.chain(), audit.Chain{AccountID: d.account.ID})
	// More records than two blocks hold, with changes among them.
	for i := range 2*audit.MaxRecords + 100 {
		d.take(d.entry(byte(i%9), time.Duration(i)*time.Millisecond, accesslog.Forwarded, fmt.Sprint("/orders/", i)))
		if i%3000 == 0 {
			d.manage(1, time.Duration(i)*time.Millisecond, fmt.Sprint(i))
		}
	}
	d.sync()
	before, err := h.AuditOpen(h.Context(), d.account.ID)
	if err != nil {
		h.Fatal(err)
	}
	d.seal()
	d.check("after sealing", audit.Filter{}, 100)
	first := d.verify()
	same(h, "what is open", d.waiting(), 0)
	same(h, "management rows", len(h.auditLog(d.account.ID)), 0)

	again := &audit.Seal{AccountID: d.account.ID, Chunks: []int64{before.Chunks[0].ID},
		Blocks: []*audit.Block{{AccountID: d.account.ID, Number: 1}}, Summaries: []*audit.Summary{{}}}
	if err := h.SealAudit(h.Context(), again); fault.CodeOf(err) != fault.Conflict {
		h.Fatalf("sealing a block that does not continue the chain returned %v, want a conflict", err)
	}
	d.manage(1, time.Hour, "later")
	d.seal()
	second := d.verify()
	same(h, "blocks", second.Blocks, first.Blocks+1)
	given := audit.Digest(first.Head.Digest)
	if r, err := d.verifyGiven(&given); err != nil || r.Given != first.Head.Number {
		h.Fatalf("the chain does not contain its former head: %+v, %v", r, err)
	}
	var problem *audit.Problem
	if _, err := d.verifyGiven(&audit.Digest{1}); !errors.As(err, &problem) {
		h.Fatalf("verifying an unknown head returned %v, want a problem", err)
	}
	var export bytes.Buffer
	if err := audit.Export(&export, d.chain(), d.blocks(d.chain())); err != nil {
		h.Fatal(err)
	}
	report, err := audit.VerifyExport(&export, &given)
	if err != nil {
		h.Fatal(err)
	}
	second.Given = first.Head.Number
	same(h, "the export's report", report, second)
}

// waiting returns how many records are not sealed.
func (d *auditHarness) waiting() int {
	d.Helper()
	list, err := d.AuditWaiting(d.Context())
	if err != nil {
		d.Fatal(err)
	}
	n := 0
	for _, w := range list {
		n += w.Records + w.Managed
	}
	return n
}

// Guarantee: joining chunks does not change their records.
func testAuditJoin(h *harness) {
	d := h.newAuditHarness(auditwriter.Config{})
	for i := range 10 {
		d.take(d.entry(byte(i%9), time.Duration(10-i)*time.Second, accesslog.Forwarded, "/x"))
		d.sync()
	}
	o, err := h.AuditOpen(h.Context(), d.account.ID)
	if err != nil {
		h.Fatal(err)
	}
	same(h, "chunks", len(o.Chunks), 10)
	codec, err := audit.NewCodec()
	if err != nil {
		h.Fatal(err)
	}
	var t audit.Table
	if _, err := codec.Gather(&t, o); err != nil {
		h.Fatal(err)
	}
	content, err := t.Encode(nil)
	if err != nil {
		h.Fatal(err)
	}
	first, _ := t.Span()
	d.take(d.entry(1, time.Hour, accesslog.Forwarded, "/after"))
	d.sync()
	var gone []int64
	for i := range o.Chunks {
		gone = append(gone, o.Chunks[i].ID)
	}
	joined := audit.Chunk{AccountID: d.account.ID, Records: 10, First: first, Content: content}
	h.must(h.JoinAuditChunks(h.Context(), gone, joined))
	if err := h.JoinAuditChunks(h.Context(), gone, joined); fault.CodeOf(err) != fault.Conflict {
		h.Fatalf("joining chunks again returned %v, want a conflict", err)
	}
	list, err := h.AuditWaiting(h.Context())
	if err != nil {
		h.Fatal(err)
	}
	want := audit.Waiting{AccountID: d.account.ID, Chunks: 2, Records: 11, Oldest: first}
	same(h, "unsealed", list, []audit.Waiting{want})
	of := func(account string) audit.Waiting {
		return get(h, func(ctx context.Context, tx control.ReadTx) (audit.Waiting, error) {
			return tx.AuditWaiting(ctx, account)
		})
	}
	same(h, "unsealed of the account", of(d.account.ID), want)
	same(h, "unsealed of another account", of("acc_other"), audit.Waiting{AccountID: "acc_other"})
	d.check("after the joining", audit.Filter{}, 100)
	d.seal()
	d.check("after the sealing", audit.Filter{}, 100)
}

// Guarantee: after the clock is set back, the log is still in the order in which things happened,
// and lists by time are right.
func testAuditClockStep(h *harness) {
	d := h.newAuditHarness(auditwriter.Config{})
	start := d.now
	for i := range 5 {
		d.take(d.entry(1, time.Duration(i)*time.Second, accesslog.Forwarded, fmt.Sprint("/before/", i)))
	}
	d.sync()
	d.now = start.Add(-time.Hour)
	d.sync() // this seals the records from before the step
	d.sealed, d.open = ordered(d.open), nil
	for i := range 5 {
		d.take(d.entry(1, time.Duration(i)*time.Second, accesslog.Forwarded, fmt.Sprint("/after/", i)))
	}
	d.manage(1, 10*time.Second, "after")
	d.seal()
	d.check("the whole", audit.Filter{}, 3)
	d.check("before the step's time", audit.Filter{Until: start}, 100)
	d.check("after the step's time", audit.Filter{Since: start}, 100)
	d.verify()
}

// Guarantee: retention removes a block from the beginning of the log when all its records are
// older than the plan's retention, and keeps the digest at which the remaining log begins.
func testAuditRetention(h *harness) {
	starter := &account.Account{ID: id.New(id.Account), Name: "starter", Tier: account.Starter, CreatedAt: epoch()}
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertAccount(ctx, starter) })
	d := h.newAuditHarnessOf(starter, auditwriter.Config{})
	other := h.newAuditHarnessNamed("platform", auditwriter.Config{})
	for range 100 {
		for _, x := range []*auditHarness{d, other} {
			x.now = x.now.Add(24 * time.Hour)
			x.take(x.entry(1, 0, accesslog.Forwarded, "/daily"))
			x.seal()
		}
	}
	heads := d.chain().Head
	var blocks int
	for {
		t, err := h.TrimAudit(h.Context(), d.now.Add(time.Second), 1<<40)
		if err != nil {
			h.Fatal(err)
		}
		if t == nil {
			break
		}
		if t.AccountID != starter.ID || t.Early {
			h.Fatalf("got %+v removed, want blocks of the starter plan at the end of their retention", t)
		}
		blocks += t.Blocks
	}
	same(h, "blocks removed", blocks, 10)
	d.sealed = d.sealed[10:]
	d.check("what is kept", audit.Filter{}, 100)
	other.check("the other plan's", audit.Filter{}, 100)
	r := d.verify()
	same(h, "base", r.Base.Number, int64(10))
	same(h, "head", r.Head, heads)
	given := audit.Digest(r.Base.Digest)
	if r, err := d.verifyGiven(&given); err != nil || r.Given != 10 {
		h.Fatalf("the remaining log does not begin at its base: %v", err)
	}
	// In time the remaining blocks are removed too, with their groups, and the chain continues.
	for {
		t, err := h.TrimAudit(h.Context(), d.now.Add(91*24*time.Hour), 1<<40)
		if err != nil {
			h.Fatal(err)
		}
		if t == nil {
			break
		}
	}
	d.sealed = nil
	d.check("nothing", audit.Filter{}, 100)
	d.take(d.entry(1, 0, accesslog.Forwarded, "/new"))
	d.seal()
	d.check("what came later", audit.Filter{}, 100)
	same(h, "numbers go on", d.verify().Head.Number, int64(101))
}

// Guarantee: a log beyond its maximum size loses its oldest blocks. The gap is the oldest record
// of the list, and part of the chain, until the retention of the lost records ends.
func testAuditMaxBytes(h *harness) {
	d := h.newAuditHarness(auditwriter.Config{})
	for i := range 40 {
		d.now = d.now.Add(time.Minute)
		for range 20 {
			d.take(d.entry(byte(i%9), 0, accesslog.Forwarded, "/x"))
		}
		d.seal()
	}
	var lost int64
	const bound = 8000
	for {
		t, err := h.TrimAudit(h.Context(), d.now, bound)
		if err != nil {
			h.Fatal(err)
		}
		if t == nil {
			break
		}
		if !t.Early {
			h.Fatalf("got %+v removed, want it removed before the end of its retention", t)
		}
		lost += t.Records
	}
	if lost < 200 || lost > 780 {
		h.Fatalf("got %d records removed, want 200 to 780", lost)
	}
	d.sealed = d.sealed[lost:]
	list := d.list(audit.Filter{}, 100, nil)
	gap := list[len(list)-1]
	if gap.Action != audit.GapNoted || fmt.Sprint(gap.Diff["lost_records"][1]) != fmt.Sprint(lost) {
		h.Fatalf("the oldest record is %+v, want a gap of %d records", gap, lost)
	}
	d.compare("what is kept", list[:len(list)-1], d.want(audit.Filter{}))
	d.check("of one key", audit.Filter{KeyID: keyID(3)}, 100)
	if after := d.page(audit.Filter{}, control.Page{Limit: 10, After: gap.Cursor}); len(after) != 0 {
		h.Fatalf("got %d records after the gap, want none", len(after))
	}
	r := d.verify()
	same(h, "records cut", r.Cut.Records, lost)
	same(h, "the first cut", r.Cut.First, epoch().Add(time.Minute))

	year := d.now.Add(366 * 24 * time.Hour)
	for {
		if t, err := h.TrimAudit(h.Context(), year, bound); err != nil || t == nil {
			break
		}
	}
	same(h, "the gap in time", len(d.list(audit.Filter{}, 100, nil)), 0)
}

// failing is a store in which AppendAuditChunks returns err, if it is not nil.
type failing struct {
	auditwriter.Store
	err error
}

// AppendAuditChunks implements writer.Store.
func (f *failing) AppendAuditChunks(ctx context.Context, batch accesslog.BatchID, chunks []audit.Chunk, records []*audit.Record) error {
	if f.err != nil {
		return f.err
	}
	return f.Store.AppendAuditChunks(ctx, batch, chunks, records)
}

// Guarantee: while the store fails, the writer keeps records up to its memory limit and counts the
// lost records. When the store works again, the log shows the gap.
func testAuditGap(h *harness) {
	store := &failing{Store: h.Engine, err: fault.New(fault.Unavailable, "full")}
	d := h.newAuditHarness(auditwriter.Config{Store: store, MaxHeld: 20_000})
	const all = 1000
	var made []accesslog.Entry
	for i := range all {
		made = append(made, d.entry(byte(i%9), time.Duration(i)*time.Second, accesslog.Forwarded, "/x"))
	}
	d.Take(made[:10])
	if err := d.Sync(h.Context()); err == nil {
		h.Fatal("Sync succeeded although the store fails")
	}
	d.Take(made[10:])
	lost := int(d.Lost())
	if lost < all/2 || lost > all-100 {
		h.Fatalf("%d of %d records were lost, want %d to %d", lost, all, all/2, all-100)
	}
	if held := d.Held(); held > 20_000+1000 {
		h.Fatalf("%d bytes are held, want at most 21,000", held)
	}
	store.err = nil
	d.sync()
	list := d.list(audit.Filter{}, 100, nil)
	same(h, "records", len(list), all-lost+1)
	gap := list[0]
	if gap.Action != audit.GapNoted || fmt.Sprint(gap.Diff["lost_records"][1]) != fmt.Sprint(lost) ||
		gap.Diff["first_at"][1] != time.UnixMicro(made[all-lost].Start).UTC().Format(time.RFC3339Nano) {
		h.Fatalf("the gap is %+v, want %d lost records", gap, lost)
	}
	d.Take(made[:1])
	if int(d.Lost()) != lost || d.Held() == 0 {
		h.Error("the writer does not take records after the gap")
	}
	if err := d.Seal(h.Context()); err != nil {
		h.Fatal(err)
	}
	same(h, "sealed records", d.verify().Records, int64(all-lost+2))
}

// Guarantee: no key string gets into the log, wherever a caller put it.
func testAuditSecrets(h *harness) {
	d := h.newAuditHarness(auditwriter.Config{})
	secret, err := apikey.Generate(apikey.GatewayLevel, rand.Reader)
	if err != nil {
		h.Fatal(err)
	}
	account, err := apikey.Generate(apikey.AccountLevel, rand.Reader)
	if err != nil {
		h.Fatal(err)
	}
	for _, path := range []string{"/keys/" + secret, "/" + account + "/x", "/kg" + secret + account, strings.Repeat("k", audit.MaxPath-10) + secret} {
		d.Take([]accesslog.Entry{d.entry(1, 0, accesslog.Forwarded, path)})
		d.Record(&audit.Record{AccountID: d.account.ID, Time: d.now, Kind: audit.Authentication, Outcome: audit.Success, Path: path, Method: "GET"})
	}
	d.sync()
	find := func(when string) {
		list := d.page(audit.Filter{}, control.Page{Limit: 100})
		same(h, "records "+when, len(list), 8)
		if text := fmt.Sprintf("%+v", list); strings.Contains(text, secret[10:]) || strings.Contains(text, account[11:]) {
			h.Errorf("%s: the log contains a key", when)
		}
		if !slices.ContainsFunc(list, func(r audit.Record) bool { return r.Path == "/keys/"+secret[:9]+"***" }) {
			h.Errorf("%s: the key in a path is not replaced by its prefix", when)
		}
	}
	find("open")
	if err := d.Seal(h.Context()); err != nil {
		h.Fatal(err)
	}
	find("sealed")
	for b, err := range d.blocks(d.chain()) {
		if err != nil || bytes.Contains(b.Content, []byte(secret[10:])) {
			h.Errorf("a block contains a key, or: %v", err)
		}
	}
}
