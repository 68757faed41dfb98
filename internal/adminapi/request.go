package adminapi

import (
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/ratelimit"
)

// The request bodies. Their tags define the schemas of the OpenAPI document,
// against which decode checks a body. When a record is created, null means the
// same as an absent optional field; in a PATCH, null clears the field.

type createRouteRequest struct {
	Path        string            `json:"path" minLength:"1" maxLength:"2048" doc:"OpenAPI path template, or a path ending in /* that matches everything below it." example:"/orders/{id}"`
	Methods     []string          `json:"methods" nullable:"false" minItems:"1" maxItems:"32" doc:"HTTP methods, in upper case." example:"GET,DELETE"`
	RateLimit   *rateLimitInput   `json:"rate_limit,omitempty" doc:"Rate limit of the route."`
	Concurrency *concurrencyInput `json:"concurrency,omitempty" doc:"Bound of the requests of the route that are in flight."`
	Cost        *costListInput    `json:"cost,omitempty" nullable:"true" doc:"What a request costs, for each meter that limits of plans count. Default: 1 of the meter requests."`
	Upstream    *string           `json:"upstream,omitempty" nullable:"true" minLength:"1" maxLength:"64" doc:"Name of the upstream that gets the requests. Default: default." example:"next"`
	Split       []SplitInput      `json:"split,omitempty" nullable:"true" maxItems:"16" doc:"Which requests go to another upstream: the first entry whose when holds decides, else the one with a weight. null or absent means the split of the gateway, [] none."`
	HandlingInput
	Auth *string `json:"auth,omitempty" nullable:"true" enum:"key,token,any,none" doc:"key requires an API key, token a token of one of the gateway's issuers, any either of them; none makes the route public. If absent, the route requires what default_auth of the gateway says."`
}

type rateLimitInput struct {
	_         struct{} `nullable:"true"`
	Sustained *string  `json:"sustained,omitempty" nullable:"true" minLength:"1" doc:"Refill rate, <count>/<unit>." example:"600/min"`
	Burst     *string  `json:"burst,omitempty" nullable:"true" minLength:"1" doc:"Bucket capacity, <count>/<unit>." example:"50/s"`
	Daily     *string  `json:"daily,omitempty" nullable:"true" minLength:"1" doc:"Maximum number of requests in a UTC day, <count>/day." example:"100000/day"`
	Per       *string  `json:"per,omitempty" nullable:"true" enum:"key,address" doc:"key gives each key its own bucket, address each client address (IPv6: each /64), without daily. If absent, all callers share one."`
}

type concurrencyInput struct {
	_   struct{} `nullable:"true"`
	Max int64    `json:"max" minimum:"1" maximum:"1000000" doc:"How many requests may be in flight at once, streams and upgrades included." example:"5"`
	Per *string  `json:"per,omitempty" nullable:"true" enum:"key" doc:"key allows each key as many. If absent, all callers share them."`
}

// concurrency returns the bound of a request; the zero value for nil.
func (c *concurrencyInput) concurrency() ratelimit.Concurrency {
	if c == nil {
		return ratelimit.Concurrency{}
	}
	return ratelimit.Concurrency{Max: c.Max, Per: value(c.Per)}
}

func (l *rateLimitInput) config() (ratelimit.Config, error) {
	return ratelimit.ParseConfig(value(l.Sustained), value(l.Burst), value(l.Daily), value(l.Per))
}

type updateRouteRequest struct {
	RateLimit optional[rateLimitPatch] `json:"rate_limit" doc:"Changes to the route's rate limit; null removes the limit."`
}

type patchRouteRequest struct {
	Path        *string                    `json:"path,omitempty" minLength:"1" maxLength:"2048" doc:"OpenAPI path template, or a path ending in /* that matches everything below it." example:"/orders/{id}"`
	Methods     *[]string                  `json:"methods,omitempty" minItems:"1" maxItems:"32" doc:"HTTP methods, in upper case; replaced as a whole." example:"GET,DELETE"`
	Auth        optional[string]           `json:"auth,omitempty" enum:"key,token,any,none" doc:"key requires an API key, token a token of one of the gateway's issuers, any either of them; none makes the route public; null means what default_auth of the gateway says."`
	Concurrency optional[concurrencyInput] `json:"concurrency,omitempty" doc:"Bound of the requests of the route that are in flight; replaced as a whole. null removes it."`
	Cost        optional[costListInput]    `json:"cost,omitempty" doc:"What a request costs, for each meter that limits of plans count; replaced as a whole. null removes it: then a request costs 1 of the meter requests."`
	Upstream    optional[string]           `json:"upstream,omitempty" minLength:"1" maxLength:"64" doc:"Name of the upstream that gets the requests; null for default." example:"next"`
	Split       optional[[]SplitInput]     `json:"split,omitempty" maxItems:"16" doc:"Which requests go to another upstream: the first entry whose when holds decides, else the one with a weight. Replaces the whole list; null means the split of the gateway, [] none."`
	HandlingPatch
	RateLimit optional[rateLimitPatch] `json:"rate_limit,omitempty" doc:"Changes to the route's rate limit; null removes the limit."`
}

