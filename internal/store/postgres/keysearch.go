package postgres

import (
	"context"
	"strings"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/store/rows"
)

// newestSearched is how many of the newest keys of a list a search reads before it asks the index.
// If these have a page of results, the search is done, so a search that many keys match costs
// little. A search that few keys match uses the index, which has no order.
const newestSearched = 2000

// searchKeys reads a list with a search for texts.
func (t *readTx) searchKeys(ctx context.Context, q keyQuery) ([]apikey.Key, error) {
	first := q
	keys, err := t.listed(ctx, &first, first.newest())
	if err != nil || len(keys) == q.page.Limit {
		return keys, err
	}
	return t.listed(ctx, &q, q.searched())
}

// newest returns the branch of a search that reads the newest keys.
func (q *keyQuery) newest() []string {
	among := `(SELECT * FROM keys WHERE account_id = ` + q.value(q.account) + ` AND id < ` + q.value(rows.Below(q.page.After)) +
		` ORDER BY id DESC LIMIT ` + q.value(newestSearched) + `) AS keys`
	return []string{`(SELECT id FROM ` + among + ` WHERE ` + q.terms() + q.state() + q.text() + ` ORDER BY id DESC LIMIT ` + q.value(q.page.Limit) + `)`}
}

// searched returns the branches of a search: one for the keys that are in the index, and one for
// the keys whose present form is not in the index.
func (q *keyQuery) searched() []string {
	found := ` JOIN key_terms ON key_terms.n = keys.n AND ` + q.match()
	unfound := ` JOIN keys_unindexed ON keys_unindexed.n = keys.n AND keys_unindexed.account_id = ` + q.value(q.account)
	return []string{q.branch(found, q.state()+q.text()), q.branch(unfound, q.state()+q.text())}
}

// state returns the condition of the state.
func (q *keyQuery) state() string {
	if q.filter.State == "" {
		return ""
	}
	var parts []string
	for _, p := range rows.KeyParts(q.filter.State) {
		parts = append(parts, "true"+q.part(p))
	}
	if q.filter.State == apikey.Revoked {
		parts = append(parts, "true"+q.ended())
	}
	return " AND (" + strings.Join(parts, " OR ") + ")"
}

// text returns the condition on names and prefixes. In the collation of bytes, lower changes ASCII
// letters only.
func (q *keyQuery) text() (where string) {
	f := &q.filter
	if f.Name != "" {
		where = " AND name = " + q.value(f.Name)
	}
	if f.Query != "" {
		where += ` AND (strpos(lower(name), ` + q.value(rows.LowerASCII(f.Query)) + `) > 0 OR starts_with(prefix, ` + q.value(f.Query) + `))`
	}
	return where
}

// match returns the condition of the index. It may select keys that the rest of the filter does
// not. The state is left out, because it would not narrow the search: there are few states.
func (q *keyQuery) match() string {
	f, terms := &q.filter, rows.NewKeyTerms(q.account)
	var all []string
	if f.Owner != "" {
		all = append(all, terms.Owner(f.Owner))
	}
	if f.GatewayID != "" {
		all = append(all, terms.Gateway(f.GatewayID))
	}
	if f.Name != "" {
		all = append(all, terms.Name(f.Name))
	}
	if f.Query == "" {
		return `terms @> ` + q.value(termHashes(all))
	}
	parts := termHashes(append(terms.Part(f.Query), all...))
	start := termHashes(append(all, terms.Start(f.Query)))
	return `(terms @> ` + q.value(parts) + ` OR terms @> ` + q.value(start) + `)`
}
