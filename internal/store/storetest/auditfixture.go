package storetest

import (
	"cmp"
	"context"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/audit"
	auditwriter "github.com/keygate/keygate/internal/audit/writer"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/id"
)

// auditHarness is an audit writer with a clock that the test sets, and the records that the log
// of its account must show.
type auditHarness struct {
	*harness
	*auditwriter.Writer
	account *account.Account
	now     time.Time
	open    []audit.Record // not sealed, in no order
	sealed  []audit.Record // in the order of the log
	seq     int64
}

func (h *harness) newAuditHarness(cfg auditwriter.Config) *auditHarness {
	h.Helper()
	return h.newAuditHarnessNamed("audited", cfg)
}

func (h *harness) newAuditHarnessNamed(name string, cfg auditwriter.Config) *auditHarness {
	h.Helper()
	return h.newAuditHarnessOf(h.insertAccount(name), cfg)
}

func (h *harness) newAuditHarnessOf(a *account.Account, cfg auditwriter.Config) *auditHarness {
	h.Helper()
	d := &auditHarness{harness: h, account: a, now: epoch()}
	if cfg.Store == nil {
		cfg.Store = h.Engine
	}
	cfg.Keeper, cfg.OperatorID = h.Engine, d.account.ID
	cfg.Now = func() time.Time { return d.now }
	var err error
	if d.Writer, err = auditwriter.New(cfg); err != nil {
		h.Fatal(err)
	}
	return d
}

// entry returns an access record of one of nine keys, at a time after d.now.
func (d *auditHarness) entry(key byte, after time.Duration, decision accesslog.Result, path string) accesslog.Entry {
	at := d.now.Add(after)
	e := accesslog.Entry{Path: path}
	e.Start, e.Request, e.Result, e.Authenticated, e.Method = at.UnixMicro(), id.NewFastAt(at.UnixMilli()), decision, true, accesslog.GET
	e.Account, _ = id.Parse(id.Account, d.account.ID)
	e.Key, e.Gateway = fixedID(key), fixedID(100+key%2)
	copy(e.Prefix[:], "kg_Abcde"+string('0'+key))
	e.Client = netip.MustParseAddr("192.0.2.7").As16()
	if decision == accesslog.KeyInvalid {
		e.Key = [16]byte{}
	}
	return e
}

// fixedID returns the UUIDv7 number n.
func fixedID(n byte) [16]byte { return [16]byte{5: 1, 6: 0x70, 8: 0x80, 15: n} }

func keyID(n byte) string     { return id.Format(id.Key, fixedID(n)) }
func gatewayID(n byte) string { return id.Format(id.Gateway, fixedID(100+n%2)) }

// take passes an entry to the writer and remembers the record that it must become.
func (d *auditHarness) take(e accesslog.Entry) {
	d.Take([]accesslog.Entry{e})
	r := audit.Record{
		AccountID: d.account.ID, Time: time.UnixMicro(e.Start).UTC(), Kind: audit.Authentication, Outcome: audit.Success,
		KeyPrefix: strings.TrimRight(string(e.Prefix[:]), "\x00"), GatewayID: id.Format(id.Gateway, e.Gateway), Method: "GET", Path: e.Path,
		ClientIP: "192.0.2.7", RequestID: id.Format(id.Request, e.Request),
	}
	if e.Key != [16]byte{} {
		r.KeyID = id.Format(id.Key, e.Key)
	}
	switch e.Result {
	case accesslog.KeyInvalid:
		r.Outcome = audit.KeyInvalid
	case accesslog.KeyExpired:
		r.Outcome = audit.KeyExpired
	case accesslog.WrongScope, accesslog.WrongGateway, accesslog.OwnerSuspended:
		r.Outcome = audit.ScopeInsufficient
	case accesslog.AddressDenied:
		r.Outcome = audit.AddressNotAllowed
	}
	d.open = append(d.open, r)
}

// manage writes the management record of a change.
func (d *auditHarness) manage(key byte, after time.Duration, target string) {
	d.Helper()
	d.seq++
	r := audit.Record{
		AccountID: d.account.ID, Time: d.now.Add(after), Kind: audit.Management, Outcome: audit.Success, KeyPrefix: "kga_AbCdEf", KeyID: keyID(key),
		Method: "POST", Path: "/v1/keys", ClientIP: "127.0.0.1", RequestID: id.New(id.Request), Action: audit.KeyCreate, Target: target,
		ActorKeyID: keyID(key), Diff: audit.Diff{"name": {nil, target}},
	}
	d.update(func(ctx context.Context, tx control.Tx) error { return tx.AppendAudit(ctx, &r) })
	r.Seq = d.seq
	d.open = append(d.open, r)
}

