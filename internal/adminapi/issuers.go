package adminapi

import (
	"maps"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/issuer"
	"github.com/keygate/keygate/internal/jwk"
)

type issuerClaimsInput struct {
	_     struct{} `nullable:"true"`
	Scope *string  `json:"scope,omitempty" nullable:"true" minLength:"1" maxLength:"255" doc:"Claim with the scopes: a string of words, or a list. Default: scope, or else scp." example:"realm_access.roles"`
	Owner *string  `json:"owner,omitempty" nullable:"true" minLength:"1" maxLength:"255" doc:"Claim with the owner. Default: tokens have no owner." example:"org_id"`
	Plan  *string  `json:"plan,omitempty" nullable:"true" minLength:"1" maxLength:"255" doc:"Claim with the name of the plan. Default: that of the owner or of the gateway." example:"plan"`
}

// claims returns the claims; the default for nil.
func (in *issuerClaimsInput) claims() issuer.Claims {
	if in == nil {
		return issuer.Claims{}
	}
	return issuer.Claims{Scope: value(in.Scope), Owner: value(in.Owner), Plan: value(in.Plan)}
}

// jwkSet is a JWK Set, as it was given.
type jwkSet jsontext.Value

// UnmarshalJSON keeps the set as it is. Package jwk says what is wrong with it.
func (s *jwkSet) UnmarshalJSON(data []byte) error {
	*s = slices.Clone(data)
	return nil
}

// MarshalJSON returns the set as it was given.
func (s jwkSet) MarshalJSON() ([]byte, error) { return s, nil }

// Schema returns the schema of an object with a list of objects, which may have any members.
func (jwkSet) Schema(huma.Registry) *huma.Schema {
	most := jwk.MaxKeys
	return &huma.Schema{
		Type: huma.TypeObject, AdditionalProperties: anySchema(), Required: []string{"keys"},
		Properties: map[string]*huma.Schema{"keys": {Type: huma.TypeArray, MaxItems: &most, Items: &huma.Schema{Type: huma.TypeObject, AdditionalProperties: anySchema()}, Description: "Public keys (RFC 7517)."}},
	}
}

// anySchema is the schema of any value.
func anySchema() *huma.Schema { return &huma.Schema{} }

// isAny reports whether s is the schema of any value.
func isAny(s *huma.Schema) bool { return s.Type == "" && s.Ref == "" && len(s.OneOf) == 0 }

// requiredClaims are claims that a token must have.
type requiredClaims struct {
	values map[string]issuer.Values
	err    error // what is wrong with them
}

// UnmarshalJSON decodes an object.
func (in *requiredClaims) UnmarshalJSON(data []byte) error {
	var members map[string]jsontext.Value
	if err := unmarshal(data, &members); err != nil {
		return err
	}
	in.values = make(map[string]issuer.Values, len(members))
	var problems []error
	for _, claim := range slices.Sorted(maps.Keys(members)) {
		var v issuer.Values
		if err := v.UnmarshalJSON(members[claim]); err != nil {
			problems = append(problems, fault.Invalid(below("required", claim), "must be a string, a number, true or false, or a list of these"))
		}
		in.values[claim] = v
	}
	in.err = fault.Join(problems...)
	return nil
}

// Schema returns the schema of an object with any values.
func (requiredClaims) Schema(huma.Registry) *huma.Schema {
	most := issuer.MaxRequired
	return &huma.Schema{Type: huma.TypeObject, AdditionalProperties: anySchema(), MaxProperties: &most}
}

