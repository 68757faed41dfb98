package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/issuer"
)

// newDenial returns a denial that ends an hour after the epoch.
func newDenial(i *issuer.Issuer) *issuer.Denial {
	return &issuer.Denial{ID: id.New(id.Denial), AccountID: i.AccountID, IssuerID: i.ID, Subject: "u", Until: epoch().Add(time.Hour), CreatedAt: epoch()}
}

func (h *harness) insertDenial(d *issuer.Denial) {
	h.Helper()
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertDenial(ctx, d) })
}

// denials returns the identifiers of the denials of an issuer at a time, as lists have them and as a node reads them.
func (h *harness) denials(i *issuer.Issuer, f control.DenialFilter, at time.Time) (listed []string) {
	h.Helper()
	for _, d := range get(h, func(ctx context.Context, tx control.ReadTx) ([]issuer.Denial, error) {
		return tx.Denials(ctx, i.ID, f, at, control.Page{Limit: 100})
	}) {
		listed = append(listed, d.ID)
	}
	return listed
}

// Guarantee: a denial is returned as it was inserted, to management and to nodes, whatever its texts have. No account finds,
// lists or deletes the denials of another one, nor by the wrong issuer. Each is counted while it is there.
func testDenialRules(h *harness) {
	a, b := h.insertAccount("a"), h.insertAccount("b")
	one, two, other := h.insertIssuer(a, "one"), h.insertIssuer(a, "two"), h.insertIssuer(b, "one")
	read := func(accountID, issuerID, denialID string, at time.Time) (*issuer.Denial, error) {
		return try(h, func(ctx context.Context, tx control.ReadTx) (*issuer.Denial, error) {
			return tx.Denial(ctx, accountID, issuerID, denialID, at)
		})
	}
	rapid.Check(h, func(t *rapid.T) {
		d := newDenial(one)
		d.Subject, d.JTI, d.Reason = rapid.SampledFrom([]string{"", "u\x00\u202e'"}).Draw(t, "subject"), rapid.SampledFrom([]string{"", "t\x00"}).Draw(t, "jti"), text().Draw(t, "reason")
		d.IssuedBefore = rapid.OneOf(rapid.Just(time.Time{}), moment()).Draw(t, "issued_before")
		d.Until, d.CreatedAt = epoch().Add(time.Duration(rapid.Int64Range(1, 1<<40).Draw(t, "until"))*time.Microsecond), moment().Draw(t, "created_at")
		h.insertDenial(d)
		got, err := read(a.ID, one.ID, d.ID, d.Until.Add(-time.Microsecond))
		if err != nil {
			t.Fatal(err)
		}
		same(t, "inserted", got, d)
		if got, err = h.DenialByID(h.T.Context(), d.ID); err != nil {
			t.Fatal(err)
		}
		same(t, "as nodes read it", got, d)
		var each []issuer.Denial
		if err := h.EachDenial(h.T.Context(), one.ID, func(d *issuer.Denial) error { each = append(each, *d); return nil }); err != nil {
			t.Fatal(err)
		}
		same(t, "all of the issuer", each, []issuer.Denial{*d})
		if _, err := read(a.ID, one.ID, d.ID, d.Until); fault.CodeOf(err) != fault.NotFound {
			t.Errorf("one that has ended: got %v", err)
		}
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.DeleteDenial(ctx, d) })
		if _, err := h.DenialByID(h.T.Context(), d.ID); fault.CodeOf(err) != fault.NotFound {
			t.Errorf("one that was deleted: got %v", err)
		}
	})
	d := newDenial(one)
	h.insertDenial(d)
	h.insertDenial(newDenial(two))
	for _, of := range []*issuer.Issuer{two, other} {
		if _, err := read(of.AccountID, of.ID, d.ID, epoch()); fault.CodeOf(err) != fault.NotFound {
			h.Errorf("another issuer: got %v", err)
		}
		h.rejected(fault.NotFound, func(ctx context.Context, tx control.Tx) error {
			return tx.DeleteDenial(ctx, &issuer.Denial{ID: d.ID, AccountID: of.AccountID, IssuerID: of.ID})
		})
	}
	h.rejected(fault.NotFound, func(ctx context.Context, tx control.Tx) error {
		stray := newDenial(one)
		stray.AccountID = b.ID
		return tx.InsertDenial(ctx, stray)
	})
	same(h, "denials of another account", len(h.denials(other, control.DenialFilter{}, epoch())), 0)
	use := func(accountID string) int64 {
		return get(h, func(ctx context.Context, tx control.ReadTx) (control.IssuerUse, error) {
			return tx.IssuerUse(ctx, accountID, "")
		}).Denials
	}
	same(h, "counts", []int64{h.issuer(a.ID, one.ID).Denials, h.issuer(a.ID, two.ID).Denials, use(a.ID), use(b.ID)}, []int64{1, 1, 2, 0})
}

