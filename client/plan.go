package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
)

// PlanFilter restricts Plans to matching plans. Zero fields match all plans.
type PlanFilter struct {
	ListOptions
	Name  string // the whole name
	Query string // part of the name or of the title
}

func planPath(planID string) string { return "/v1/plans/" + url.PathEscape(planID) }

// Plans lists the plans of the account, newest first.
func (c *Client) Plans(ctx context.Context, f PlanFilter) iter.Seq2[Plan, error] {
	return list[Plan](ctx, c, "/v1/plans", filter("name", f.Name, "q", f.Query), f.PageSize)
}

// Plan returns one plan.
func (c *Client) Plan(ctx context.Context, planID string) (*Plan, error) {
	return call[Plan](ctx, c, http.MethodGet, planPath(planID), nil)
}

// PlanWithETag returns one plan and its ETag, for IfMatch.
func (c *Client) PlanWithETag(ctx context.Context, planID string) (*Plan, string, error) {
	return doWithETag[Plan](ctx, c, &Request{Method: http.MethodGet, Path: planPath(planID)})
}

// CreatePlan creates a plan and returns it. A name that is in use is an *Error with status 409.
func (c *Client) CreatePlan(ctx context.Context, in CreatePlanRequest) (*Plan, error) {
	return call[Plan](ctx, c, http.MethodPost, "/v1/plans", in)
}

// UpdatePlan changes a plan and returns it. Its limits are then in force everywhere.
func (c *Client) UpdatePlan(ctx context.Context, planID string, p PlanPatch, options ...Option) (*Plan, error) {
	return call[Plan](ctx, c, http.MethodPatch, planPath(planID), p, options...)
}

// TryPlan returns what UpdatePlan would make of a plan, with the same errors, and changes nothing. With WithEffect, the
// Plan also has the Effect that the change would have had.
func (c *Client) TryPlan(ctx context.Context, planID string, p PlanPatch, options ...Option) (*Plan, error) {
	return call[Plan](ctx, c, http.MethodPatch, planPath(planID)+"?dry_run=true", p, options...)
}

// DeletePlan deletes a plan and returns the record as it was before. For a plan that is in use it returns an *Error with
// status 409, which says by how many keys, owners and gateways.
func (c *Client) DeletePlan(ctx context.Context, planID string, options ...Option) (*Plan, error) {
	return call[Plan](ctx, c, http.MethodDelete, planPath(planID), nil, options...)
}

// KeysOfPlan lists the keys that have the plan themselves, newest first.
func (c *Client) KeysOfPlan(ctx context.Context, planID string, o ListOptions) iter.Seq2[Key, error] {
	return list[Key](ctx, c, planPath(planID)+"/keys", nil, o.PageSize)
}

// OwnersOfPlan lists the owners that have the plan, newest first.
func (c *Client) OwnersOfPlan(ctx context.Context, planID string, o ListOptions) iter.Seq2[Owner, error] {
	return list[Owner](ctx, c, planPath(planID)+"/owners", nil, o.PageSize)
}