type createIssuerRequest struct {
	Name          string             `json:"name" minLength:"1" maxLength:"64" doc:"Name of the issuer, unique in the account: 1 to 64 characters of a-z, 0-9, - and _. Gateways name it." example:"login"`
	Issuer        string             `json:"issuer" minLength:"1" maxLength:"2048" doc:"The claim iss of its tokens: a URL with https, compared exactly." example:"https://login.example.com/"`
	JWKSURL       *string            `json:"jwks_url,omitempty" nullable:"true" minLength:"1" maxLength:"2048" doc:"Where its keys are fetched, a JWK Set, over https and without redirects. With neither jwks_url nor jwks, discovery at issuer says where (/.well-known/openid-configuration)." example:"https://login.example.com/keys"`
	JWKS          *jwkSet            `json:"jwks,omitempty" nullable:"true" doc:"Its public keys, a JWK Set, given by hand: then none are fetched. RSA keys must have 2048 to 4096 bits. Keys for something else, such as encryption, are passed over."`
	CA            *string            `json:"ca,omitempty" nullable:"true" minLength:"1" doc:"Certificates in PEM that replace the system's roots when its keys are fetched."`
	Audiences     []string           `json:"audiences" nullable:"false" minItems:"1" maxItems:"16" doc:"A token must be for one of them: its claim aud is one, or has one." example:"https://api.example.com"`
	Algorithms    []string           `json:"algorithms,omitempty" nullable:"true" minItems:"1" maxItems:"9" doc:"Signature algorithms of its tokens: RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, EdDSA. Default: RS256, ES256 and EdDSA." example:"RS256"`
	Leeway        *string            `json:"leeway,omitempty" nullable:"true" minLength:"2" doc:"How far the clocks of the issuer and of Keygate may differ: 0s to 5m. Default: 60s." example:"30s"`
	MaxLifetime   *string            `json:"max_lifetime,omitempty" nullable:"true" minLength:"2" doc:"How far ahead a token may expire: 1m to 9600h. Default: 24h." example:"1h"`
	Type          *string            `json:"typ,omitempty" nullable:"true" minLength:"1" maxLength:"255" doc:"The typ that the header of a token must have, without regard to case and application/. Default: any but logout+jwt, secevent+jwt and dpop+jwt." example:"at+jwt"`
	Required      *requiredClaims    `json:"required,omitempty" nullable:"true" doc:"Claims that a token must have, each with a value or a list of values, one of which suffices. Of a claim that is a list, one element must be equal."`
	Claims        *issuerClaimsInput `json:"claims,omitempty" doc:"Claims with the scopes, the owner and the plan of the bearer. A claim is a member of the token or, if there is none of that name, a path of names joined by dots."`
	ScopeMap      map[string]string  `json:"scope_map,omitempty" nullable:"true" maxProperties:"100" doc:"Scopes by words of the scope claim. A word that is not in it stays as it is, and counts if it is a scope."`
	DefaultScopes []string           `json:"default_scopes,omitempty" nullable:"true" maxItems:"16" doc:"Scopes of a token without the scope claim. Default: none, so that every request with it is a 403." example:"read:orders"`
	OwnerPrefix   *string            `json:"owner_prefix,omitempty" nullable:"true" maxLength:"64" doc:"What precedes the value of the owner's claim in the external ID of the owner. Default: the name of the issuer and a slash." example:"login/"`
	ClaimHeaders  map[string]string  `json:"claim_headers,omitempty" nullable:"true" maxProperties:"8" doc:"Claims by the headers in which the upstream gets them."`
	ForwardToken  *bool              `json:"forward_token,omitempty" nullable:"true" doc:"true leaves the token in the request for the upstream. Default: it is removed."`
}