type rateLimitPatch struct {
	_         struct{}         `nullable:"true"`
	Sustained optional[string] `json:"sustained,omitempty" minLength:"1" doc:"Refill rate, <count>/<unit>. null removes it; if absent, it is unchanged." example:"600/min"`
	Burst     optional[string] `json:"burst,omitempty" minLength:"1" doc:"Bucket capacity, <count>/<unit>. null removes it; if absent, it is unchanged." example:"50/s"`
	Daily     optional[string] `json:"daily,omitempty" minLength:"1" doc:"Maximum number of requests in a UTC day, <count>/day. null removes it; if absent, it is unchanged." example:"100000/day"`
	Per       optional[string] `json:"per,omitempty" enum:"key,address" doc:"\"key\" gives each key its own bucket, \"address\" each client address (IPv6: each /64), without daily; null makes all callers share one; if absent, it is unchanged."`
}

func (p *rateLimitPatch) control() control.RateLimitPatch {
	return control.RateLimitPatch{
		Sustained: p.Sustained.Optional, Burst: p.Burst.Optional, Daily: p.Daily.Optional, Per: p.Per.Optional,
	}
}

// CreateKeyRequest is exported because importKeyRequest embeds it.
type CreateKeyRequest struct {
	Name        string            `json:"name" minLength:"1" maxLength:"255" doc:"Display name." example:"mobile app"`
	Scope       string            `json:"scope" minLength:"1" maxLength:"4200" doc:"1 to 16 scopes separated by single spaces, any of which suffices: read, write or admin, optionally limited to a resource, as in read:orders, which allows /orders and every path below it. The resource has no wildcards, commas or query." example:"read:orders write:customers"`
	ExpiresAt   *string           `json:"expires_at,omitempty" nullable:"true" minLength:"1" doc:"When the key expires: an RFC 3339 time, or a date. With a date, the key is valid through the end of that day in UTC." example:"2030-01-31"`
	GatewayID   *string           `json:"gateway_id,omitempty" nullable:"true" minLength:"1" doc:"Gateway that the key is restricted to. If absent, the key works on every gateway of the account." example:"gw_01jz8y5c3te9b8r2m6q4v7x0aa"`
	RateLimit   *keyLimitInput    `json:"rate_limit,omitempty" doc:"Rate limit of the key: a rate, or an object with sustained, burst and daily."`
	Concurrency *int64            `json:"concurrency,omitempty" nullable:"true" minimum:"1" maximum:"1000000" doc:"How many requests with the key may be in flight at once, those with the other keys of its rotations included." example:"5"`
	Level       *string           `json:"level,omitempty" nullable:"true" enum:"gateway,account" doc:"gateway (the default) for calls through gateways; account for this API. An account-level key takes none of gateway_id, rate_limit and concurrency."`
	Owner       *string           `json:"owner,omitempty" nullable:"true" minLength:"1" maxLength:"255" doc:"External ID of the owner of the key, in printable ASCII. An owner that does not exist is created, with the default plan of the account." example:"customer-42"`
	PlanID      *string           `json:"plan_id,omitempty" nullable:"true" minLength:"1" doc:"Plan of the key itself. Of it, the limits per key apply; those per owner come from the plan of the owner. An account-level key takes none." example:"plan_01jz8y5c3te9b8r2m6q4v7x0bb"`
	Plan        *string           `json:"plan,omitempty" nullable:"true" minLength:"1" doc:"Name of the plan of the key, in place of plan_id." example:"free"`
	Metadata    map[string]string `json:"metadata,omitempty" nullable:"true" maxProperties:"16" doc:"Key-value pairs of your own. Keygate does not interpret them."`
	AllowIPs    []string          `json:"allow_ips,omitempty" nullable:"true" maxItems:"256" doc:"Networks whose addresses may use the key, in CIDR notation; all others may not. The longest prefix in allow_ips and deny_ips that contains the client's address decides, and deny_ips among equal ones. An account-level key takes none." example:"203.0.113.0/24"`
	DenyIPs     []string          `json:"deny_ips,omitempty" nullable:"true" maxItems:"256" doc:"Networks whose addresses may not use the key, in CIDR notation." example:"198.51.100.0/24"`
}

type importKeysRequest struct {
	Keys []importKeyRequest `json:"keys" nullable:"false" minItems:"1" maxItems:"1000" doc:"The keys. All of them are imported, or none."`
}

type importKeyRequest struct {
	CreateKeyRequest
	SHA256     *string `json:"sha256,omitempty" nullable:"true" minLength:"1" maxLength:"255" doc:"SHA-256 of the key, as 64 hexadecimal digits or as base64, in place of key. The response then has the warning strength_unknown." example:"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"`
	Key        *string `json:"key,omitempty" nullable:"true" minLength:"1" maxLength:"512" doc:"The key in clear, in place of sha256: 22 to 512 printable ASCII characters without spaces, which do not have the form of Keygate's own keys. Keygate keeps its hash alone." example:"sk_live_exampleexampleexample"`
	KeyPrefix  *string `json:"key_prefix,omitempty" nullable:"true" minLength:"1" maxLength:"16" doc:"Start of the key, for recognizing it. Everyone who may read keys sees it. Default: the first 6 characters of key; none for sha256." example:"sk_live_"`
	LastUsedAt *string `json:"last_used_at,omitempty" nullable:"true" minLength:"1" doc:"When the key was last used, an RFC 3339 time." example:"2026-07-31T12:00:00Z"`
}

