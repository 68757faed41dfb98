package control

import (
	"context"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/plan"
)

// PlanChoice is how a request names a plan: by its identifier or by its name, but not by both. null means no plan. The
// zero value is absent.
type PlanChoice struct {
	ID, Name Optional[string]
}

// ChoosePlan returns the choice of a request that creates a record, where "" is an absent field.
func ChoosePlan(planID, name string) PlanChoice {
	return PlanChoice{ID: Optional[string]{Present: planID != "", Value: planID}, Name: Optional[string]{Present: name != "", Value: name}}
}

// given reports whether the request names a plan, or none with null.
func (c *PlanChoice) given() bool { return c.ID.Present || c.Name.Present }

// field returns the field of the request that names the plan. prefix is that of both fields.
func (c *PlanChoice) field(prefix string) string {
	if c.Name.Present && !c.ID.Present {
		return prefix + "plan"
	}
	return prefix + "plan_id"
}

// find returns the plan that is chosen, or nil for none. A plan that the account does not have is a validation error.
func (c *PlanChoice) find(ctx context.Context, tx PlanReader, actor *Actor, prefix string) (*plan.Plan, error) {
	field := c.field(prefix)
	if c.ID.Present && c.Name.Present {
		byID := PlanChoice{ID: c.ID}
		return nil, fault.Join(byID.check(ctx, tx, actor, prefix), fault.Invalid(prefix+"plan", "must not be given together with %splan_id: give one of them", prefix))
	}
	switch {
	case c.ID.Present && !c.ID.Null:
		p, err := tx.Plan(ctx, actor.Account.ID, c.ID.Value)
		return p, absent(err, field, "there is no such plan: see GET /v1/plans for all plans, or create it first")
	case c.Name.Present && !c.Name.Null:
		return planNamed(ctx, tx, actor.Account.ID, c.Name.Value, field)
	}
	return nil, nil
}

// check returns the error of find.
func (c *PlanChoice) check(ctx context.Context, tx PlanReader, actor *Actor, prefix string) error {
	_, err := c.find(ctx, tx, actor, prefix)
	return err
}

// planNamed returns the account's plan with the name. If there is none, the error is a validation error of the field.
func planNamed(ctx context.Context, tx PlanReader, accountID, name, field string) (*plan.Plan, error) {
	p, err := tx.PlanByName(ctx, accountID, name)
	if fault.CodeOf(err) == fault.NotFound {
		return nil, fault.Invalid(field, "there is no plan with the name %.64q: see GET /v1/plans for all plans, or create it first", name)
	}
	return p, err
}

// checkLevel checks that a key of the level may have the plan that find returned.
func (c *PlanChoice) checkLevel(p *plan.Plan, level apikey.Level) error {
	if p == nil || level != apikey.AccountLevel {
		return nil
	}
	return fault.Invalid(c.field(""), "must be absent for an account-level key: omit it, or use the level gateway")
}

// put sets the plan of a record to the plan that find returned, unless the request names none.
func (c *PlanChoice) put(p *plan.Plan, planID, name *string) {
	switch {
	case !c.given():
	case p == nil:
		*planID, *name = "", ""
	default:
		*planID, *name = p.ID, p.Name
	}
}

// planNames finds the names of an account's plans for the records that an operation shows, each once.
type planNames struct {
	tx        PlanReader
	accountID string
	known     map[string]string
}

func namesOfPlans(tx PlanReader, actor *Actor) *planNames {
	return &planNames{tx: tx, accountID: actor.Account.ID, known: map[string]string{"": ""}}
}

// put sets name to the name of the plan. A key that has ended may have a plan that was deleted since: it has no name.
func (n *planNames) put(ctx context.Context, planID string, name *string) error {
	known, found := n.known[planID]
	if !found {
		switch p, err := n.tx.Plan(ctx, n.accountID, planID); {
		case err == nil:
			known = p.Name
		case fault.CodeOf(err) != fault.NotFound:
			return err
		}
		n.known[planID] = known
	}
	*name = known
	return nil
}