type updateIssuerRequest struct {
	Name          *string                     `json:"name,omitempty" minLength:"1" maxLength:"64" doc:"Name of the issuer. The default of owner_prefix follows it." example:"login"`
	Issuer        *string                     `json:"issuer,omitempty" minLength:"1" maxLength:"2048" doc:"The claim iss of its tokens." example:"https://login.example.com/"`
	JWKSURL       optional[string]            `json:"jwks_url,omitempty" minLength:"1" maxLength:"2048" doc:"Where its keys are fetched; null for discovery. Keys that come from elsewhere than before are fetched at once, and the former ones count no more." example:"https://login.example.com/keys"`
	JWKS          optional[jwkSet]            `json:"jwks,omitempty" doc:"Its public keys, a JWK Set; replaced as a whole. Tokens of a key that is not in it are refused. null lets keys be fetched."`
	CA            optional[string]            `json:"ca,omitempty" minLength:"1" doc:"Certificates in PEM for fetching its keys; null for the system's roots."`
	Audiences     *[]string                   `json:"audiences,omitempty" minItems:"1" maxItems:"16" doc:"A token must be for one of them; replaced as a whole." example:"https://api.example.com"`
	Algorithms    optional[[]string]          `json:"algorithms,omitempty" minItems:"1" maxItems:"9" doc:"Signature algorithms of its tokens; replaced as a whole. null for RS256, ES256 and EdDSA." example:"RS256"`
	Leeway        optional[string]            `json:"leeway,omitempty" minLength:"2" doc:"How far the clocks of the issuer and of Keygate may differ: 0s to 5m; null for 60s." example:"30s"`
	MaxLifetime   optional[string]            `json:"max_lifetime,omitempty" minLength:"2" doc:"How far ahead a token may expire: 1m to 9600h; null for 24h." example:"1h"`
	Type          optional[string]            `json:"typ,omitempty" minLength:"1" maxLength:"255" doc:"The typ that the header of a token must have; null for any." example:"at+jwt"`
	Required      optional[requiredClaims]    `json:"required,omitempty" doc:"Claims that a token must have; replaced as a whole. null for none."`
	Claims        optional[issuerClaimsInput] `json:"claims,omitempty" doc:"Claims with the scopes, the owner and the plan of the bearer; replaced as a whole. null for the defaults."`
	ScopeMap      optional[map[string]string] `json:"scope_map,omitempty" maxProperties:"100" doc:"Scopes by words of the scope claim; replaced as a whole. null for none."`
	DefaultScopes optional[[]string]          `json:"default_scopes,omitempty" maxItems:"16" doc:"Scopes of a token without the scope claim; replaced as a whole. null for none." example:"read:orders"`
	OwnerPrefix   optional[string]            `json:"owner_prefix,omitempty" maxLength:"64" doc:"What precedes the value of the owner's claim; null for the name of the issuer and a slash." example:"login/"`
	ClaimHeaders  optional[map[string]string] `json:"claim_headers,omitempty" maxProperties:"8" doc:"Claims by the headers in which the upstream gets them; replaced as a whole. null for none."`
	ForwardToken  optional[bool]              `json:"forward_token,omitempty" doc:"Whether the token stays in the request for the upstream; null for false."`
}

type issuerKeyRecord struct {
	KID       *string   `json:"kid" doc:"Identifier of the key; null if it has none." example:"2026-01"`
	Alg       *string   `json:"alg" doc:"The only algorithm that it is for; null for every one of its type." example:"RS256"`
	Unusable  *string   `json:"unusable" doc:"Why it verifies no token; null if it does." example:"has the use \"enc\", and not sig"`
	FirstSeen time.Time `json:"first_seen" doc:"When the issuer had it first."`
}

type issuerClaimsRecord struct {
	Scope *string `json:"scope" doc:"Claim with the scopes; null for scope, or else scp." example:"realm_access.roles"`
	Owner *string `json:"owner" doc:"Claim with the owner; null if tokens have none." example:"org_id"`
	Plan  *string `json:"plan" doc:"Claim with the name of the plan; null for none." example:"plan"`
}