func (d *auditHarness) sync() {
	d.Helper()
	if err := d.Sync(d.Context()); err != nil {
		d.Fatal(err)
	}
}

func (d *auditHarness) seal() {
	d.Helper()
	if err := d.Seal(d.Context()); err != nil {
		d.Fatal(err)
	}
	d.sealed = append(d.sealed, ordered(d.open)...)
	d.open = nil
}

// ordered sorts records like the log does within a block.
func ordered(list []audit.Record) []audit.Record {
	slices.SortFunc(list, func(a, b audit.Record) int {
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.RequestID, b.RequestID))
	})
	return list
}

// want returns the records that a list must show, newest first.
func (d *auditHarness) want(f audit.Filter) []audit.Record {
	var out []audit.Record
	for _, r := range slices.Backward(slices.Concat(d.sealed, ordered(d.open))) {
		if passes(&r, &f) {
			out = append(out, r)
		}
	}
	return out
}

// passes reports whether f selects r.
func passes(r *audit.Record, f *audit.Filter) bool {
	same := func(want, is string) bool { return want == "" || want == is }
	if f.Notable && r.Kind == audit.Authentication && r.Outcome == audit.Success {
		return false
	}
	return same(string(f.Kind), string(r.Kind)) && same(string(f.Outcome), string(r.Outcome)) && same(f.KeyPrefix, r.KeyPrefix) &&
		same(f.KeyID, r.KeyID) && same(f.GatewayID, r.GatewayID) && same(f.Actor, r.ActorKeyID) &&
		!r.Time.Before(f.Since) && (f.Until.IsZero() || r.Time.Before(f.Until))
}

func (d *auditHarness) page(f audit.Filter, p control.Page) []audit.Record {
	d.Helper()
	return get(d.harness, func(ctx context.Context, tx control.ReadTx) ([]audit.Record, error) {
		return tx.AuditLog(ctx, d.account.ID, f, p)
	})
}

// list reads a whole list page by page. It calls between after each page except the last.
func (d *auditHarness) list(f audit.Filter, limit int, between func()) []audit.Record {
	d.Helper()
	var all []audit.Record
	for after := ""; ; {
		page := d.page(f, control.Page{Limit: limit, After: after})
		all = append(all, page...)
		if len(page) < limit {
			return all
		}
		after = page[len(page)-1].Cursor
		if between != nil {
			between()
		}
	}
}

// check compares a whole list with the records that it must show.
func (d *auditHarness) check(what string, f audit.Filter, limit int) {
	d.Helper()
	d.compare(what, d.list(f, limit, nil), d.want(f))
	d.checkScan("scan as "+what, d.scan(f, nil), d.oldestFirst(f))
}

func (d *auditHarness) compare(what string, got, want []audit.Record) {
	d.Helper()
	for i := range got {
		if got[i].Cursor == "" {
			d.Fatalf("%s: record %d has no cursor", what, i)
		}
		got[i].Cursor = ""
	}
	if len(got) != len(want) {
		d.Errorf("%s: got %d records, want %d", what, len(got), len(want))
	}
	for i := range min(len(got), len(want)) {
		same(d.harness, what, got[i], want[i])
	}
}

// verify verifies the account's chain and returns the report.
func (d *auditHarness) verify() audit.Report {
	d.Helper()
	report, err := d.verifyGiven(nil)
	if err != nil {
		d.Fatal(err)
	}
	return report
}

func (d *auditHarness) verifyGiven(given *audit.Digest) (audit.Report, error) {
	chain := d.chain()
	return audit.Verify(chain, d.blocks(chain), given)
}

func (d *auditHarness) chain() audit.Chain {
	d.Helper()
	return get(d.harness, func(ctx context.Context, tx control.ReadTx) (audit.Chain, error) {
		return tx.AuditChain(ctx, d.account.ID)
	})
}

func (d *auditHarness) blocks(chain audit.Chain) iter.Seq2[*audit.Block, error] {
	return func(yield func(*audit.Block, error) bool) {
		for after := chain.Base.Number; ; {
			some, err := try(d.harness, func(ctx context.Context, tx control.ReadTx) ([]*audit.Block, error) {
				return tx.AuditBlocks(ctx, d.account.ID, after, 5)
			})
			if err != nil {
				yield(nil, err)
				return
			}
			for _, b := range some {
				if !yield(b, nil) {
					return
				}
				after = b.Number
			}
			if len(some) == 0 {
				return
			}
		}
	}
}
