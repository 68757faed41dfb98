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

// NewKey is a new key with the full key string, which no other call returns.
type NewKey struct {
	Key
	// Secret is the full key. It is "" if the connection failed after the server
	// had created the key and the call was retried: then Message says so, and the
	// key should be revoked and created again.
	Secret        string     `json:"key,omitempty"`
	OverlapEndsAt *time.Time `json:"overlap_ends_at,omitempty"` // after a rotation: when the old key expires
	Warnings      []string   `json:"warnings"`                  // likely mistakes, such as a scope whose resource has no route
	Message       string     `json:"message,omitempty"`
}

// ImportedKey is a key that was imported.
type ImportedKey struct {
	Key
	Warnings []string `json:"warnings"` // strength_unknown, and likely mistakes as in NewKey
}

// ListOptions holds the options of all lists.
type ListOptions struct {
	// PageSize is the number of records that one call requests, 1 to 100. Zero
	// means 100. It does not limit how many records the iteration returns.
	PageSize int
}

// KeyFilter restricts Keys to matching keys. Zero fields match all keys.
type KeyFilter struct {
	ListOptions
	State     string // active, expired or revoked
	GatewayID string
	Level     string // gateway or account
	Owner     string // external ID
	PlanID    string // of the key itself
	Name      string // the whole name
	Query     string // part of the name, or start of the prefix
}

func gatewayPath(gatewayID string) string { return "/v1/gateways/" + url.PathEscape(gatewayID) }

func routePath(gatewayID, routeID string) string {
	return gatewayPath(gatewayID) + "/routes/" + url.PathEscape(routeID)
}

func keyPath(keyID string) string { return "/v1/keys/" + url.PathEscape(keyID) }

// Account returns the account of the calling key, and the key. Any account-level
// key may call it.
func (c *Client) Account(ctx context.Context) (*CallingAccount, error) {
	return call[CallingAccount](ctx, c, http.MethodGet, "/v1/account", nil)
}

// UpdateAccountDefaults changes the default plan of the account, and returns the account and the calling key.
func (c *Client) UpdateAccountDefaults(ctx context.Context, p AccountDefaultsPatch) (*CallingAccount, error) {
	return call[CallingAccount](ctx, c, http.MethodPatch, "/v1/account", p)
}

// Settings returns the settings of the installation, without secrets. For a key of
// another account than default it returns an *Error with status 403.
func (c *Client) Settings(ctx context.Context) (*Settings, error) {
	return call[Settings](ctx, c, http.MethodGet, "/v1/settings", nil)
}

// Gateways lists the gateways of the account, newest first.
func (c *Client) Gateways(ctx context.Context, o ListOptions) iter.Seq2[Gateway, error] {
	return c.SearchGateways(ctx, GatewayFilter{ListOptions: o})
}

// GatewayFilter restricts SearchGateways to matching gateways. Zero fields match all gateways.
type GatewayFilter struct {
	ListOptions
	Query string // a part of the name, the hostname or the upstream's URL
}

// SearchGateways lists the gateways of the account that match f, newest first.
func (c *Client) SearchGateways(ctx context.Context, f GatewayFilter) iter.Seq2[Gateway, error] {
	return list[Gateway](ctx, c, "/v1/gateways", filter("q", f.Query), f.PageSize)
}

// Gateway returns one gateway.
func (c *Client) Gateway(ctx context.Context, gatewayID string) (*Gateway, error) {
	return call[Gateway](ctx, c, http.MethodGet, gatewayPath(gatewayID), nil)
}

// Validation returns what the requests of the last 24 hours did otherwise than the gateway's OpenAPI document says.
func (c *Client) Validation(ctx context.Context, gatewayID string) (*Validation, error) {
	return call[Validation](ctx, c, http.MethodGet, gatewayPath(gatewayID)+"/validation", nil)
}

// GatewayWithETag returns one gateway and its ETag, for IfMatch.
func (c *Client) GatewayWithETag(ctx context.Context, gatewayID string) (*Gateway, string, error) {
	return doWithETag[Gateway](ctx, c, &Request{Method: http.MethodGet, Path: gatewayPath(gatewayID)})
}

