package storetest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/id"
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
		(f.PlanID == "" || k.PlanID == f.PlanID) &&
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
// notified yet. It does not matter which keys IndexKeys has indexed, whether they have changed since, nor whether
// identifiers are in the order of creation.
func testKeyList(h *harness) {
	a, b := h.insertAccount("a"), h.insertAccount("b")
	gateways := []string{"", h.insertGateway(a).ID, h.insertGateway(a).ID}
	var keys []*apikey.Key
	for _, owner := range []*account.Account{a, b} {
		rapid.Check(h, func(t *rapid.T) { // to generate many different keys
			k := newKey(owner)
			if rapid.IntRange(0, 4).Draw(t, "backdated") == 0 { // the clock was set back
				k.ID = id.NewAt(id.Key, time.Now().Add(-time.Duration(rapid.IntRange(1, 5000).Draw(t, "ms"))*time.Millisecond))
				k.BucketID = k.ID
			}
			drawKey(t, k, gateways)
			h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertKey(ctx, k) })
			if owner == a {
				keys = append(keys, k)
			}
		})
	}
	slices.SortFunc(keys, func(x, y *apikey.Key) int { return strings.Compare(y.ID, x.ID) })
	check := func(h *harness) {
		rapid.Check(h, func(t *rapid.T) { h.checkKeyList(t, a.ID, keys, drawKeyFilter(t, gateways)) })
	}

	h.run("not indexed", check)
	h.indexKeys(40)
	h.run("indexed in part", check)
	h.indexKeys(1000)
	h.run("indexed", check)
	rapid.Check(h, func(t *rapid.T) {
		k := rapid.SampledFrom(keys).Draw(t, "key")
		drawKey(t, k, gateways)
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.UpdateKey(ctx, k) })
		if rapid.Bool().Draw(t, "index") {
			h.indexKeys(1)
		}
		h.checkKeyList(t, a.ID, keys, drawKeyFilter(t, gateways))
	})
	h.run("changed since", check)
	at := epoch().Add(-time.Minute)
	h.update(func(ctx context.Context, tx control.Tx) error {
		e := control.EndedGateway{ID: gateways[1], AccountID: a.ID, At: at}
		return errors.Join(tx.EndGateway(ctx, &e), tx.DeleteGateway(ctx, a.ID, e.ID))
	})
	for _, k := range keys {
		if k.GatewayID == gateways[1] && k.RevokedAt.IsZero() {
			k.RevokedAt, k.Version = at, k.Version+1
		}
	}
	h.run("of a gateway that has ended", check)
}

// keyNames and keyOwners return the names and owners of drawn keys.
func keyNames() []string {
	return []string{"Partner", "partner", "100%", "under_score", "ÄRGER", "ärger", "back\\slash", "star*?[a]", "'quote\"", "a", "日本", "rtpar tnerpa"}
}

func keyOwners() []string { return []string{"", "ada", "bob"} }

func keyPlans() []string { return []string{"", "plan_1", "plan_2"} }

// drawKey sets what the filters of a list select.
func drawKey(t *rapid.T, k *apikey.Key, gateways []string) {
	k.Name = rapid.SampledFrom(keyNames()).Draw(t, "name")
	k.Level = rapid.SampledFrom([]apikey.Level{apikey.GatewayLevel, apikey.AccountLevel}).Draw(t, "level")
	setOwner(k, rapid.SampledFrom(keyOwners()).Draw(t, "owner"))
	k.PlanID = rapid.SampledFrom(keyPlans()).Draw(t, "plan")
	k.GatewayID = rapid.SampledFrom(gateways).Draw(t, "gateway")
	k.ExpiresAt, k.ExpiryNotified, k.RevokedAt, k.Ended = time.Time{}, time.Time{}, time.Time{}, false
	if rapid.Bool().Draw(t, "expires") {
		k.ExpiresAt = epoch().Add(time.Duration(rapid.IntRange(-3, 3).Draw(t, "expiry")) * time.Second)
		if rapid.Bool().Draw(t, "notified") {
			k.ExpiryNotified = k.ExpiresAt
			k.Ended = rapid.IntRange(0, 2).Draw(t, "ended") == 0
		}
	}
	if rapid.IntRange(0, 2).Draw(t, "revoked") == 0 {
		k.RevokedAt = epoch()
	}
}

