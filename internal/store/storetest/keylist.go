package storetest

import (
	"context"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
)

func (h *harness) keyPage(accountID string, f control.KeyFilter, p control.Page) []apikey.Key {
	h.Helper()
	return get(h, func(ctx context.Context, tx control.ReadTx) ([]apikey.Key, error) {
		return tx.Keys(ctx, accountID, f, p)
	})
}

// matches reports whether f selects k.
func matches(k *apikey.Key, f *control.KeyFilter) bool {
	return (f.State == "" || k.State(f.Now) == f.State) &&
		(f.GatewayID == "" || k.GatewayID == f.GatewayID) &&
		(f.Level == "" || k.Level == f.Level) &&
		(f.Owner == "" || k.Owner == f.Owner) &&
		(f.Name == "" || k.Name == f.Name) &&
		(f.Query == "" || strings.Contains(lowerASCII(k.Name), lowerASCII(f.Query)) || strings.HasPrefix(k.Prefix, f.Query))
}

func lowerASCII(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// Guarantee: for every combination of filters, the list has exactly the matching keys, newest
// first and page by page, also before an expiry that was notified and after one that was not
// notified yet.
func testKeyList(h *harness) {
	a, b := h.insertAccount("a"), h.insertAccount("b")
	gateways := []string{"", h.insertGateway(a).ID, h.insertGateway(a).ID}
	owners := []string{"", "ada", "bob"}
	names := []string{"Partner", "partner", "100%", "under_score", "ÄRGER", "ärger", "back\\slash", "star*?[a]", "'quote\""}
	var keys []*apikey.Key
	for _, owner := range []*account.Account{a, b} {
		rapid.Check(h, func(t *rapid.T) { // to generate many different keys
			k := newKey(owner)
			k.Name = rapid.SampledFrom(names).Draw(t, "name")
			k.Level = rapid.SampledFrom([]apikey.Level{apikey.GatewayLevel, apikey.AccountLevel}).Draw(t, "level")
			k.Owner = rapid.SampledFrom(owners).Draw(t, "owner")
			k.GatewayID = rapid.SampledFrom(gateways).Draw(t, "gateway")
			if rapid.Bool().Draw(t, "expires") {
				k.ExpiresAt = epoch().Add(time.Duration(rapid.IntRange(-3, 3).Draw(t, "expires")) * time.Second)
				if rapid.Bool().Draw(t, "notified") {
					k.ExpiryNotified = k.ExpiresAt
				}
			}
			if rapid.IntRange(0, 2).Draw(t, "revoked") == 0 {
				k.RevokedAt = epoch()
			}
			h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertKey(ctx, k) })
			if owner == a {
				keys = append(keys, k)
			}
		})
	}
	slices.SortFunc(keys, func(x, y *apikey.Key) int { return strings.Compare(y.ID, x.ID) })

	rapid.Check(h, func(t *rapid.T) {
		f := control.KeyFilter{
			State:     rapid.SampledFrom([]apikey.State{"", apikey.Active, apikey.Expired, apikey.Revoked}).Draw(t, "state"),
			Level:     rapid.SampledFrom([]apikey.Level{"", apikey.GatewayLevel, apikey.AccountLevel}).Draw(t, "level"),
			GatewayID: rapid.SampledFrom(gateways).Draw(t, "gateway"),
			Owner:     rapid.SampledFrom(append(owners, "nobody")).Draw(t, "owner"),
			Name:      rapid.SampledFrom(append(names, "", "", "Part")).Draw(t, "name"),
			Query:     rapid.SampledFrom([]string{"", "", "art", "%", "_", "Ä", "\\", "*", "'", "kg_", "x"}).Draw(t, "query"),
			Now:       epoch().Add(time.Duration(rapid.IntRange(-4, 4).Draw(t, "now")) * time.Second),
		}
		var want []apikey.Key
		for _, k := range keys {
			if matches(k, &f) {
				want = append(want, *k)
			}
		}
		limit := rapid.IntRange(1, 40).Draw(t, "limit")
		var got []apikey.Key
		for after := ""; ; {
			page := h.keyPage(a.ID, f, control.Page{Limit: limit, After: after})
			got = append(got, page...)
			if len(page) > limit {
				t.Fatalf("a page of %d has %d keys", limit, len(page))
			}
			if len(page) < limit {
				break
			}
			if len(got) > len(want) {
				t.Fatalf("the pages do not end")
			}
			after = page[len(page)-1].ID
		}
		same(t, "ids", ids(got), ids(want))
		same(t, "keys", got, want)
	})
}

// Guarantee: a query matches part of the name, ignoring ASCII case, or the start of the prefix.
// No character is a wildcard.
func testKeyListQuery(h *harness) {
	a := h.insertAccount("a")
	k := h.insertKey(a, func(k *apikey.Key) { k.Name, k.Prefix = "Billing Ünit 50%_off", "kg_AbC123" })
	for query, found := range map[string]bool{
		"billing": true, "BILLING": true, "ling Ü": true, "50%_": true, "kg_AbC": true, "kg_AbC123": true,
		"ünit": false, "5_%": false, "b%g": false, "AbC": false, "kg_abc": false, "kg_AbC1234": false, "_bC": false,
	} {
		page := h.keyPage(a.ID, control.KeyFilter{Query: query, Now: epoch()}, control.Page{Limit: 10})
		if found && len(page) != 1 {
			h.Errorf("query %q: got %d keys, want 1", query, len(page))
		}
		if !found && len(page) != 0 {
			h.Errorf("query %q: got %d keys, want none", query, len(page))
		}
	}
	same(h, "renamed", func() []string {
		k.Name = "other"
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.UpdateKey(ctx, k) })
		return ids(h.keyPage(a.ID, control.KeyFilter{Query: "billing", Now: epoch()}, control.Page{Limit: 10}))
	}(), []string{})
}
