package client

import (
	"context"
	"iter"
	"net/http"
)

// OwnerUsage returns what all keys of an owner together have used of its quotas, in the windows that have the present
// time.
func (c *Client) OwnerUsage(ctx context.Context, ownerID string) ([]QuotaUsage, error) {
	return c.usage(ctx, ownerPath(ownerID))
}

// KeyUsage returns what a key, and the other keys of its rotation, have used of its quotas, as OwnerUsage does.
func (c *Client) KeyUsage(ctx context.Context, keyID string) ([]QuotaUsage, error) {
	return c.usage(ctx, keyPath(keyID))
}

func (c *Client) usage(ctx context.Context, path string) ([]QuotaUsage, error) {
	r, err := call[recorded[QuotaUsage]](ctx, c, http.MethodGet, path+"/usage", nil)
	if err != nil {
		return nil, err
	}
	c.incomplete(r.IncompleteReason)
	return r.Data, nil
}

// GrantToOwner adds units to the present window of a quota of an owner. If no such quota counts it, the error is an
// *Error with status 422.
func (c *Client) GrantToOwner(ctx context.Context, ownerID string, in CreateGrantRequest) (*Grant, error) {
	return call[Grant](ctx, c, http.MethodPost, ownerPath(ownerID)+"/grants", in)
}

// GrantToKey does for a key, and the other keys of its rotation, what GrantToOwner does for an owner.
func (c *Client) GrantToKey(ctx context.Context, keyID string, in CreateGrantRequest) (*Grant, error) {
	return call[Grant](ctx, c, http.MethodPost, keyPath(keyID)+"/grants", in)
}

// OwnerGrants lists the grants to an owner, newest first.
func (c *Client) OwnerGrants(ctx context.Context, ownerID string, o ListOptions) iter.Seq2[Grant, error] {
	return list[Grant](ctx, c, ownerPath(ownerID)+"/grants", nil, o.PageSize)
}

// KeyGrants lists the grants to a key and to the other keys of its rotation, newest first.
func (c *Client) KeyGrants(ctx context.Context, keyID string, o ListOptions) iter.Seq2[Grant, error] {
	return list[Grant](ctx, c, keyPath(keyID)+"/grants", nil, o.PageSize)
}
