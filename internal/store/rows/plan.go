package rows

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/plan"
)

const planColumns = `SELECT id, account_id, name, title, limits, time_zone, anchor_day, created_at, version FROM plans `

// scanPlan returns the plan of a row.
func scanPlan(r *Row) (plan.Plan, error) {
	p, limits, err := planOf(r)
	if err == nil {
		err = decodeLimits(&p, limits)
	}
	return p, err
}

// planOf returns the plan of a row, and its limits as they are stored.
func planOf(r *Row) (p plan.Plan, limits string, err error) {
	var created int64
	err = r.Scan(&p.ID, &p.AccountID, &p.Name, &p.Title, &limits, &p.TimeZone, &p.AnchorDay, &created, &p.Version)
	p.CreatedAt = Instant(created)
	return p, limits, err
}

// limitsForm is the newest form of a plan's limits.
const limitsForm = 2

// formedLimits is the form of the limits of a plan with a limit of requests in flight. Earlier versions, which would not apply
// that limit, cannot read it. Other plans have the form that they read, too: the list alone.
type formedLimits struct {
	Form   int          `json:"form"`
	Limits []plan.Limit `json:"limits"`
}

func decodeLimits(p *plan.Plan, limits string) error {
	var err error
	if strings.HasPrefix(limits, "{") {
		formed := formedLimits{}
		if err = json.Unmarshal([]byte(limits), &formed); formed.Form > limitsForm {
			err = fmt.Errorf("they have form %d, and this version reads forms up to %d: a newer version of Keygate has written them, so upgrade this node", formed.Form, limitsForm)
		}
		p.Limits = formed.Limits
	} else {
		err = json.Unmarshal([]byte(limits), &p.Limits)
	}
	if err != nil {
		return fmt.Errorf("decode the limits of plan %s: %w", p.ID, err)
	}
	return nil
}

func encodeLimits(p *plan.Plan) ([]byte, error) {
	content := any(p.Limits)
	switch {
	case len(p.Limits) == 0:
		return []byte("[]"), nil
	case slices.ContainsFunc(p.Limits, func(l plan.Limit) bool { return l.IsConcurrency() }):
		content = formedLimits{limitsForm, p.Limits}
	}
	limits, err := json.Marshal(content)
	if err != nil {
		return nil, fmt.Errorf("encode the limits of plan %s: %w", p.ID, err)
	}
	return limits, nil
}

// SelectPlans reads the plans that the rest of the query selects.
func (t *Reader) SelectPlans(ctx context.Context, rest string, args ...any) ([]plan.Plan, error) {
	return readAll(ctx, t, "read plans", planColumns+rest, args, scanPlan)
}

// SelectPlan reads the only plan that the rest of the query selects.
func (t *Reader) SelectPlan(ctx context.Context, rest string, args ...any) (*plan.Plan, error) {
	return readOne(ctx, t, "plan", planColumns+rest, args, scanPlan)
}

// Plan implements control.PlanReader.
func (t *Reader) Plan(ctx context.Context, accountID, planID string) (*plan.Plan, error) {
	return t.SelectPlan(ctx, `WHERE id = $1 AND account_id = $2`, planID, accountID)
}

// PlanByName implements control.PlanReader.
func (t *Reader) PlanByName(ctx context.Context, accountID, name string) (*plan.Plan, error) {
	return t.SelectPlan(ctx, `WHERE account_id = $1 AND name = $2`, accountID, name)
}

// Plans implements control.PlanReader. A search reads all plans of the account at most: there are few.
func (t *Reader) Plans(ctx context.Context, accountID string, f control.PlanFilter, p control.Page) ([]plan.Plan, error) {
	query, args := byName("plans_list", accountID, f.Name, f.Query, p, "name", "title")
	return t.SelectPlans(ctx, query, args...)
}

// PlanUse implements control.PlanReader.
func (t *Reader) PlanUse(ctx context.Context, accountID, planID string, most int) (use control.PlanUse, err error) {
	err = t.Query(ctx, "find out who has a plan", `SELECT
		(SELECT count(*) FROM (SELECT 1 FROM keys INDEXED BY keys_plan WHERE account_id = $1 AND plan_id = $2 AND phase IN (0, 1)`+NotEnded+Counted+` LIMIT $3) AS of_keys),
		(SELECT count(*) FROM (SELECT 1 FROM owners INDEXED BY owners_plan WHERE account_id = $1 AND plan_id = $2 LIMIT $3) AS of_owners),
		(SELECT count(*) FROM (SELECT 1 FROM gateways INDEXED BY gateways_plan WHERE account_id = $1 AND default_plan_id = $2 LIMIT $3) AS of_gateways),
		EXISTS (SELECT 1 FROM accounts WHERE id = $1 AND default_plan_id = $2)`,
		[]any{accountID, planID, Limit(most)}, func(r *Row) error { return r.Scan(&use.Keys, &use.Owners, &use.Gateways, &use.Account) })
	return use, err
}

// planValues returns the values that InsertPlan and UpdatePlan write, in their order.
func planValues(p *plan.Plan) ([]any, error) {
	limits, err := encodeLimits(p)
	if err != nil {
		return nil, err
	}
	return []any{p.Name, p.Title, string(limits), p.TimeZone, p.AnchorDay, p.Version, p.ID, p.AccountID}, nil
}

// InsertPlan implements control.PlanStore.
func (t *Writer) InsertPlan(ctx context.Context, p *plan.Plan) error {
	values, err := planValues(p)
	if err != nil {
		return err
	}
	return t.Queue(ctx, "insert plan", `INSERT INTO plans (name, title, limits, time_zone, anchor_day, version, id, account_id, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`, append(values, Micros(p.CreatedAt))...)
}

// UpdatePlan implements control.PlanStore.
func (t *Writer) UpdatePlan(ctx context.Context, p *plan.Plan) error {
	values, err := planValues(p)
	if err != nil {
		return err
	}
	return t.QueueOne(ctx, "update plan", "plan", `UPDATE plans SET name = $1, title = $2, limits = $3, time_zone = $4, anchor_day = $5, version = $6
		WHERE id = $7 AND account_id = $8`, values...)
}

// DeletePlan implements control.PlanStore.
func (t *Writer) DeletePlan(ctx context.Context, accountID, planID string) error {
	return t.QueueOne(ctx, "delete plan", "plan", `DELETE FROM plans WHERE id = $1 AND account_id = $2`, planID, accountID)
}
