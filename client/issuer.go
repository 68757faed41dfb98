package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// Issuer is who signs tokens, what they must have, and what they give their bearer (contract of identity, section 2).
type Issuer struct {
	IssuerID      string            `json:"issuer_id"`
	Name          string            `json:"name"`
	Issuer        string            `json:"issuer"`   // the claim iss of its tokens, compared exactly
	JWKSURL       *string           `json:"jwks_url"` // where its keys are fetched; nil for discovery
	JWKS          json.RawMessage   `json:"jwks"`     // its public keys, a JWK Set, if they are given by hand; else null
	CA            *string           `json:"ca"`       // certificates in PEM for fetching its keys; nil for the system's roots
	Audiences     []string          `json:"audiences"`
	Algorithms    []string          `json:"algorithms"`
	Leeway        string            `json:"leeway"`       // a Go duration
	MaxLifetime   string            `json:"max_lifetime"` // a Go duration
	Type          *string           `json:"typ"`          // of the header of a token; nil for any
	Required      map[string]any    `json:"required"`     // claims, each with a value or a list of values
	Claims        IssuerClaims      `json:"claims"`
	ScopeMap      map[string]string `json:"scope_map"`
	DefaultScopes *[]string         `json:"default_scopes"` // nil for none
	OwnerPrefix   string            `json:"owner_prefix"`
	ClaimHeaders  map[string]string `json:"claim_headers"` // claims by headers
	ForwardToken  bool              `json:"forward_token"`
	State         string            `json:"state"`      // ok or unreachable
	LastError     *string           `json:"last_error"` // why its keys could not be fetched the last time
	Keys          []IssuerKey       `json:"keys"`
	CreatedAt     time.Time         `json:"created_at"`
}

// IssuerClaims are the claims with what a token gives its bearer. nil is the default: scope, or else scp, for the scopes, and
// none for the others.
type IssuerClaims struct {
	Scope *string `json:"scope"`
	Owner *string `json:"owner"`
	Plan  *string `json:"plan"`
}

// CreateIssuerRequest is the body of CreateIssuer. What is left out has its default.
type CreateIssuerRequest struct {
	Name          string            `json:"name"`
	Issuer        string            `json:"issuer"`
	JWKSURL       string            `json:"jwks_url,omitempty"` // with neither jwks_url nor jwks: discovery
	JWKS          json.RawMessage   `json:"jwks,omitempty"`     // given by hand
	CA            string            `json:"ca,omitempty"`       // PEM
	Audiences     []string          `json:"audiences"`          // 1 to 16
	Algorithms    []string          `json:"algorithms,omitempty"`
	Leeway        string            `json:"leeway,omitempty"`       // 0s to 5m; default 60s
	MaxLifetime   string            `json:"max_lifetime,omitempty"` // 1m to 9600h; default 24h
	Type          string            `json:"typ,omitempty"`
	Required      map[string]any    `json:"required,omitempty"`
	Claims        *IssuerClaims     `json:"claims,omitempty"`
	ScopeMap      map[string]string `json:"scope_map,omitempty"`
	DefaultScopes []string          `json:"default_scopes,omitempty"`
	OwnerPrefix   *string           `json:"owner_prefix,omitempty"` // nil: the name and a slash
	ClaimHeaders  map[string]string `json:"claim_headers,omitempty"`
	ForwardToken  bool              `json:"forward_token,omitempty"`
}

// IssuerPatch is the body of UpdateIssuer. Fields without a Change are unchanged; lists and maps are replaced as a whole.
type IssuerPatch struct {
	Name          Change[string]            `json:"name,omitzero"`           // cannot be cleared
	Issuer        Change[string]            `json:"issuer,omitzero"`         // cannot be cleared
	JWKSURL       Change[string]            `json:"jwks_url,omitzero"`       // cleared: discovery
	JWKS          Change[json.RawMessage]   `json:"jwks,omitzero"`           // cleared: they are fetched
	CA            Change[string]            `json:"ca,omitzero"`             // cleared: the system's roots
	Audiences     Change[[]string]          `json:"audiences,omitzero"`      // 1 to 16; cannot be cleared
	Algorithms    Change[[]string]          `json:"algorithms,omitzero"`     // cleared: RS256, ES256 and EdDSA
	Leeway        Change[string]            `json:"leeway,omitzero"`         // cleared: 60s
	MaxLifetime   Change[string]            `json:"max_lifetime,omitzero"`   // cleared: 24h
	Type          Change[string]            `json:"typ,omitzero"`            // cleared: any
	Required      Change[map[string]any]    `json:"required,omitzero"`       // cleared: none
	Claims        Change[IssuerClaims]      `json:"claims,omitzero"`         // cleared: the defaults
	ScopeMap      Change[map[string]string] `json:"scope_map,omitzero"`      // cleared: none
	DefaultScopes Change[[]string]          `json:"default_scopes,omitzero"` // cleared: none
	OwnerPrefix   Change[string]            `json:"owner_prefix,omitzero"`   // cleared: the name and a slash
	ClaimHeaders  Change[map[string]string] `json:"claim_headers,omitzero"`  // cleared: none
	ForwardToken  Change[bool]              `json:"forward_token,omitzero"`  // cleared: false
}

