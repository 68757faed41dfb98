package client

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// NewKey is a key just made, with its string, which no other call gives.
type NewKey struct {
	Key
	// Secret is the key itself. It is "" if the connection failed after the
	// server had made the key and the call was tried again: then Message says
	// so, and the key is to be revoked and another made.
	Secret        string     `json:"key,omitempty"`
	OverlapEndsAt *time.Time `json:"overlap_ends_at,omitempty"` // of a rotation: when the old key expires
	Message       string     `json:"message,omitempty"`
}

// ListOptions says how a list is read. The zero value reads all of it.
type ListOptions struct {
	// PageSize is how many records one call asks for, from 1 to 100. Zero is
	// 100.
	PageSize int
}

// KeyFilter narrows a list of keys. Empty fields do not filter.
type KeyFilter struct {
	ListOptions
	State     string // active, expired or revoked
	GatewayID string
	Level     string // gateway or account
	Owner     string
	Query     string // part of the name, or the beginning of the prefix
}

func gatewayPath(gatewayID string) string { return "/v1/gateways/" + url.PathEscape(gatewayID) }

func routePath(gatewayID, routeID string) string {
	return gatewayPath(gatewayID) + "/routes/" + url.PathEscape(routeID)
}

func keyPath(keyID string) string { return "/v1/keys/" + url.PathEscape(keyID) }

// Account returns the account that the key belongs to, and the key.
func (c *Client) Account(ctx context.Context) (*Account, error) {
	return call[Account](ctx, c, http.MethodGet, "/v1/account", nil)
}

// Settings returns the installation's settings; only keys of the account
// default may ask.
func (c *Client) Settings(ctx context.Context) (*Settings, error) {
	return call[Settings](ctx, c, http.MethodGet, "/v1/settings", nil)
}

// Gateways lists the account's gateways, newest first (contract, section 3).
func (c *Client) Gateways(ctx context.Context, o ListOptions) iter.Seq2[Gateway, error] {
	return list[Gateway](ctx, c, "/v1/gateways", nil, o.PageSize)
}

// Gateway returns one gateway.
func (c *Client) Gateway(ctx context.Context, gatewayID string) (*Gateway, error) {
	return call[Gateway](ctx, c, http.MethodGet, gatewayPath(gatewayID), nil)
}

// CreateGateway makes a gateway. A hostname that is taken is a conflict.
func (c *Client) CreateGateway(ctx context.Context, in CreateGatewayRequest) (*Gateway, error) {
	return call[Gateway](ctx, c, http.MethodPost, "/v1/gateways", in)
}

// UpdateGateway changes a gateway.
func (c *Client) UpdateGateway(ctx context.Context, gatewayID string, p GatewayPatch) (*Gateway, error) {
	return call[Gateway](ctx, c, http.MethodPatch, gatewayPath(gatewayID), p)
}

// DeleteGateway ends a gateway and its routes, and revokes the keys restricted
// to it. It returns the last state of the record.
func (c *Client) DeleteGateway(ctx context.Context, gatewayID string) (*Gateway, error) {
	return call[Gateway](ctx, c, http.MethodDelete, gatewayPath(gatewayID), nil)
}

// Routes lists the routes of a gateway, newest first.
func (c *Client) Routes(ctx context.Context, gatewayID string, o ListOptions) iter.Seq2[Route, error] {
	return list[Route](ctx, c, gatewayPath(gatewayID)+"/routes", nil, o.PageSize)
}

// Route returns one route.
func (c *Client) Route(ctx context.Context, gatewayID, routeID string) (*Route, error) {
	return call[Route](ctx, c, http.MethodGet, routePath(gatewayID, routeID), nil)
}

// CreateRoute adds a route to a gateway.
func (c *Client) CreateRoute(ctx context.Context, gatewayID string, in CreateRouteRequest) (*Route, error) {
	return call[Route](ctx, c, http.MethodPost, gatewayPath(gatewayID)+"/routes", in)
}

// UpdateRouteLimit changes the rate limit of a route.
func (c *Client) UpdateRouteLimit(ctx context.Context, gatewayID, routeID string, p RoutePatch) (*Route, error) {
	return call[Route](ctx, c, http.MethodPost, routePath(gatewayID, routeID), p)
}

// DeleteRoute removes a route. It returns the last state of the record.
func (c *Client) DeleteRoute(ctx context.Context, gatewayID, routeID string) (*Route, error) {
	return call[Route](ctx, c, http.MethodDelete, routePath(gatewayID, routeID), nil)
}

// Spec returns the OpenAPI document that was pushed last, byte for byte. If the
// routes did not come from one there is none: see IsNotFound.
func (c *Client) Spec(ctx context.Context, gatewayID string) ([]byte, error) {
	return c.document(ctx, gatewayPath(gatewayID)+"/spec")
}

