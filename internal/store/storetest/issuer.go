package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/issuer"
	"github.com/keygate/keygate/internal/jwk"
)

func newIssuer(a *account.Account, name string) *issuer.Issuer {
	return &issuer.Issuer{ID: id.New(id.Issuer), AccountID: a.ID, Name: name, CreatedAt: epoch(), Version: 1,
		Settings: issuer.Settings{URL: "https://login.example.com", Audiences: []string{"api"}}, Seen: []issuer.SeenKey{}}
}

// insertIssuer inserts an issuer.
func (h *harness) insertIssuer(a *account.Account, name string) *issuer.Issuer {
	h.Helper()
	i := newIssuer(a, name)
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertIssuer(ctx, i) })
	return i
}

func (h *harness) issuer(accountID, issuerID string) *issuer.Issuer {
	h.Helper()
	return get(h, func(ctx context.Context, tx control.ReadTx) (*issuer.Issuer, error) {
		return tx.Issuer(ctx, accountID, issuerID)
	})
}

func issuerOf(a *account.Account) *rapid.Generator[*issuer.Issuer] {
	return rapid.Custom(func(t *rapid.T) *issuer.Issuer {
		i := newIssuer(a, "")
		i.Name = rapid.StringMatching(`[a-z]{9}`).Draw(t, "name") + i.ID
		value, _ := issuer.ParseValue(fmt.Appendf(nil, "%d", rapid.Int().Draw(t, "value")))
		i.Settings = issuer.Settings{
			URL: text().Draw(t, "issuer"), JWKSURL: text().Draw(t, "jwks_url"), JWKS: text().Draw(t, "jwks"), CA: text().Draw(t, "ca"),
			Audiences: rapid.SliceOfN(text(), 1, 3).Draw(t, "audiences"), Algorithms: rapid.SampledFrom([][]jwk.Algorithm{nil, {jwk.ES384}}).Draw(t, "algorithms"),
			Leeway: text().Draw(t, "leeway"), Required: map[string]issuer.Values{text().Draw(t, "claim"): {value}},
			Claims: issuer.Claims{Owner: text().Draw(t, "owner")}, ForwardToken: rapid.Bool().Draw(t, "forward_token"),
		}
		i.Seen = append(i.Seen, issuer.SeenKey{ID: text().Draw(t, "kid"), Algorithm: jwk.RS256, FirstSeen: moment().Draw(t, "first_seen").UTC()})
		i.Document, i.LastError, i.FetchAt = text().Draw(t, "document"), text().Draw(t, "last_error"), rapid.OneOf(rapid.Just(time.Time{}), moment()).Draw(t, "fetch_at")
		i.CreatedAt = moment().Draw(t, "created_at")
		i.Version = rapid.Int64Min(1).Draw(t, "version")
		return i
	})
}

// Guarantee: an issuer is returned as it was inserted and as it was updated. An update does not change fixed fields.
func testIssuerRoundTrip(h *harness) {
	a := h.insertAccount("a")
	rapid.Check(h, func(t *rapid.T) {
		i, changed := issuerOf(a).Draw(t, "issuer"), issuerOf(a).Draw(t, "changed")
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertIssuer(ctx, i) })
		same(t, "inserted", h.issuer(a.ID, i.ID), i)
		changed.ID = i.ID
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.UpdateIssuer(ctx, changed) })
		changed.CreatedAt = i.CreatedAt
		same(t, "updated", h.issuer(a.ID, i.ID), changed)
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.DeleteIssuer(ctx, a.ID, i.ID) })
	})
}

