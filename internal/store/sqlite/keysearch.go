package sqlite

import (
	"strings"

	"github.com/keygate/keygate/internal/store/rows"
)

// searched returns the branches of a list that needs the search index. There is one for the keys
// that are in the index, newest first, one for the keys that are not, and the branches for keys
// whose phase does not match their expiry yet.
func (q *keyQuery) searched() []string {
	var branches []string
	now := rows.Micros(q.filter.Now)
	text, args := q.text()
	for _, p := range rows.KeyParts(q.filter.State) {
		phase := p.Phase
		where, in := text, args
		switch p.When {
		case rows.LateUnexpired:
			branches = append(branches, q.late("account_id = ? AND phase = ? AND phase < 2 AND expires_at > ? AND NOT ended"+text, append([]any{q.account, p.Phase, now}, args...)))
			continue
		case rows.LateEnded:
			branches = append(branches, q.late("account_id = ? AND phase = ? AND phase < 2 AND expires_at > ? AND ended"+text, append([]any{q.account, p.Phase, now}, args...)))
			continue
		case rows.LateExpired:
			branches = append(branches, q.late("account_id = ? AND phase = ? AND phase < 2 AND expires_at <= ?"+text, append([]any{q.account, p.Phase, now}, args...)))
			continue
		case rows.Unexpired:
			where, in = " AND (expires_at IS NULL OR expires_at > ?)"+where, append([]any{now}, in...)
		case rows.Expired:
			where, in = " AND expires_at <= ?"+where, append([]any{now}, in...)
		}
		if q.filter.State == "" {
			phase = -1 // one branch for all phases
		} else {
			where, in = " AND phase = ?"+where, append([]any{phase}, in...)
		}
		branches = append(branches, q.found(phase, where, in), q.unfound(where, in))
		if phase < 0 {
			break
		}
	}
	return branches
}

// text returns the condition on names and prefixes, and its arguments.
func (q *keyQuery) text() (where string, args []any) {
	f := &q.filter
	if f.Name != "" {
		where, args = " AND name = ?", append(args, f.Name)
	}
	if f.Query != "" {
		where += ` AND (name LIKE ? ESCAPE '\' OR prefix >= ? AND prefix < ?)`
		literal := strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(f.Query)
		args = append(args, "%"+literal+"%", f.Query, f.Query+"\xff")
	}
	return where, args
}

// found returns a query for one page of the keys that are in the index.
func (q *keyQuery) found(phase int, where string, args []any) string {
	q.args = append(q.args, q.match(phase), q.account, rows.Below(q.page.After))
	text := `SELECT n FROM (SELECT k.n FROM key_terms CROSS JOIN keys k ON k.n = key_terms.rowid WHERE key_terms MATCH ?
		AND key_terms.rowid <= (SELECT n FROM keys INDEXED BY keys_list WHERE account_id = ? AND id < ? ORDER BY id DESC LIMIT 1)
		AND ` + q.terms("k.account_id = ?"+where, append([]any{q.account}, args...)) + ` ORDER BY key_terms.rowid DESC LIMIT ?+0)`
	q.args = append(q.args, q.page.Limit)
	return text
}

// unfound returns a query for one page of the keys whose present form is not in the index.
func (q *keyQuery) unfound(where string, args []any) string {
	q.args = append(q.args, q.account, rows.Below(q.page.After))
	text := `SELECT n FROM (SELECT k.n FROM keys_unindexed u CROSS JOIN keys k ON k.n = u.n WHERE u.account_id = ? AND u.key_id < ?
		AND ` + q.terms("k.account_id = ?"+where, append([]any{q.account}, args...)) + ` ORDER BY u.key_id DESC LIMIT ?+0)`
	q.args = append(q.args, q.page.Limit)
	return text
}

// match returns the query of the index for the keys in phase, -1 for any, that the rest of the
// filter selects.
func (q *keyQuery) match(phase int) string {
	f := &q.filter
	terms := rows.NewKeyTerms(q.account)
	var all []string
	if phase >= 0 {
		all = append(all, terms.Phase(phase))
	}
	if f.Level != "" {
		all = append(all, terms.Level(rows.LevelNumber(f.Level)))
	}
	if f.Owner != "" {
		all = append(all, terms.Owner(f.Owner))
	}
	if f.GatewayID != "" {
		all = append(all, terms.Gateway(f.GatewayID))
	}
	if f.Name != "" {
		all = append(all, terms.Name(f.Name))
	}
	text := conjunction(all)
	if f.Query == "" {
		return text
	}
	if text != "" {
		text += " AND "
	}
	return text + "((" + conjunction(terms.Part(f.Query)) + `) OR "` + terms.Start(f.Query) + `")`
}

// conjunction returns the query of the index for the keys that have all of the terms.
func conjunction(terms []string) string {
	if len(terms) == 0 {
		return ""
	}
	return `"` + strings.Join(terms, `" AND "`) + `"`
}