func drawKeyFilter(t *rapid.T, gateways []string) control.KeyFilter {
	return control.KeyFilter{
		State:     rapid.SampledFrom([]apikey.State{"", apikey.Active, apikey.Expired, apikey.Revoked}).Draw(t, "state"),
		Level:     rapid.SampledFrom([]apikey.Level{"", apikey.GatewayLevel, apikey.AccountLevel}).Draw(t, "level"),
		GatewayID: rapid.SampledFrom(gateways).Draw(t, "gateway"),
		Owner:     rapid.SampledFrom(append(keyOwners(), "nobody")).Draw(t, "owner"),
		PlanID:    rapid.SampledFrom(append(keyPlans(), "", "")).Draw(t, "plan"),
		Name:      rapid.SampledFrom(append(keyNames(), "", "", "", "", "Part")).Draw(t, "name"),
		Query: rapid.SampledFrom([]string{"", "", "", "a", "P", "AR", "art", "%", "_", "Ä", "ä", "rger", "\\", "*", "'", "kg_", "k", "KG", "kg_0", "x",
			"partne", "r_sc", "日", "日本", "本日", "parart", "absent"}).Draw(t, "query"),
		Now: epoch().Add(time.Duration(rapid.IntRange(-4, 4).Draw(t, "now")) * time.Second),
	}
}

// checkKeyList checks that the pages of the list have exactly the keys that f selects.
func (h *harness) checkKeyList(t *rapid.T, accountID string, keys []*apikey.Key, f control.KeyFilter) {
	var want []apikey.Key
	for _, k := range keys {
		if matches(k, &f) {
			want = append(want, *k)
		}
	}
	limit := rapid.IntRange(1, 40).Draw(t, "limit")
	var got []apikey.Key
	for after := ""; ; {
		page := h.keyPage(accountID, f, control.Page{Limit: limit, After: after})
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
}

// indexKeys indexes up to limit keys.
func (h *harness) indexKeys(limit int) {
	h.Helper()
	for done := 1; done > 0 && limit > 0; limit -= done {
		h.update(func(ctx context.Context, tx control.Tx) (err error) {
			done, err = tx.IndexKeys(ctx, limit)
			return err
		})
	}
}

// Guarantee: KeysToIndex counts the new and changed keys, up to its limit, until IndexKeys has indexed
// them. IndexKeys takes no more than its limit. A use, or another change that no filter sees, does not
// make a key need indexing.
func testIndexKeys(h *harness) {
	a := h.insertAccount("a")
	waiting := func(want int) {
		h.Helper()
		got := get(h, func(ctx context.Context, tx control.ReadTx) (int, error) { return tx.KeysToIndex(ctx, 3) })
		same(h, "keys to index", got, want)
	}
	waiting(0)
	k := h.insertKey(a, nil)
	waiting(1)
	for range 4 {
		h.insertKey(a, nil)
	}
	waiting(3)
	h.indexKeys(3)
	waiting(2)
	h.indexKeys(10)
	waiting(0)
	h.update(func(ctx context.Context, tx control.Tx) error {
		k.Metadata, k.Version, k.ExpiresAt = map[string]string{"a": "b"}, 2, epoch()
		if err := tx.UpdateKey(ctx, k); err != nil {
			return err
		}
		return tx.TouchKeys(ctx, map[string]time.Time{k.ID: epoch()})
	})
	waiting(0)
	k.Name = "renamed"
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.UpdateKey(ctx, k) })
	waiting(1)
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.UpdateKey(ctx, k) })
	waiting(1)
}

// Guarantee: a query matches part of the name, ignoring ASCII case, or the start of the prefix.
// No character is a wildcard.
func testKeyListQuery(h *harness) {
	a := h.insertAccount("a")
	k := h.insertKey(a, func(k *apikey.Key) { k.Name, k.Prefix = "Billing Ünit 50%_off", "kg_AbC123" })
	for query, found := range map[string]bool{
		"billing": true, "BILLING": true, "ling Ü": true, "50%_": true, "kg_AbC": true, "kg_AbC123": true,
		"ünit": false, "5_%": false, "b%g": false, "AbC": false, "kg_abc": false, "kg_AbC1234": false, "_bC": false, "\xc3": false,
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