// Guarantee: names of issuers are unique in an account, and no account finds, lists, counts or changes the issuers of
// another one.
func testIssuerRules(h *harness) {
	a, b := h.insertAccount("a"), h.insertAccount("b")
	one, two := h.insertIssuer(a, "one"), h.insertIssuer(a, "two")
	other := h.insertIssuer(b, "one")
	h.conflict("name", func(ctx context.Context, tx control.Tx) error { return tx.InsertIssuer(ctx, newIssuer(a, "one")) })
	h.conflict("name", func(ctx context.Context, tx control.Tx) error {
		twin := *two
		twin.Name = "one"
		return tx.UpdateIssuer(ctx, &twin)
	})
	h.rejected(fault.NotFound, func(ctx context.Context, tx control.Tx) error { return tx.DeleteIssuer(ctx, b.ID, one.ID) })
	h.rejected(fault.NotFound, func(ctx context.Context, tx control.Tx) error {
		stolen := *one
		stolen.AccountID = b.ID
		return tx.UpdateIssuer(ctx, &stolen)
	})
	missing(h, "Issuer", func(ctx context.Context, tx control.ReadTx) (*issuer.Issuer, error) {
		return tx.Issuer(ctx, b.ID, one.ID)
	})
	same(h, "unchanged", h.issuer(a.ID, one.ID), one)
	use := func(accountID, without string) control.IssuerUse {
		return get(h, func(ctx context.Context, tx control.ReadTx) (control.IssuerUse, error) {
			return tx.IssuerUse(ctx, accountID, without)
		})
	}
	each, fetched := use(b.ID, "").Bytes, int64(len(`[]`))
	same(h, "use", []control.IssuerUse{use(a.ID, ""), use(a.ID, one.ID), use(b.ID, one.ID), use(b.ID, other.ID)},
		[]control.IssuerUse{{Issuers: 2, Bytes: 2 * each, Fetched: 2 * fetched}, {Issuers: 1, Bytes: each, Fetched: fetched}, {Issuers: 1, Bytes: each, Fetched: fetched}, {}})
	if each != int64(len(`{"issuer":"https://login.example.com","audiences":["api"]}`)) {
		h.Errorf("got %d bytes of an issuer", each)
	}
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.DeleteIssuer(ctx, a.ID, one.ID) })
	missing(h, "a deleted issuer", func(ctx context.Context, tx control.ReadTx) (*issuer.Issuer, error) {
		return tx.Issuer(ctx, a.ID, one.ID)
	})
	h.insertIssuer(a, "one")
}

// Guarantee: a list of issuers has exactly those that the filter selects, newest first and page by page.
func testIssuerList(h *harness) {
	a, b := h.insertAccount("a"), h.insertAccount("b")
	h.insertIssuer(b, "dex")
	var issuers []*issuer.Issuer
	for n := range 9 {
		i := newIssuer(a, fmt.Sprintf("%s-%d", []string{"dex", "okta", "100_"}[n%3], n))
		i.CreatedAt = i.CreatedAt.Add(time.Duration(n) * time.Second)
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertIssuer(ctx, i) })
		issuers = append(issuers, i)
	}
	slices.Reverse(issuers)
	rapid.Check(h, func(t *rapid.T) {
		f := control.IssuerFilter{Name: rapid.SampledFrom([]string{"", "", "okta-1", "okta-9"}).Draw(t, "name"),
			Query: rapid.SampledFrom([]string{"", "okta", "Okta", "_", "%", "-1", "absent"}).Draw(t, "query")}
		var want []issuer.Issuer
		for _, i := range issuers {
			if strings.Contains(i.Name, lowerASCII(f.Query)) && (f.Name == "" || i.Name == f.Name) {
				want = append(want, *i)
			}
		}
		same(t, "issuers", pages(t, h, func(ctx context.Context, tx control.ReadTx, p control.Page) ([]issuer.Issuer, error) {
			return tx.Issuers(ctx, a.ID, f, p)
		}, func(i *issuer.Issuer) string { return i.ID }), want)
	})
}