// CreateGateway creates a gateway and returns it (contract, section 3.3). A hostname
// that is already taken is an *Error with status 409.
func (c *Client) CreateGateway(ctx context.Context, in CreateGatewayRequest) (*Gateway, error) {
	return call[Gateway](ctx, c, http.MethodPost, "/v1/gateways", in)
}

// UpdateGateway changes a gateway and returns it. A hostname that is already taken
// is an *Error with status 409.
func (c *Client) UpdateGateway(ctx context.Context, gatewayID string, p GatewayPatch) (*Gateway, error) {
	return call[Gateway](ctx, c, http.MethodPatch, gatewayPath(gatewayID), p)
}

// CreateGatewayFromConfig creates the gateway that a configuration file in YAML or JSON describes, with
// its routes, or nothing (contract, section 5). The file has a name and an upstream URL, and no
// ${env:NAME}.
func (c *Client) CreateGatewayFromConfig(ctx context.Context, content []byte) (*Gateway, error) {
	return call[Gateway](ctx, c, http.MethodPost, "/v1/gateways", fromConfig{string(content)})
}

// PreviewGatewayFromConfig returns what CreateGatewayFromConfig would create, without creating it: the
// routes, and in Gateway the settings that differ from the defaults.
func (c *Client) PreviewGatewayFromConfig(ctx context.Context, content []byte) (*Push, error) {
	return call[Push](ctx, c, http.MethodPost, "/v1/gateways?dry_run=true", fromConfig{string(content)})
}

// fromConfig is the body of a creation from a configuration file.
type fromConfig struct {
	Config string `json:"config"`
}

// DeleteGateway deletes a gateway and its routes, and revokes the keys restricted to
// it. It returns the record as it was before.
func (c *Client) DeleteGateway(ctx context.Context, gatewayID string, options ...Option) (*Gateway, error) {
	r := &Request{Method: http.MethodDelete, Path: gatewayPath(gatewayID)}
	return do[Gateway](ctx, c, r.with(options))
}

// Routes lists the routes of a gateway, newest first.
func (c *Client) Routes(ctx context.Context, gatewayID string, o ListOptions) iter.Seq2[Route, error] {
	return c.SearchRoutes(ctx, gatewayID, RouteFilter{ListOptions: o})
}

// RouteFilter restricts SearchRoutes to matching routes. Zero fields match all routes.
type RouteFilter struct {
	ListOptions
	Query  string // a part of the path
	Method string
}

// SearchRoutes lists the routes of a gateway that match f, newest first.
func (c *Client) SearchRoutes(ctx context.Context, gatewayID string, f RouteFilter) iter.Seq2[Route, error] {
	return list[Route](ctx, c, gatewayPath(gatewayID)+"/routes", filter("q", f.Query, "method", f.Method), f.PageSize)
}

// Route returns one route.
func (c *Client) Route(ctx context.Context, gatewayID, routeID string) (*Route, error) {
	return call[Route](ctx, c, http.MethodGet, routePath(gatewayID, routeID), nil)
}

// CreateRoute adds a route to a gateway and returns it (contract, section 3.3). The
// next push replaces it.
func (c *Client) CreateRoute(ctx context.Context, gatewayID string, in CreateRouteRequest) (*Route, error) {
	return call[Route](ctx, c, http.MethodPost, gatewayPath(gatewayID)+"/routes", in)
}

// UpdateRoute changes fields of a route and returns it (contract, section 3.3). The route keeps
// its identifier. The next push replaces it, as every route.
func (c *Client) UpdateRoute(ctx context.Context, gatewayID, routeID string, p RoutePatch) (*Route, error) {
	return call[Route](ctx, c, http.MethodPatch, routePath(gatewayID, routeID), p)
}

// UpdateRouteLimit changes p.RateLimit alone, which is required (contract, section 4.3).
func (c *Client) UpdateRouteLimit(ctx context.Context, gatewayID, routeID string, p RoutePatch) (*Route, error) {
	return call[Route](ctx, c, http.MethodPost, routePath(gatewayID, routeID), p)
}