type issuerRecord struct {
	IssuerID      string             `json:"issuer_id" doc:"Identifier of the issuer." example:"iss_01jz8y5c3te9b8r2m6q4v7x0aa"`
	Name          string             `json:"name" doc:"Name of the issuer." example:"login"`
	Issuer        string             `json:"issuer" doc:"The claim iss of its tokens." example:"https://login.example.com/"`
	JWKSURL       *string            `json:"jwks_url" doc:"Where its keys are fetched; null for discovery, or if they are given by hand." example:"https://login.example.com/keys"`
	JWKS          *jwkSet            `json:"jwks" nullable:"true" doc:"Its public keys, a JWK Set, if they are given by hand; null if they are fetched."`
	CA            *string            `json:"ca" doc:"Certificates in PEM that replace the system's roots when its keys are fetched; null for these."`
	Audiences     []string           `json:"audiences" nullable:"false" doc:"A token must be for one of them." example:"https://api.example.com"`
	Algorithms    []string           `json:"algorithms" nullable:"false" doc:"Signature algorithms of its tokens." example:"RS256"`
	Leeway        string             `json:"leeway" doc:"How far the clocks of the issuer and of Keygate may differ." example:"60s"`
	MaxLifetime   string             `json:"max_lifetime" doc:"How far ahead a token may expire." example:"24h"`
	Type          *string            `json:"typ" doc:"The typ that the header of a token must have; null for any." example:"at+jwt"`
	Required      map[string]any     `json:"required" nullable:"false" doc:"Claims that a token must have, each with a value or a list of values."`
	Claims        issuerClaimsRecord `json:"claims" doc:"Claims with the scopes, the owner and the plan of the bearer."`
	ScopeMap      map[string]string  `json:"scope_map" nullable:"false" doc:"Scopes by words of the scope claim."`
	DefaultScopes []string           `json:"default_scopes" nullable:"true" doc:"Scopes of a token without the scope claim; null for none." example:"read:orders"`
	OwnerPrefix   string             `json:"owner_prefix" doc:"What precedes the value of the owner's claim." example:"login/"`
	ClaimHeaders  map[string]string  `json:"claim_headers" nullable:"false" doc:"Claims by the headers in which the upstream gets them."`
	ForwardToken  bool               `json:"forward_token" doc:"Whether the token stays in the request for the upstream."`
	State         string             `json:"state" enum:"ok,unreachable" doc:"unreachable if the keys could not be fetched the last time: then those that were fetched before stay. ok with keys that are given by hand."`
	LastError     *string            `json:"last_error" doc:"Why the keys could not be fetched the last time; null for nothing."`
	Keys          []issuerKeyRecord  `json:"keys" nullable:"false" doc:"Its present keys; none as long as none were fetched."`
	CreatedAt     time.Time          `json:"created_at" doc:"When the issuer was created."`
}

func presentIssuer(i *issuer.Issuer) issuerRecord {
	r := issuerRecord{
		IssuerID: i.ID, Name: i.Name, Issuer: i.URL, JWKSURL: optionalText(i.JWKSURL), CA: optionalText(i.CA), Audiences: i.Audiences, Algorithms: textsOf(i.AllAlgorithms()),
		Type: optionalText(i.Type), Required: make(map[string]any, len(i.Required)), ScopeMap: i.ScopeMap, DefaultScopes: i.DefaultScopes,
		Claims:      issuerClaimsRecord{Scope: optionalText(i.Claims.Scope), Owner: optionalText(i.Claims.Owner), Plan: optionalText(i.Claims.Plan)},
		OwnerPrefix: i.Prefix(), ClaimHeaders: i.ClaimHeaders, ForwardToken: i.ForwardToken, State: "ok", LastError: optionalText(i.LastError), Keys: make([]issuerKeyRecord, len(i.Seen)), CreatedAt: i.CreatedAt.UTC(),
		Leeway: i.LeewayText(), MaxLifetime: i.MaxLifetimeText(),
	}
	if i.JWKS != "" {
		set := jwkSet(i.JWKS)
		r.JWKS = &set
	}
	if i.Unreachable() {
		r.State = "unreachable"
	}
	for claim, values := range i.Required {
		r.Required[claim] = values
	}
	for _, m := range []*map[string]string{&r.ScopeMap, &r.ClaimHeaders} {
		if *m == nil {
			*m = map[string]string{}
		}
	}
	for n, k := range i.Seen {
		r.Keys[n] = issuerKeyRecord{KID: optionalText(k.ID), Alg: optionalText(string(k.Algorithm)), Unusable: optionalText(k.Unusable), FirstSeen: k.FirstSeen.UTC()}
	}
	return r
}