// IssuerFilter restricts Issuers to matching issuers. Zero fields match all issuers.
type IssuerFilter struct {
	Name  string // the whole name
	Query string // part of the name
	ListOptions
}

func issuerPath(issuerID string) string { return "/v1/issuers/" + url.PathEscape(issuerID) }

// Issuers lists the issuers of the account, newest first.
func (c *Client) Issuers(ctx context.Context, f IssuerFilter) iter.Seq2[Issuer, error] {
	return list[Issuer](ctx, c, "/v1/issuers", filter("name", f.Name, "q", f.Query), f.PageSize)
}

// Issuer returns one issuer.
func (c *Client) Issuer(ctx context.Context, issuerID string) (*Issuer, error) {
	return call[Issuer](ctx, c, http.MethodGet, issuerPath(issuerID), nil)
}

// IssuerWithETag returns one issuer and its ETag, for IfMatch.
func (c *Client) IssuerWithETag(ctx context.Context, issuerID string) (*Issuer, string, error) {
	return doWithETag[Issuer](ctx, c, &Request{Method: http.MethodGet, Path: issuerPath(issuerID)})
}

// CreateIssuer creates an issuer and returns it. A name that is in use is an *Error with status 409. The calling key must
// have the scope word admin for /issuers, since tokens may have any scope; otherwise it is an *Error with status 403.
func (c *Client) CreateIssuer(ctx context.Context, in CreateIssuerRequest) (*Issuer, error) {
	return call[Issuer](ctx, c, http.MethodPost, "/v1/issuers", in)
}

// UpdateIssuer changes an issuer and returns it. Its errors are those of CreateIssuer.
func (c *Client) UpdateIssuer(ctx context.Context, issuerID string, p IssuerPatch, options ...Option) (*Issuer, error) {
	return call[Issuer](ctx, c, http.MethodPatch, issuerPath(issuerID), p, options...)
}

// DeleteIssuer deletes an issuer and returns the record as it was before.
func (c *Client) DeleteIssuer(ctx context.Context, issuerID string, options ...Option) (*Issuer, error) {
	return call[Issuer](ctx, c, http.MethodDelete, issuerPath(issuerID), nil, options...)
}

// RefreshIssuer fetches the keys of an issuer and returns it when that has ended: after some 10 seconds at most. If it failed,
// LastError says why. Keys that are given by hand are an *Error with status 409.
func (c *Client) RefreshIssuer(ctx context.Context, issuerID string) (*Issuer, error) {
	return call[Issuer](ctx, c, http.MethodPost, issuerPath(issuerID)+"/refresh", nil)
}

// DenialFilter restricts Denials to matching denials. Zero fields match all denials.
type DenialFilter struct {
	Subject string
	JTI     string
	ListOptions
}

func denialsPath(issuerID string) string { return issuerPath(issuerID) + "/denials" }

func denialPath(issuerID, denialID string) string {
	return denialsPath(issuerID) + "/" + url.PathEscape(denialID)
}

// Denials lists the denials of an issuer that have not ended, newest first.
func (c *Client) Denials(ctx context.Context, issuerID string, f DenialFilter) iter.Seq2[Denial, error] {
	return list[Denial](ctx, c, denialsPath(issuerID), filter("subject", f.Subject, "jti", f.JTI), f.PageSize)
}

// Denial returns one denial that has not ended.
func (c *Client) Denial(ctx context.Context, issuerID, denialID string) (*Denial, error) {
	return call[Denial](ctx, c, http.MethodGet, denialPath(issuerID, denialID), nil)
}

// CreateDenial makes tokens of an issuer be refused. When it returns, every node refuses them. More than an issuer may have are
// an *Error with status 409.
func (c *Client) CreateDenial(ctx context.Context, issuerID string, in CreateDenialRequest, options ...Option) (*Denial, error) {
	return call[Denial](ctx, c, http.MethodPost, denialsPath(issuerID), in, options...)
}

// DeleteDenial lifts a denial, so that the tokens are valid again until they expire, and returns the record as it was.
func (c *Client) DeleteDenial(ctx context.Context, issuerID, denialID string) (*Denial, error) {
	return call[Denial](ctx, c, http.MethodDelete, denialPath(issuerID, denialID), nil)
}