// DeleteRoute deletes a route. It returns the record as it was before.
func (c *Client) DeleteRoute(ctx context.Context, gatewayID, routeID string) (*Route, error) {
	return call[Route](ctx, c, http.MethodDelete, routePath(gatewayID, routeID), nil)
}

// Spec returns the OpenAPI document that was pushed last, byte for byte. If the
// routes did not come from an OpenAPI document, it returns an *Error with status
// 404; see IsNotFound.
func (c *Client) Spec(ctx context.Context, gatewayID string) ([]byte, error) {
	return c.document(ctx, gatewayPath(gatewayID)+"/spec")
}

// PushSpec replaces the routes of a gateway with the operations of an OpenAPI 3.0,
// 3.1 or 3.2 document in YAML or JSON, at most 16 MiB (contract, section 5). With
// dryRun it only returns what would change. A document that is not valid is an
// *Error with status 422.
func (c *Client) PushSpec(ctx context.Context, gatewayID string, content []byte, dryRun bool, options ...Option) (*Push, error) {
	return c.push(ctx, gatewayPath(gatewayID)+"/spec", content, dryRun, options)
}

// Config returns a gateway and its routes as a configuration file in YAML (contract,
// section 5).
func (c *Client) Config(ctx context.Context, gatewayID string) ([]byte, error) {
	return c.document(ctx, gatewayPath(gatewayID)+"/config")
}

// PushConfig updates a gateway and replaces its routes as a configuration file says
// (contract, section 5). The file is YAML or JSON of at most 16 MiB. With dryRun it
// only returns what would change. A file that is not valid is an *Error with status
// 422.
func (c *Client) PushConfig(ctx context.Context, gatewayID string, content []byte, dryRun bool, options ...Option) (*Push, error) {
	return c.push(ctx, gatewayPath(gatewayID)+"/config", content, dryRun, options)
}

// Revisions lists the revisions of a gateway, newest first.
func (c *Client) Revisions(ctx context.Context, gatewayID string, o ListOptions) iter.Seq2[Revision, error] {
	return list[Revision](ctx, c, gatewayPath(gatewayID)+"/revisions", nil, o.PageSize)
}

// Revision returns one revision of a gateway by its number, starting at 1.
func (c *Client) Revision(ctx context.Context, gatewayID string, number int64) (*Revision, error) {
	return call[Revision](ctx, c, http.MethodGet, fmt.Sprintf("%s/revisions/%d", gatewayPath(gatewayID), number), nil)
}

// RevisionContent returns the OpenAPI document or configuration file of a revision, with *** in the place
// of secrets.
func (c *Client) RevisionContent(ctx context.Context, gatewayID string, number int64) ([]byte, error) {
	return c.document(ctx, fmt.Sprintf("%s/revisions/%d/content", gatewayPath(gatewayID), number))
}

// DiffRevisions returns what differs between two revisions of a gateway: what pushing the revision to
// would have changed while from was in force. from is 0 for the state before the first revision.
func (c *Client) DiffRevisions(ctx context.Context, gatewayID string, from, to int64) (*Push, error) {
	return call[Push](ctx, c, http.MethodGet, fmt.Sprintf("%s/revisions/%d/diff?from=%d", gatewayPath(gatewayID), to, from), nil)
}

// Rollback creates a new revision with the routes and rate limits of an old one
// (contract, section 5). With dryRun it only returns what would change. A revision that is no longer
// kept is an *Error with status 404; see IsNotFound.
func (c *Client) Rollback(ctx context.Context, gatewayID string, number int64, dryRun bool, options ...Option) (*Push, error) {
	path := fmt.Sprintf("%s/revisions/%d/rollback", gatewayPath(gatewayID), number)
	if dryRun {
		path += "?dry_run=true"
	}
	return c.change(ctx, &Request{Method: http.MethodPost, Path: path}, options)
}