// textsOf returns a list of texts of another type.
func textsOf[T ~string](list []T) []string {
	if list == nil {
		return nil
	}
	out := make([]string, len(list))
	for n := range list {
		out[n] = string(list[n])
	}
	return out
}

func algorithmsOf(list []string) []jwk.Algorithm {
	if list == nil {
		return nil
	}
	out := make([]jwk.Algorithm, len(list))
	for n := range list {
		out[n] = jwk.Algorithm(list[n])
	}
	return out
}

func issuerResponse(i *issuer.Issuer) response { return withETag(presentIssuer(i), i.Version) }

func newIssuerResponse(i *issuer.Issuer) response {
	return issuerResponse(i).created("/v1/issuers/" + i.ID)
}

func issuerFilters() []queryParam {
	return []queryParam{
		{name: "name", doc: "Only the issuer with exactly this name.", schema: textSchema(), example: "login"},
		{name: "q", doc: "Only issuers whose name contains this text.", schema: textSchema(), example: "log"},
	}
}

func (a *API) issuerOperations() []operation {
	record := reflect.TypeFor[issuerRecord]()
	return []operation{{
		id: "listIssuers", method: http.MethodGet, path: "/v1/issuers", tag: "Issuers",
		summary: "List issuers", description: "Returns the issuers of the account, newest first.",
		query: append(pageParams(), issuerFilters()...), success: http.StatusOK, result: reflect.TypeFor[list[issuerRecord]](),
		run: a.listIssuers,
	}, {
		id: "createIssuer", method: http.MethodPost, path: "/v1/issuers", tag: "Issuers",
		summary: "Create an issuer",
		description: "Creates an issuer: who signs tokens, what they must have, and what they give their bearer. A name that is in use is a 409. " +
			"Tokens may have any scope on gateways, so the call requires the word admin for /issuers. Gateways name the issuers whose tokens they take (issuers).",
		body: reflect.TypeFor[createIssuerRequest](), replayable: true,
		success: http.StatusCreated, result: record, hasETag: true, hasLocation: true, errors: []int{http.StatusConflict},
		run: takes(a.createIssuer),
	}, {
		id: "getIssuer", method: http.MethodGet, path: "/v1/issuers/{issuer_id}", tag: "Issuers",
		summary: "Get an issuer", description: "Returns one issuer.",
		success: http.StatusOK, result: record, hasETag: true,
		run: a.getIssuer,
	}, {
		id: "updateIssuer", method: http.MethodPatch, path: "/v1/issuers/{issuer_id}", tag: "Issuers",
		summary:     "Update an issuer",
		description: "Changes the given fields; null restores the default. It requires the word admin for /issuers, as a creation does.",
		body:        reflect.TypeFor[updateIssuerRequest](), ifMatch: true,
		success: http.StatusOK, result: record, hasETag: true, errors: []int{http.StatusConflict},
		run: takes(a.updateIssuer),
	}, {
		id: "deleteIssuer", method: http.MethodDelete, path: "/v1/issuers/{issuer_id}", tag: "Issuers",
		summary: "Delete an issuer", description: "Deletes an issuer. Returns the record as it was before.",
		ifMatch: true, success: http.StatusOK, result: record, errors: []int{http.StatusConflict},
		run: a.deleteIssuer,
	}, {
		id: "refreshIssuer", method: http.MethodPost, path: "/v1/issuers/{issuer_id}/refresh", tag: "Issuers",
		summary: "Fetch the keys of an issuer",
		description: "Fetches the keys of an issuer now, which takes 10 seconds at most, and returns the issuer when they are in force on every node. If the fetch failed, last_error says why, and the keys stay as they were. " +
			"Keys that are given by hand are a 409.",
		success: http.StatusOK, result: record, hasETag: true, errors: []int{http.StatusConflict},
		run: a.refreshIssuer,
	}}
}

