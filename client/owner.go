package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
)

// OwnerFilter restricts Owners to matching owners. Zero fields match all owners.
type OwnerFilter struct {
	ListOptions
	ExternalID string // the whole external ID
	State      string // active or suspended
	PlanID     string
	Query      string // part of the name or of the external ID
	Usage      bool   // the owners shall have their TightestQuota
}

func ownerPath(ownerID string) string { return "/v1/owners/" + url.PathEscape(ownerID) }

// Owners lists the owners of the account, newest first.
func (c *Client) Owners(ctx context.Context, f OwnerFilter) iter.Seq2[Owner, error] {
	query := filter("external_id", f.ExternalID, "state", f.State, "plan_id", f.PlanID, "q", f.Query)
	if f.Usage {
		query.Set("usage", "true")
	}
	return list[Owner](ctx, c, "/v1/owners", query, f.PageSize)
}

// Owner returns one owner.
func (c *Client) Owner(ctx context.Context, ownerID string) (*Owner, error) {
	return call[Owner](ctx, c, http.MethodGet, ownerPath(ownerID), nil)
}

// CreateOwner creates an owner and returns it. An external ID that is in use is an *Error with status 409.
func (c *Client) CreateOwner(ctx context.Context, in CreateOwnerRequest) (*Owner, error) {
	return call[Owner](ctx, c, http.MethodPost, "/v1/owners", in)
}

// UpdateOwner changes an owner and returns it. When it has suspended an owner, the owner's keys are refused everywhere.
func (c *Client) UpdateOwner(ctx context.Context, ownerID string, p OwnerPatch) (*Owner, error) {
	return call[Owner](ctx, c, http.MethodPatch, ownerPath(ownerID), p)
}

// DeleteOwner deletes an owner and returns the record as it was before. For an owner that has active keys it returns an
// *Error with status 409.
func (c *Client) DeleteOwner(ctx context.Context, ownerID string) (*Owner, error) {
	return call[Owner](ctx, c, http.MethodDelete, ownerPath(ownerID), nil)
}
