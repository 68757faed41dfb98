package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
)

func canaryPath(gatewayID, canaryID string) string {
	return gatewayPath(gatewayID) + "/canaries/" + url.PathEscape(canaryID)
}

// Canaries lists the canaries of a gateway (targets.md, section 8), newest first.
func (c *Client) Canaries(ctx context.Context, gatewayID string, o ListOptions) iter.Seq2[Canary, error] {
	return list[Canary](ctx, c, gatewayPath(gatewayID)+"/canaries", nil, o.PageSize)
}

// Canary returns one canary, with what was counted up to some seconds ago.
func (c *Client) Canary(ctx context.Context, gatewayID, canaryID string) (*Canary, error) {
	return call[Canary](ctx, c, http.MethodGet, canaryPath(gatewayID, canaryID), nil)
}

// StartCanary starts a canary. If the gateway has one that has not ended, or a route has a split, the error is an *Error with
// status 409.
func (c *Client) StartCanary(ctx context.Context, gatewayID string, in StartCanaryRequest, options ...Option) (*StartedCanary, error) {
	return call[StartedCanary](ctx, c, http.MethodPost, gatewayPath(gatewayID)+"/canaries", in, options...)
}

// PauseCanary pauses a canary that runs, and returns it. One in another state is an *Error with status 409.
func (c *Client) PauseCanary(ctx context.Context, gatewayID, canaryID string, options ...Option) (*Canary, error) {
	return call[Canary](ctx, c, http.MethodPost, canaryPath(gatewayID, canaryID)+"/pause", nil, options...)
}

// ResumeCanary goes on with a paused canary, and returns it. One in another state is an *Error with status 409.
func (c *Client) ResumeCanary(ctx context.Context, gatewayID, canaryID string, options ...Option) (*Canary, error) {
	return call[Canary](ctx, c, http.MethodPost, canaryPath(gatewayID, canaryID)+"/resume", nil, options...)
}

// PromoteCanary gives the routes of a canary its upstream, and returns the canary. If the routes come from a repository or a
// file, it is held instead, with the lines to commit. One that has ended is an *Error with status 409.
func (c *Client) PromoteCanary(ctx context.Context, gatewayID, canaryID string, options ...Option) (*Canary, error) {
	return call[Canary](ctx, c, http.MethodPost, canaryPath(gatewayID, canaryID)+"/promote", nil, options...)
}

// AbortCanary ends a canary, so that all callers go to the upstream of its routes again, and returns it. One that has ended is an
// *Error with status 409.
func (c *Client) AbortCanary(ctx context.Context, gatewayID, canaryID string, options ...Option) (*Canary, error) {
	return call[Canary](ctx, c, http.MethodPost, canaryPath(gatewayID, canaryID)+"/abort", nil, options...)
}
