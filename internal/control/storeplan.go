package control

import (
	"context"

	"github.com/keygate/keygate/internal/plan"
)

// PlanFilter selects plans for a list. Fields that are zero select every plan.
type PlanFilter struct {
	Name  string // the whole name
	Query string // a part of the name or the title, ignoring the case of ASCII letters
}

// PlanReader finds plans.
type PlanReader interface {
	Plan(ctx context.Context, accountID, planID string) (*plan.Plan, error)
	PlanByName(ctx context.Context, accountID, name string) (*plan.Plan, error)
	// Plans lists plans, newest first.
	Plans(ctx context.Context, accountID string, f PlanFilter, p Page) ([]plan.Plan, error)
	// PlanUse returns who has the plan, and counts each kind up to most.
	PlanUse(ctx context.Context, accountID, planID string, most int) (PlanUse, error)
}

// PlanUse is who has a plan.
type PlanUse struct {
	Keys     int  // that are not revoked
	Owners   int  // in any state
	Gateways int  // whose default it is
	Account  bool // whether it is the account's default
}

// PlanStore finds and changes plans. A name that is in use is fault.Conflict with the field "name". The caller sets
// Version.
type PlanStore interface {
	PlanReader
	InsertPlan(ctx context.Context, p *plan.Plan) error
	// UpdatePlan writes all fields but ID, AccountID and CreatedAt.
	UpdatePlan(ctx context.Context, p *plan.Plan) error
	DeletePlan(ctx context.Context, accountID, planID string) error
}
