package storetest

import (
	"context"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/acme"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
)

// insertCertificate inserts the certificate of a new gateway.
func (h *harness) insertCertificate(a *account.Account, hostname string, next time.Time) *acme.Certificate {
	h.Helper()
	return h.insertCertificateOf(h.insertGateway(a), hostname, next)
}

func (h *harness) insertCertificateOf(g *gateway.Gateway, hostname string, next time.Time) *acme.Certificate {
	h.Helper()
	c := &acme.Certificate{ID: id.New(id.Certificate), AccountID: g.AccountID, GatewayID: g.ID, Hostname: hostname, CreatedAt: epoch(), Version: 1}
	c.NextAt = next
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertCertificate(ctx, c) })
	return c
}

// Guarantee: a certificate is returned as it was inserted and as it was updated, by its identifier, its gateway, for serving and in
// lists of its account alone.
func testCertificates(h *harness) {
	a, b := h.insertAccount("a"), h.insertAccount("b")
	c, other := h.insertCertificate(a, "a.example.com", epoch()), h.insertCertificate(b, "b.example.com", epoch())
	rapid.Check(h, func(t *rapid.T) {
		at := epoch().Add(time.Duration(rapid.Int64Range(0, 1e18).Draw(t, "at")))
		next := *c
		next.Key, next.Version = rapid.SliceOfN(rapid.Byte(), 1, 50).Draw(t, "key"), rapid.Int64Min(1).Draw(t, "version")
		next.Progress = acme.Progress{
			Chain: text().Draw(t, "chain"), NotBefore: at, NotAfter: at.Add(time.Hour), IssuedAt: at, RenewAt: at, AskAt: at, NextAt: at.Add(time.Minute),
			Failures: rapid.IntRange(0, 9).Draw(t, "failures"), LastError: text().Draw(t, "error"), FailureRaised: at, ExpiryRaised: rapid.Bool().Draw(t, "raised"),
			Challenge: acme.Challenge{Token: text().Draw(t, "token"), KeyAuthorization: text().Draw(t, "authorization")},
		}
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.UpdateCertificate(ctx, &next) })
		for what, read := range map[string]func(ctx context.Context, tx control.ReadTx) (*acme.Certificate, error){
			"by its account": func(ctx context.Context, tx control.ReadTx) (*acme.Certificate, error) {
				return tx.Certificate(ctx, a.ID, c.ID)
			},
			"by its identifier": func(ctx context.Context, tx control.ReadTx) (*acme.Certificate, error) {
				return tx.CertificateByID(ctx, c.ID)
			},
			"of its gateway": func(ctx context.Context, tx control.ReadTx) (*acme.Certificate, error) {
				return tx.CertificateOf(ctx, c.GatewayID)
			},
		} {
			same(t, what, get(h, read), &next)
		}
		served, damaged, err := h.ServedCertificate(h.T.Context(), c.ID)
		if err != nil || damaged != nil {
			t.Fatal(err, damaged)
		}
		same(t, "served", served, &next)
	})
	var all []string
	if err := h.EachCertificate(h.T.Context(), func(c *acme.Certificate) { all = append(all, c.ID) }, func(id string, err error) { h.Error(id, err) }); err != nil {
		h.Fatal(err)
	}
	slices.Sort(all)
	same(h, "all", all, []string{c.ID, other.ID})
	missing(h, "of another account", func(ctx context.Context, tx control.ReadTx) (*acme.Certificate, error) {
		return tx.Certificate(ctx, b.ID, c.ID)
	})
	list := func(f control.CertificateFilter) (ids []string) {
		for _, c := range get(h, func(ctx context.Context, tx control.ReadTx) ([]acme.Certificate, error) {
			return tx.Certificates(ctx, a.ID, f, control.Page{Limit: 10})
		}) {
			ids = append(ids, c.ID)
		}
		return ids
	}
	second := h.insertCertificate(a, "second.example.org", epoch())
	same(h, "list", list(control.CertificateFilter{}), []string{second.ID, c.ID})
	same(h, "list of a part", list(control.CertificateFilter{Query: "SECOND"}), []string{second.ID})
	same(h, "list of a hostname", list(control.CertificateFilter{Hostname: "a.example.com"}), []string{c.ID})
	for n, want := range map[int]bool{2: true, 3: false} {
		has := get(h, func(ctx context.Context, tx control.ReadTx) (bool, error) { return tx.HasCertificates(ctx, a.ID, n) })
		inAll := get(h, func(ctx context.Context, tx control.ReadTx) (bool, error) { return tx.HasCertificates(ctx, "", n+1) })
		if has != want || inAll != want {
			h.Errorf("%d: got %v and %v", n, has, inAll)
		}
	}
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.DeleteCertificate(ctx, second.ID) })
	if gone, _, err := h.ServedCertificate(h.T.Context(), second.ID); gone != nil || err != nil {
		h.Errorf("got %v %v for one that is gone", gone, err)
	}
}