// Guarantee: the issuers that are due are those whose time has come, or is so late that a clock that was ahead has noted it, and whose
// account is active. Accounts take turns, and none has more than it may have of a list. Unreachable issuers of all accounts are counted.
func testIssuersDue(h *harness) {
	a, b, suspended := h.insertAccount("a"), h.insertAccount("b"), h.insertAccount("c")
	h.setState(suspended, account.Suspended)
	insert := func(of *account.Account, name string, due int, problem string) {
		i := newIssuer(of, name)
		i.LastError = problem
		if due >= 0 {
			i.FetchAt = epoch().Add(time.Duration(due) * time.Second)
		}
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertIssuer(ctx, i) })
	}
	for n := range 5 {
		insert(a, fmt.Sprint("a", n), n, "")
	}
	insert(a, "by-hand", -1, "")
	insert(b, "b9", 9, "down")
	insert(b, "b3", 3, "")
	insert(suspended, "c0", 0, "down")
	due := func(at, perAccount, limit int) (names []string) {
		for _, i := range get(h, func(ctx context.Context, tx control.ReadTx) ([]issuer.Issuer, error) {
			return tx.DueIssuers(ctx, epoch().Add(time.Duration(at)*time.Second), perAccount, limit)
		}) {
			names = append(names, i.Name)
		}
		return names
	}
	same(h, "due at 3", due(3, 9, 9), []string{"a0", "b3", "a1", "a2", "a3"})
	same(h, "due at 9", due(9, 2, 9), []string{"a0", "b3", "a1", "b9"})
	same(h, "limited", due(9, 9, 3), []string{"a0", "b3", "a1"})
	latest := int(issuer.LatestFetch / time.Second)
	insert(b, "ahead", 3+latest, "")
	same(h, "due at 3, with one that is not too late", due(3, 9, 9), []string{"a0", "b3", "a1", "a2", "a3"})
	same(h, "due at 2, with one that is too late", due(2, 9, 9), []string{"a0", "ahead", "a1", "a2"})
	same(h, "unreachable", get(h, func(ctx context.Context, tx control.ReadTx) (int, error) { return tx.UnreachableIssuers(ctx) }), 2)
}

// Guarantee: the gateways of an issuer are those of the account that name it as it is, not one whose name begins or ends like it. Issuers are found by name, and by their whole URL.
func testIssuersInUse(h *harness) {
	a, b := h.insertAccount("a"), h.insertAccount("b")
	insert := func(of *account.Account, issuers ...string) *gateway.Gateway {
		g := h.insertGateway(of)
		g.Requests.Issuers = issuers
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.UpdateGateway(ctx, g) })
		return g
	}
	insert(b, "log")
	insert(a)
	insert(a, "login", "b-log")
	one, two := insert(a, "x", "log"), insert(a, "log", "login")
	users := func(name string, limit int) (ids []string) {
		for _, u := range get(h, func(ctx context.Context, tx control.ReadTx) ([]control.IssuerUser, error) {
			return tx.GatewaysOfIssuer(ctx, a.ID, name, limit)
		}) {
			ids = append(ids, u.GatewayID+" "+strings.Join(u.Issuers, ","))
		}
		return ids
	}
	want := []string{one.ID + " x,log", two.ID + " log,login"}
	slices.Sort(want)
	same(h, "gateways", users("log", 9), want)
	same(h, "the first gateway", users("log", 1), want[:1])
	same(h, "gateways of none", users("lo", 9), []string(nil))
	one.Requests.Issuers = nil
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.UpdateGateway(ctx, one) })
	same(h, "after a change", users("log", 9), []string{two.ID + " log,login"})

	for n, url := range []string{"https://a.example", "https://a.example/", "https://a.example/&<", "https://a.example"} {
		i := newIssuer([]*account.Account{a, a, a, b}[n], fmt.Sprint("i", n))
		i.URL, i.ClaimHeaders = url, map[string]string{"X-N": fmt.Sprint(n)}
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertIssuer(ctx, i) })
	}
	for url, want := range map[string][]string{"https://a.example": {"i0"}, "https://a.example/": {"i1"}, "https://a.example/&<": {"i2"}, "https://a.exampl": nil} {
		same(h, url, get(h, func(ctx context.Context, tx control.ReadTx) ([]string, error) { return tx.IssuersOfURL(ctx, a.ID, url) }), want)
	}
	same(h, "issuers by name", get(h, func(ctx context.Context, tx control.ReadTx) ([]control.NamedIssuer, error) {
		return tx.IssuersNamed(ctx, a.ID, []string{"i2", "i3", "absent"})
	}), []control.NamedIssuer{{Name: "i2", URL: "https://a.example/&<", ClaimHeaders: map[string]string{"X-N": "2"}}})
}