// Guarantee: a list of denials has exactly those that the filter selects and that have not ended, newest first and page by
// page.
func testDenialList(h *harness) {
	a := h.insertAccount("a")
	i, other := h.insertIssuer(a, "one"), h.insertIssuer(a, "two")
	h.insertDenial(newDenial(other))
	var all []*issuer.Denial
	for n := range 12 {
		d := newDenial(i)
		d.Subject = []string{"u1", "u2", "", ""}[n%4]
		d.JTI = []string{"", "", "t1", ""}[n%4]
		if n%4 == 3 {
			d.IssuedBefore = epoch()
		}
		d.Until = epoch().Add(time.Duration(n%3+1) * time.Minute)
		h.insertDenial(d)
		all = append(all, d)
	}
	slices.SortFunc(all, func(a, b *issuer.Denial) int { return strings.Compare(b.ID, a.ID) })
	rapid.Check(h, func(t *rapid.T) {
		f := control.DenialFilter{Subject: rapid.SampledFrom([]string{"", "", "u1", "u9"}).Draw(t, "subject"), JTI: rapid.SampledFrom([]string{"", "", "t1", "t9"}).Draw(t, "jti")}
		at := epoch().Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "minutes")) * time.Minute)
		var want []issuer.Denial
		for _, d := range all {
			if d.Until.After(at) && (f.Subject == "" || d.Subject == f.Subject) && (f.JTI == "" || d.JTI == f.JTI) {
				want = append(want, *d)
			}
		}
		same(t, "denials", pages(t, h, func(ctx context.Context, tx control.ReadTx, p control.Page) ([]issuer.Denial, error) {
			return tx.Denials(ctx, i.ID, f, at, p)
		}, func(d *issuer.Denial) string { return d.ID }), want)
	})
}

// Guarantee: denials are removed after their end, and those of a deleted issuer, in bounded steps; others stay and are counted.
func testDenialTrim(h *harness) {
	a := h.insertAccount("a")
	kept, gone := h.insertIssuer(a, "kept"), h.insertIssuer(a, "gone")
	for _, i := range []*issuer.Issuer{kept, gone} {
		for n := range 5 {
			d := newDenial(i)
			d.Subject, d.Until = fmt.Sprint("u", n), epoch().Add(time.Duration(n)*time.Minute)
			h.insertDenial(d)
		}
	}
	trim := func(ended time.Time) (steps int) {
		for more := true; more; steps++ {
			h.update(func(ctx context.Context, tx control.Tx) (err error) {
				more, err = tx.TrimDenials(ctx, ended, 2)
				return err
			})
		}
		return steps
	}
	same(h, "steps with nothing to remove", trim(epoch()), 1)
	trim(epoch().Add(2 * time.Minute))
	same(h, "counts", []int64{h.issuer(a.ID, kept.ID).Denials, h.issuer(a.ID, gone.ID).Denials}, []int64{3, 3})
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.DeleteIssuer(ctx, a.ID, gone.ID) })
	same(h, "steps for 3 of a deleted issuer", trim(epoch()), 3)
	same(h, "denials", []int{len(h.denials(kept, control.DenialFilter{}, time.Unix(0, 0))), len(h.denials(gone, control.DenialFilter{}, time.Unix(0, 0)))}, []int{3, 0})
	same(h, "count", h.issuer(a.ID, kept.ID).Denials, int64(3))
}
