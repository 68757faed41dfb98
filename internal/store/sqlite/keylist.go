package sqlite

import (
	"context"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/store/rows"
)

// Keys implements control.KeyReader. An index on (…, phase, id) has the order of the list
// within one phase. The query reads each phase that the filter needs, newest first, and
// merges them.
func (t *readTx) Keys(ctx context.Context, accountID string, f control.KeyFilter, p control.Page) ([]apikey.Key, error) {
	if p.Limit <= 0 || len(rows.KeyParts(f.State)) == 0 || !rows.MayMatch(f.Query) {
		return nil, t.Ready(ctx)
	}
	q := keyQuery{account: accountID, filter: f, page: p}
	text, args := q.build()
	return t.SelectKeys(ctx, text, args...)
}

// keyQuery builds the query of one list. Every value is a parameter, so that there are few
// different statements.
type keyQuery struct {
	account string
	filter  control.KeyFilter
	page    control.Page
	args    []any
}

func (q *keyQuery) build() (string, []any) {
	var branches []string
	f := &q.filter
	switch {
	case f.Query != "" || f.Name != "":
		branches = q.searched()
	case f.Owner != "":
		branches = q.phased("keys_owner", "account_id = ? AND owner = ?", q.account, f.Owner)
	case f.PlanID != "":
		branches = q.phased("keys_plan", "account_id = ? AND plan_id = ?", q.account, f.PlanID)
	case f.GatewayID != "":
		branches = q.phased("keys_gateway", "gateway_id = ?", f.GatewayID)
	case f.State == "" && f.Level == "":
		branches = []string{q.branch("keys_list", "account_id = ?", []any{q.account})}
	case f.Level != "":
		branches = q.phased("keys_state", "account_id = ? AND level = ?", q.account, rows.LevelNumber(f.Level))
	default:
		for _, level := range []int{rows.GatewayLevel, rows.AccountLevel} {
			branches = append(branches, q.phased("keys_state", "account_id = ? AND level = ?", q.account, level)...)
		}
	}
	if f.State == apikey.Revoked {
		branches = append(branches, q.ended())
	}
	ids := strings.Join(branches, " UNION ALL ")
	// The plus prevents SQLite from scanning all keys by id to avoid sorting one page.
	return `WHERE n IN (` + ids + `) ORDER BY +id DESC LIMIT ?+0`, append(q.args, q.page.Limit)
}

// phased returns a branch for each part of the state.
func (q *keyQuery) phased(index, where string, args ...any) []string {
	var branches []string
	now := rows.Micros(q.filter.Now)
	for _, p := range rows.KeyParts(q.filter.State) {
		in := append(slices.Clone(args), p.Phase)
		switch p.When {
		case rows.LateUnexpired:
			branches = append(branches, q.late(where+" AND phase = ? AND phase < 2 AND expires_at > ? AND NOT ended", append(in, now)))
		case rows.LateEnded:
			branches = append(branches, q.late(where+" AND phase = ? AND phase < 2 AND expires_at > ? AND ended", append(in, now)))
		case rows.LateExpired:
			branches = append(branches, q.late(where+" AND phase = ? AND phase < 2 AND expires_at <= ?", append(in, now)))
		case rows.Unexpired:
			branches = append(branches, q.branch(index, where+" AND phase = ? AND (expires_at IS NULL OR expires_at > ?)", append(in, now)))
		case rows.Expired:
			branches = append(branches, q.branch(index, where+" AND phase = ? AND expires_at <= ?", append(in, now)))
		default:
			branches = append(branches, q.branch(index, where+" AND phase = ?", in))
		}
	}
	return branches
}

// branch returns a query for one page from an index that has the order of the list.
func (q *keyQuery) branch(index, where string, args []any) string {
	text := `SELECT n FROM (SELECT n, id FROM keys INDEXED BY ` + index + ` WHERE ` + q.terms(where, args) + ` ORDER BY id DESC LIMIT ?+0)`
	q.args = append(q.args, q.page.Limit)
	return text
}

// late returns a query for the few keys whose phase does not match their expiry yet.
func (q *keyQuery) late(where string, args []any) string {
	return `SELECT n FROM keys INDEXED BY keys_expiry WHERE ` + q.terms(where, args)
}

// terms adds the start of the page and all filters to where. Filters that the index already
// applies cost next to nothing.
func (q *keyQuery) terms(where string, args []any) string {
	f := &q.filter
	q.args = append(append(q.args, args...), rows.Below(q.page.After))
	where += " AND id < ?"
	if !strings.Contains(where, "account_id = ?") {
		where += " AND account_id = ?"
		q.args = append(q.args, q.account)
	}
	if f.Level != "" {
		where += " AND level = ?"
		q.args = append(q.args, rows.LevelNumber(f.Level))
	}
	if f.Owner != "" {
		where += " AND owner = ?"
		q.args = append(q.args, f.Owner)
	}
	if f.PlanID != "" {
		where += " AND plan_id = ?"
		q.args = append(q.args, f.PlanID)
	}
	if f.GatewayID != "" {
		where += " AND gateway_id = ?"
		q.args = append(q.args, f.GatewayID)
	}
	if f.State == apikey.Active || f.State == apikey.Expired {
		where += rows.NotEnded
	}
	return where + rows.Counted
}

// ended returns a query for one page of the keys that are revoked because their gateway has ended, and are not
// stored as revoked yet.
func (q *keyQuery) ended() string {
	text, args := q.text()
	return q.branch("keys_gateway", "gateway_id IN (SELECT id FROM ended_gateways INDEXED BY ended_gateways_account WHERE account_id IS ?) AND phase IN (0, 1)"+text,
		append([]any{q.account}, args...))
}