func (a *API) listIssuers(c *call) (response, error) {
	filter := control.IssuerFilter{Name: c.query.Get("name"), Query: c.query.Get("q")}
	return page(c, "issuers", c.cursorBinding(issuerFilters()), func(p control.Page) ([]issuer.Issuer, error) {
		return a.cfg.Control.Issuers(c.ctx, &c.actor, filter, p)
	}, func(i *issuer.Issuer) (string, issuerRecord) { return i.ID, presentIssuer(i) })
}

func (a *API) createIssuer(c *call, req createIssuerRequest) (response, error) {
	s := issuer.Settings{
		URL: req.Issuer, JWKSURL: value(req.JWKSURL), JWKS: string(value(req.JWKS)), CA: value(req.CA), Audiences: req.Audiences, Algorithms: algorithmsOf(req.Algorithms), Leeway: value(req.Leeway), MaxLifetime: value(req.MaxLifetime),
		Type: value(req.Type), Required: c.requiredOf(req.Required), Claims: req.Claims.claims(), ScopeMap: req.ScopeMap, DefaultScopes: req.DefaultScopes,
		OwnerPrefix: req.OwnerPrefix, ClaimHeaders: req.ClaimHeaders, ForwardToken: value(req.ForwardToken),
	}
	return respond(newIssuerResponse)(a.cfg.Control.CreateIssuer(withIdempotency(c, newIssuerResponse), &c.actor, req.Name, &s))
}

// requiredOf returns the required claims of a request, and refuses the call if they are invalid.
func (c *call) requiredOf(in *requiredClaims) map[string]issuer.Values {
	if in == nil {
		return nil
	}
	c.refuse(in.err)
	return in.values
}

func (a *API) getIssuer(c *call) (response, error) {
	return respond(issuerResponse)(a.cfg.Control.Issuer(c.ctx, &c.actor, c.params["issuer_id"]))
}

// set sets a field to the value of the request if it has one; null, which has the zero value, restores the default.
func set[T any](to *T, o optional[T]) {
	if o.Present {
		*to = o.Value
	}
}

// setGiven sets a field that cannot be null.
func setGiven[T any](to, given *T) {
	if given != nil {
		*to = *given
	}
}

func (a *API) updateIssuer(c *call, req updateIssuerRequest) (response, error) {
	required := c.requiredOf(&req.Required.Value)
	return respond(issuerResponse)(a.cfg.Control.UpdateIssuer(c.ctx, &c.actor, c.params["issuer_id"], func(i *issuer.Issuer) {
		setGiven(&i.Name, req.Name)
		setGiven(&i.URL, req.Issuer)
		setGiven(&i.Audiences, req.Audiences)
		set(&i.JWKSURL, req.JWKSURL)
		if req.JWKS.Present {
			i.JWKS = string(req.JWKS.Value)
		}
		set(&i.CA, req.CA)
		if req.Algorithms.Present {
			i.Algorithms = algorithmsOf(req.Algorithms.Value)
		}
		set(&i.Leeway, req.Leeway)
		set(&i.MaxLifetime, req.MaxLifetime)
		set(&i.Type, req.Type)
		if req.Required.Present {
			i.Required = required
		}
		if req.Claims.Present {
			i.Claims = req.Claims.Value.claims()
		}
		set(&i.ScopeMap, req.ScopeMap)
		set(&i.DefaultScopes, req.DefaultScopes)
		if p := req.OwnerPrefix; p.Present {
			if i.OwnerPrefix = &p.Value; p.Null {
				i.OwnerPrefix = nil
			}
		}
		set(&i.ClaimHeaders, req.ClaimHeaders)
		set(&i.ForwardToken, req.ForwardToken)
	}, c.match))
}

func (a *API) deleteIssuer(c *call) (response, error) {
	return show(presentIssuer)(a.cfg.Control.DeleteIssuer(c.ctx, &c.actor, c.params["issuer_id"], c.match))
}

func (a *API) refreshIssuer(c *call) (response, error) {
	return respond(issuerResponse)(a.cfg.Control.RefreshIssuer(c.ctx, &c.actor, c.params["issuer_id"]))
}
