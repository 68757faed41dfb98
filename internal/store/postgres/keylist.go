package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/store/rows"
)

// Keys implements control.KeyReader. An index on (…, phase, id) has the order of the list within
// one phase. The query reads each phase that the filter needs, newest first, and merges them.
func (t *readTx) Keys(ctx context.Context, accountID string, f control.KeyFilter, p control.Page) ([]apikey.Key, error) {
	if p.Limit <= 0 || len(rows.KeyParts(f.State)) == 0 || !rows.MayMatch(f.Query) || !rows.MayMatch(f.Name) {
		return nil, t.Ready(ctx)
	}
	q := keyQuery{account: accountID, filter: f, page: p}
	if f.Query != "" || f.Name != "" {
		return t.searchKeys(ctx, q)
	}
	return t.listed(ctx, &q, q.listed())
}

// listed reads the keys whose identifiers the branches of a query return. They are read as an array first, so that the
// planner does not take them for enough to read the whole table.
func (t *readTx) listed(ctx context.Context, q *keyQuery, branches []string) ([]apikey.Key, error) {
	return t.SelectKeys(ctx, `WHERE id = ANY (ARRAY(`+strings.Join(branches, " UNION ALL ")+`)) ORDER BY id DESC LIMIT `+q.value(q.page.Limit), q.args...)
}

// keyQuery builds the query of one list. Every value is a parameter, so that there are few
// different statements.
type keyQuery struct {
	account string
	filter  control.KeyFilter
	page    control.Page
	args    []any
}

// value adds a parameter and returns its name.
func (q *keyQuery) value(v any) string {
	q.args = append(q.args, v)
	return fmt.Sprintf("$%d", len(q.args))
}

// listed returns the branches of a list without a search.
func (q *keyQuery) listed() []string {
	f := &q.filter
	switch {
	case f.Owner != "" || f.PlanID != "" || f.GatewayID != "" || f.Level != "":
		return q.phased("")
	case f.State == "":
		return []string{q.branch("", "")}
	default: // the index of states has one part for each level
		gateway := q.phased(" AND level = " + q.value(rows.GatewayLevel))
		return append(gateway, q.phased(" AND level = "+q.value(rows.AccountLevel))...)
	}
}

// phased returns a branch for each part of the state.
func (q *keyQuery) phased(where string) []string {
	var branches []string
	for _, p := range rows.KeyParts(q.filter.State) {
		branches = append(branches, q.branch("", where+q.part(p)))
	}
	if q.filter.State == apikey.Revoked {
		branches = append(branches, q.branch("", where+q.ended()))
	}
	return branches
}

// part returns the condition of a part of the state.
func (q *keyQuery) part(p rows.KeyPart) string {
	phase := " AND phase = " + q.value(p.Phase)
	if q.filter.State == apikey.Active || q.filter.State == apikey.Expired {
		phase += rows.NotEnded
	}
	switch p.When {
	case rows.LateUnexpired: // few: by the index on expiry
		return phase + " AND phase < 2 AND expires_at > " + q.value(rows.Micros(q.filter.Now)) + " AND NOT ended"
	case rows.LateEnded:
		return phase + " AND phase < 2 AND expires_at > " + q.value(rows.Micros(q.filter.Now)) + " AND ended"
	case rows.LateExpired, rows.Expired:
		return phase + " AND phase < 2 AND expires_at <= " + q.value(rows.Micros(q.filter.Now))
	case rows.Unexpired:
		return phase + " AND (expires_at IS NULL OR expires_at > " + q.value(rows.Micros(q.filter.Now)) + ")"
	default:
		return phase
	}
}

// ended returns the condition of keys that are revoked because their gateway has ended, and are not stored as revoked
// yet.
func (q *keyQuery) ended() string {
	return " AND phase IN (0, 1) AND gateway_id IN (SELECT id FROM ended_gateways WHERE account_id = " + q.value(q.account) + ")"
}

// branch returns a query for the identifiers of one page of the listed keys that meet a condition
// and are among the rows of from.
func (q *keyQuery) branch(from, where string) string {
	return `(SELECT id FROM keys` + from + ` WHERE ` + q.terms() + where + ` ORDER BY id DESC LIMIT ` + q.value(q.page.Limit) + `)`
}

// terms returns the condition of the account, of the page, and of all filters except for the state
// and the texts.
func (q *keyQuery) terms() string {
	f := &q.filter
	where := "keys.account_id = " + q.value(q.account) + " AND keys.id < " + q.value(rows.Below(q.page.After))
	if f.Level != "" {
		where += " AND level = " + q.value(rows.LevelNumber(f.Level))
	}
	if f.Owner != "" {
		where += " AND owner = " + q.value(f.Owner)
	}
	if f.PlanID != "" {
		where += " AND plan_id = " + q.value(f.PlanID)
	}
	if f.GatewayID != "" {
		where += " AND gateway_id = " + q.value(f.GatewayID)
	}
	return where + rows.Counted
}