type updateKeyRequest struct {
	Name        *string                     `json:"name,omitempty" minLength:"1" maxLength:"255" doc:"Display name." example:"mobile app"`
	Owner       optional[string]            `json:"owner,omitempty" minLength:"1" maxLength:"255" doc:"External ID of the owner of the key; null for none. An owner that does not exist is created, with the default plan of the account. What the key used stays with its former owner." example:"customer-42"`
	PlanID      optional[string]            `json:"plan_id,omitempty" minLength:"1" doc:"Plan of the key itself; null for none." example:"plan_01jz8y5c3te9b8r2m6q4v7x0bb"`
	Plan        optional[string]            `json:"plan,omitempty" minLength:"1" doc:"Name of the plan of the key, in place of plan_id; null for none." example:"free"`
	RateLimit   optional[keyLimitInput]     `json:"rate_limit,omitempty" doc:"Rate limit of the key: a rate, or an object with sustained, burst and daily, which replaces the whole limit; null for no limit."`
	Concurrency optional[int64]             `json:"concurrency,omitempty" minimum:"1" maximum:"1000000" doc:"How many requests with the key may be in flight at once, those with the other keys of its rotations included; null for any number." example:"5"`
	Metadata    optional[map[string]string] `json:"metadata,omitempty" maxProperties:"16" doc:"Key-value pairs of your own. Replaces all of them; null removes them."`
	ExpiresAt   optional[string]            `json:"expires_at,omitempty" minLength:"1" doc:"When the key expires, in the same form as when creating a key; null for never." example:"2030-01-31"`
	AllowIPs    optional[[]string]          `json:"allow_ips,omitempty" maxItems:"256" doc:"Networks whose addresses may use the key, in CIDR notation; all others may not. Replaces the whole list; null or [] means all addresses." example:"203.0.113.0/24"`
	DenyIPs     optional[[]string]          `json:"deny_ips,omitempty" maxItems:"256" doc:"Networks whose addresses may not use the key, in CIDR notation. Replaces the whole list; null or [] means none." example:"198.51.100.0/24"`
}

type rotateKeyRequest struct {
	OverlapDays int     `json:"overlap_days" minimum:"0" maximum:"365" doc:"How long the old key stays valid, in days of 24 hours; 0 expires it immediately." example:"7"`
	ExpiresAt   *string `json:"expires_at,omitempty" nullable:"true" minLength:"1" doc:"When the new key expires. Default: the old key's original expiry." example:"2030-01-31"`
}

type verifyKeyRequest struct {
	Key       *string `json:"key,omitempty" nullable:"true" minLength:"1" maxLength:"512" doc:"The key to verify. Give either key or token." example:"kg_4tQx9ZexampleexampleexampleexAmple"`
	Token     *string `json:"token,omitempty" nullable:"true" minLength:"1" maxLength:"16384" doc:"The token to verify, of an issuer that the gateway names; without gateway_id, of any issuer of the account. It is checked with the keys of the issuer that are stored." example:"eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJhZGEifQ.c2lnbmF0dXJl"`
	GatewayID *string `json:"gateway_id,omitempty" nullable:"true" minLength:"1" doc:"Gateway that the request would be sent to." example:"gw_01jz8y5c3te9b8r2m6q4v7x0aa"`
	Method    *string `json:"method,omitempty" nullable:"true" minLength:"1" maxLength:"32" doc:"HTTP method of the request." example:"GET"`
	Path      *string `json:"path,omitempty" nullable:"true" minLength:"1" maxLength:"16384" doc:"Path of the request." example:"/orders/17"`
}

type createSessionRequest struct {
	Key string `json:"key" minLength:"1" maxLength:"255" doc:"An account-level key." example:"kga_4tQx9ZexampleexampleexampleexAmple"`
}

// value returns *p, or the zero value if p is nil.
func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// optional is a field of a body that is absent, null, or has a value.
type optional[T any] struct {
	control.Optional[T]
}

// UnmarshalJSON decodes a field that is present.
func (o *optional[T]) UnmarshalJSON(data []byte) error {
	o.Present = true
	if string(data) == "null" {
		o.Null = true
		return nil
	}
	return unmarshal(data, &o.Value)
}

// Schema returns the schema of T, or null.
func (optional[T]) Schema(r huma.Registry) *huma.Schema {
	s := r.Schema(reflect.TypeFor[T](), true, "")
	if s.Ref == "" {
		s.Nullable = true
	}
	return s
}

// setTo returns the Optional of a field that cannot be null.
func setTo[T any](p *T) control.Optional[T] {
	if p == nil {
		return control.Optional[T]{}
	}
	return control.Optional[T]{Present: true, Value: *p}
}