// Keys lists the keys of the account, newest first, without the full keys.
func (c *Client) Keys(ctx context.Context, f KeyFilter) iter.Seq2[Key, error] {
	return list[Key](ctx, c, "/v1/keys",
		filter("state", f.State, "gateway_id", f.GatewayID, "level", f.Level, "owner", f.Owner, "plan_id", f.PlanID, "name", f.Name, "q", f.Query), f.PageSize)
}

// Key returns one key, without the full key.
func (c *Client) Key(ctx context.Context, keyID string) (*Key, error) {
	return call[Key](ctx, c, http.MethodGet, keyPath(keyID), nil)
}

// CreateKey creates a key and returns it with the full key (contract, section 3.1). A
// key with more rights than the calling key is an *Error with status 403.
func (c *Client) CreateKey(ctx context.Context, in CreateKeyRequest) (*NewKey, error) {
	return call[NewKey](ctx, c, http.MethodPost, "/v1/keys", in)
}

// ImportKeys makes keys that exist already keys of this account, all or none, and returns them in their order (contract, edge,
// section 4). A call takes 1 to 1,000 keys. To keep the keys from the server, hash them: see ImportKeyRequest.Sha256. If the
// account has one of them, or had it before, the error is an *Error with status 409, whose Errors name each of those.
func (c *Client) ImportKeys(ctx context.Context, in ImportKeysRequest) ([]ImportedKey, error) {
	made, err := call[struct{ Data []ImportedKey }](ctx, c, http.MethodPost, "/v1/keys/import", in)
	if err != nil {
		return nil, err
	}
	return made.Data, nil
}

// UpdateKey changes a key and returns it (contract, section 3.1). For a revoked or
// expired key it returns an *Error with status 409.
func (c *Client) UpdateKey(ctx context.Context, keyID string, p KeyPatch) (*Key, error) {
	return call[Key](ctx, c, http.MethodPatch, keyPath(keyID), p)
}

// RevokeKey revokes a key. When it returns, the key is refused everywhere. It is
// idempotent. It needs the scope admin, except that a key may revoke itself.
func (c *Client) RevokeKey(ctx context.Context, keyID string) (*Key, error) {
	return call[Key](ctx, c, http.MethodDelete, keyPath(keyID), nil)
}

// RotateKey creates a key that replaces an old one, and returns it with the full key
// (contract, section 3.2). The old key stays valid for in.OverlapDays days of 24
// hours, 0 to 365. For a key that is revoked, expired or already rotated it returns
// an *Error with status 409.
func (c *Client) RotateKey(ctx context.Context, keyID string, in RotateKeyRequest) (*NewKey, error) {
	return call[NewKey](ctx, c, http.MethodPost, keyPath(keyID)+"/rotate", in)
}

// VerifyKey checks whether a gateway-level key, or a token of an issuer, would be accepted (contract, section
// 3, and identity.md, section 1). A key that would be refused is not an error; see Verification.Valid. The check
// charges no rate limit and needs the scope read.
func (c *Client) VerifyKey(ctx context.Context, in VerifyKeyRequest) (*Verification, error) {
	return call[Verification](ctx, c, http.MethodPost, "/v1/keys/verify", in)
}

// document returns the body of a GET.
func (c *Client) document(ctx context.Context, path string) ([]byte, error) {
	res, err := c.Do(ctx, &Request{Method: http.MethodGet, Path: path})
	if err != nil {
		return nil, err
	}
	return res.Body, nil
}

// push puts a document, as JSON if its first character is "{", else as YAML.
func (c *Client) push(ctx context.Context, path string, content []byte, dryRun bool, options []Option) (*Push, error) {
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
	return c.change(ctx, &Request{Method: http.MethodPut, Path: path, Body: content, ContentType: contentType}, options)
}

// change sends a push or a rollback.
func (c *Client) change(ctx context.Context, r *Request, options []Option) (*Push, error) {
	p, err := do[Push](ctx, c, r.with(options))
	if err == nil && p.Effect != nil && p.Effect.IncompleteReason != nil {
		c.incomplete(*p.Effect.IncompleteReason)
	}
	return p, err
}