// Guarantee: certificates are due in the order of their times, and those of suspended accounts never.
func testDueCertificates(h *harness) {
	a, b := h.insertAccount("a"), h.insertAccount("b")
	later := h.insertCertificate(a, "later.example.com", epoch().Add(2*time.Second))
	sooner := h.insertCertificate(a, "sooner.example.com", epoch().Add(time.Second))
	h.insertCertificate(b, "suspended.example.com", epoch())
	suspended := *b
	suspended.State = account.Suspended
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.UpdateAccount(ctx, &suspended) })
	for after, want := range map[time.Duration][]string{0: nil, time.Second: {sooner.ID}, time.Minute: {sooner.ID, later.ID}} {
		var ids []string
		for _, c := range get(h, func(ctx context.Context, tx control.ReadTx) ([]acme.Certificate, error) {
			return tx.DueCertificates(ctx, epoch().Add(after), 10)
		}) {
			ids = append(ids, c.ID)
		}
		same(h, "due", ids, want)
	}
}

// Guarantee: hostnames and renewals of a week count by account and by domain, each hostname once, and older ones are forgotten.
func testCertificateNames(h *harness) {
	a, b := h.insertAccount("a"), h.insertAccount("b")
	note := func(accountID, hostname string, renewal bool, after time.Duration) {
		h.update(func(ctx context.Context, tx control.Tx) error {
			at := epoch().Add(after)
			return tx.NoteCertificateName(ctx, accountID, hostname, "example.com", renewal, at, at.Add(-acme.Week))
		})
	}
	type names struct {
		ofAccount, ofDomain control.Since
		known               bool
	}
	count := func(accountID, hostname string, after time.Duration) names {
		return get(h, func(ctx context.Context, tx control.ReadTx) (n names, err error) {
			n.ofAccount, n.ofDomain, n.known, err = tx.NewCertificateNames(ctx, accountID, hostname, "example.com", epoch().Add(after-acme.Week))
			return n, err
		})
	}
	note(a.ID, "a.example.com", false, 0)
	note(a.ID, "b.example.com", false, time.Hour)
	note(b.ID, "c.example.com", false, 2*time.Hour)
	note(a.ID, "a.example.com", true, 3*time.Hour)
	same(h, "names", count(a.ID, "a.example.com", 3*time.Hour), names{control.Since{Count: 2, First: epoch()}, control.Since{Count: 3, First: epoch()}, true})
	same(h, "names of the other", count(b.ID, "a.example.com", 3*time.Hour), names{control.Since{Count: 1, First: epoch().Add(2 * time.Hour)}, control.Since{Count: 3, First: epoch()}, false})
	same(h, "names a week later", count(a.ID, "a.example.com", acme.Week+time.Minute), names{control.Since{Count: 1, First: epoch().Add(time.Hour)}, control.Since{Count: 2, First: epoch().Add(time.Hour)}, false})
	renewals := get(h, func(ctx context.Context, tx control.ReadTx) (control.Since, error) {
		return tx.CertificateRenewals(ctx, a.ID, "a.example.com", epoch())
	})
	same(h, "renewals", renewals, control.Since{Count: 1, First: epoch().Add(3 * time.Hour)})
	note(a.ID, "d.example.com", false, 2*acme.Week) // forgets the others
	same(h, "names after two weeks", count(a.ID, "a.example.com", acme.Week), names{control.Since{Count: 1, First: epoch().Add(2 * acme.Week)}, control.Since{Count: 2, First: epoch().Add(2 * time.Hour)}, false})
}

// Guarantee: there is one account with each CA, which can be replaced.
func testCertificateAccount(h *harness) {
	read := func(ctx context.Context, tx control.ReadTx) (*acme.Account, error) {
		return tx.CertificateAccount(ctx, "https://ca.example/dir")
	}
	missing(h, "without one", read)
	for _, location := range []string{"https://ca.example/1", "https://ca.example/2"} {
		a := acme.Account{Directory: "https://ca.example/dir", Key: []byte(location), Location: location}
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.PutCertificateAccount(ctx, &a) })
		same(h, "account", get(h, read), &a)
	}
}