// PushSpec makes the operations of an OpenAPI document the gateway's routes.
// dryRun tells what would change and changes nothing.
func (c *Client) PushSpec(ctx context.Context, gatewayID string, content []byte, dryRun bool) (*Push, error) {
	return c.push(ctx, gatewayPath(gatewayID)+"/spec", content, dryRun)
}

// Config returns the gateway and its routes as a configuration file.
func (c *Client) Config(ctx context.Context, gatewayID string) ([]byte, error) {
	return c.document(ctx, gatewayPath(gatewayID)+"/config")
}

// PushConfig applies a configuration file. dryRun tells what would change and
// changes nothing.
func (c *Client) PushConfig(ctx context.Context, gatewayID string, content []byte, dryRun bool) (*Push, error) {
	return c.push(ctx, gatewayPath(gatewayID)+"/config", content, dryRun)
}

// Revisions lists the pushes of a gateway, newest first.
func (c *Client) Revisions(ctx context.Context, gatewayID string, o ListOptions) iter.Seq2[Revision, error] {
	return list[Revision](ctx, c, gatewayPath(gatewayID)+"/revisions", nil, o.PageSize)
}

// Revision returns one push by its number.
func (c *Client) Revision(ctx context.Context, gatewayID string, number int64) (*Revision, error) {
	return call[Revision](ctx, c, http.MethodGet, fmt.Sprintf("%s/revisions/%d", gatewayPath(gatewayID), number), nil)
}

// Rollback makes a new revision with the routes of an old one.
func (c *Client) Rollback(ctx context.Context, gatewayID string, number int64) (*Push, error) {
	return call[Push](ctx, c, http.MethodPost, fmt.Sprintf("%s/revisions/%d/rollback", gatewayPath(gatewayID), number), nil)
}

// Keys lists the account's keys as metadata and prefix, newest first.
func (c *Client) Keys(ctx context.Context, f KeyFilter) iter.Seq2[Key, error] {
	return list[Key](ctx, c, "/v1/keys",
		filter("state", f.State, "gateway_id", f.GatewayID, "level", f.Level, "owner", f.Owner, "q", f.Query), f.PageSize)
}

// Key returns one key as metadata and prefix.
func (c *Client) Key(ctx context.Context, keyID string) (*Key, error) {
	return call[Key](ctx, c, http.MethodGet, keyPath(keyID), nil)
}

// CreateKey makes a key (contract, 3.1).
func (c *Client) CreateKey(ctx context.Context, in CreateKeyRequest) (*NewKey, error) {
	return call[NewKey](ctx, c, http.MethodPost, "/v1/keys", in)
}

// UpdateKey changes a key. One that is revoked or expired is a conflict.
func (c *Client) UpdateKey(ctx context.Context, keyID string, p KeyPatch) (*Key, error) {
	return call[Key](ctx, c, http.MethodPatch, keyPath(keyID), p)
}

// RevokeKey revokes a key: it is refused from the moment this returns. To
// revoke it again is no error.
func (c *Client) RevokeKey(ctx context.Context, keyID string) (*Key, error) {
	return call[Key](ctx, c, http.MethodDelete, keyPath(keyID), nil)
}

// RotateKey makes a new key in place of an old one, which stays valid for the
// overlap (contract, 3.2).
func (c *Client) RotateKey(ctx context.Context, keyID string, in RotateKeyRequest) (*NewKey, error) {
	return call[NewKey](ctx, c, http.MethodPost, keyPath(keyID)+"/rotate", in)
}

// VerifyKey tells whether a gateway-level key would be let in. It charges
// nothing.
func (c *Client) VerifyKey(ctx context.Context, in VerifyKeyRequest) (*Verification, error) {
	return call[Verification](ctx, c, http.MethodPost, "/v1/keys/verify", in)
}

func (c *Client) document(ctx context.Context, path string) ([]byte, error) {
	res, err := c.Do(ctx, &Request{Method: http.MethodGet, Path: path})
	if err != nil {
		return nil, err
	}
	return res.Body, nil
}

func (c *Client) push(ctx context.Context, path string, content []byte, dryRun bool) (*Push, error) {
	if content == nil {
		content = []byte{}
	}
	contentType := "application/yaml"
	if bytes.HasPrefix(bytes.TrimLeft(content, " \t\r\n"), []byte("{")) {
		contentType = "application/json"
	}
	if dryRun {
		path += "?dry_run=" + strconv.FormatBool(dryRun)
	}
	return do[Push](ctx, c, &Request{Method: http.MethodPut, Path: path, Body: content, ContentType: contentType})
}
