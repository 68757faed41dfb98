package adminapi

import (
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/ratelimit"
)

// The bodies of requests. Their tags make the schemas that decode checks a
// body against, and that the API document shows. In a creation null stands for
// an absent optional member; in a PATCH it clears what the member names.

type createGatewayRequest struct {
	Name            string            `json:"name" minLength:"1" maxLength:"255" doc:"Display name." example:"orders"`
	UpstreamURL     string            `json:"upstream_url" minLength:"1" maxLength:"2048" doc:"Base URL of the upstream service: http, https or h2c, without userinfo, query or fragment." example:"https://orders.internal"`
	Spec            *string           `json:"spec,omitempty" nullable:"true" minLength:"1" doc:"OpenAPI 3.0, 3.1 or 3.2 document, YAML or JSON; it becomes revision 1."`
	Hostname        *string           `json:"hostname,omitempty" nullable:"true" minLength:"1" maxLength:"253" doc:"Host name of the gateway; made from its identifier when absent." example:"api.example.com"`
	GlobalRateLimit *globalLimitInput `json:"global_rate_limit,omitempty" doc:"Limit across all routes."`
	Timeout         *string           `json:"timeout,omitempty" nullable:"true" minLength:"1" doc:"Time to the head of the upstream's answer: a Go duration from 1s to 1h, 60s when absent." example:"30s"`
	UpstreamHeaders map[string]string `json:"upstream_headers,omitempty" nullable:"true" maxProperties:"16" doc:"Fields to set on every forwarded request; stored encrypted, never shown."`
	UpstreamCA      *string           `json:"upstream_ca,omitempty" nullable:"true" minLength:"1" doc:"PEM certificates that replace the system's roots for this upstream."`
	CORS            *corsInput        `json:"cors,omitempty" doc:"Lets the gateway answer browsers of other origins."`
	MaxBodyBytes    *int64            `json:"max_body_bytes,omitempty" nullable:"true" minimum:"1" doc:"Largest request body that is forwarded, in bytes." example:"1048576"`

	UpstreamClientCertificate *string `json:"upstream_client_certificate,omitempty" nullable:"true" minLength:"1" doc:"Certificate that tells an https upstream who calls, with those of its issuers behind it, in PEM; needs upstream_client_key."`
	UpstreamClientKey         *string `json:"upstream_client_key,omitempty" nullable:"true" minLength:"1" doc:"Its private key, in PEM without a passphrase; stored encrypted, never shown."`
	UpstreamConnectTimeout    *string `json:"upstream_connect_timeout,omitempty" nullable:"true" minLength:"1" doc:"Time to connect to the upstream, and once more for the TLS handshake: a Go duration from 100ms to 1m, 10s when absent." example:"2s"`
	UpstreamIdleTimeout       *string `json:"upstream_idle_timeout,omitempty" nullable:"true" minLength:"1" doc:"How long a connection to the upstream is kept without use: a Go duration from 1s to 1h, 90s when absent." example:"30s"`
	UpstreamMaxConnections    *int64  `json:"upstream_max_connections,omitempty" nullable:"true" minimum:"1" maximum:"100000" doc:"Most connections that the gateway has to its upstream at once; waiting for one counts against timeout. No bound when absent." example:"200"`
}

type updateGatewayRequest struct {
	Name            *string                     `json:"name,omitempty" minLength:"1" maxLength:"255" doc:"Display name." example:"orders"`
	UpstreamURL     *string                     `json:"upstream_url,omitempty" minLength:"1" maxLength:"2048" doc:"Base URL of the upstream service; another origin drops upstream_headers and the client certificate with its key." example:"https://orders.internal"`
	Hostname        optional[string]            `json:"hostname,omitempty" minLength:"1" maxLength:"253" doc:"Host name of the gateway; null for the one made from its identifier." example:"api.example.com"`
	GlobalRateLimit optional[globalLimitInput]  `json:"global_rate_limit,omitempty" doc:"Limit across all routes, replaced whole; null for the installation's default."`
	Timeout         optional[string]            `json:"timeout,omitempty" minLength:"1" doc:"Time to the head of the upstream's answer; null for 60s." example:"30s"`
	UpstreamHeaders optional[map[string]string] `json:"upstream_headers,omitempty" maxProperties:"16" doc:"Fields to set on every forwarded request, replaced whole; null for none."`
	UpstreamCA      optional[string]            `json:"upstream_ca,omitempty" minLength:"1" doc:"PEM certificates that replace the system's roots; null for the system's."`
	CORS            optional[corsInput]         `json:"cors,omitempty" doc:"Answer to browsers of other origins, replaced whole; null for none."`
	MaxBodyBytes    optional[int64]             `json:"max_body_bytes,omitempty" minimum:"1" doc:"Largest request body that is forwarded, in bytes; null for any size." example:"1048576"`

	UpstreamClientCertificate optional[string] `json:"upstream_client_certificate,omitempty" minLength:"1" doc:"Certificate that tells an https upstream who calls; null for none, and then upstream_client_key must be null, too."`
	UpstreamClientKey         optional[string] `json:"upstream_client_key,omitempty" minLength:"1" doc:"Its private key, in PEM without a passphrase; absent, the new certificate must be of the key that is stored."`
	UpstreamConnectTimeout    optional[string] `json:"upstream_connect_timeout,omitempty" minLength:"1" doc:"Time to connect to the upstream; null for 10s." example:"2s"`
	UpstreamIdleTimeout       optional[string] `json:"upstream_idle_timeout,omitempty" minLength:"1" doc:"How long a connection to the upstream is kept without use; null for 90s." example:"30s"`
	UpstreamMaxConnections    optional[int64]  `json:"upstream_max_connections,omitempty" minimum:"1" maximum:"100000" doc:"Most connections that the gateway has to its upstream at once; null for no bound." example:"200"`
}

type globalLimitInput struct {
	_         struct{} `nullable:"true"`
	Sustained string   `json:"sustained" minLength:"1" doc:"Refill rate, <count>/<unit>." example:"6000/min"`
	Burst     *string  `json:"burst,omitempty" nullable:"true" minLength:"1" doc:"Bucket capacity, <count>/<unit>; the count of sustained when absent." example:"200/s"`
}

func (g *globalLimitInput) config() (ratelimit.Config, error) {
	return ratelimit.ParseConfig(g.Sustained, value(g.Burst), "", "")
}

type corsInput struct {
	_       struct{} `nullable:"true"`
	Origins []string `json:"origins" nullable:"false" minItems:"1" doc:"Origins that may call, or * for every one." example:"https://app.example.com"`
	Methods []string `json:"methods,omitempty" nullable:"true" doc:"Methods that they may use." example:"GET,POST"`
	Headers []string `json:"headers,omitempty" nullable:"true" doc:"Request fields that they may set." example:"Authorization"`
	MaxAge  *int     `json:"max_age,omitempty" nullable:"true" minimum:"0" maximum:"86400" doc:"For how many seconds a browser may keep a preflight answer." example:"600"`
}

func (c *corsInput) cors() gateway.CORS {
	return gateway.CORS{Origins: c.Origins, Methods: c.Methods, Headers: c.Headers, MaxAge: value(c.MaxAge)}
}

type createRouteRequest struct {
	Path      string          `json:"path" minLength:"1" maxLength:"2048" doc:"OpenAPI path template, or a path that ends in /* for everything below." example:"/orders/{id}"`
	Methods   []string        `json:"methods" nullable:"false" minItems:"1" maxItems:"32" doc:"HTTP methods, in capitals." example:"GET,DELETE"`
	RateLimit *rateLimitInput `json:"rate_limit,omitempty" doc:"Limit of the route."`
	Auth      *string         `json:"auth,omitempty" nullable:"true" enum:"key,none" doc:"key, the default, asks for a key; none makes a public route."`
}

type rateLimitInput struct {
	_         struct{} `nullable:"true"`
	Sustained *string  `json:"sustained,omitempty" nullable:"true" minLength:"1" doc:"Refill rate, <count>/<unit>." example:"600/min"`
	Burst     *string  `json:"burst,omitempty" nullable:"true" minLength:"1" doc:"Bucket capacity, <count>/<unit>." example:"50/s"`
	Daily     *string  `json:"daily,omitempty" nullable:"true" minLength:"1" doc:"Cap for one UTC day, <count>/day." example:"100000/day"`
	Per       *string  `json:"per,omitempty" nullable:"true" enum:"key" doc:"\"key\" gives each key its own bucket."`
}

func (l *rateLimitInput) config() (ratelimit.Config, error) {
	return ratelimit.ParseConfig(value(l.Sustained), value(l.Burst), value(l.Daily), value(l.Per))
}

type updateRouteRequest struct {
	RateLimit optional[rateLimitPatch] `json:"rate_limit" doc:"Changes to the limit of the route; null removes it."`
}

type rateLimitPatch struct {
	_         struct{}         `nullable:"true"`
	Sustained optional[string] `json:"sustained,omitempty" minLength:"1" doc:"Refill rate, <count>/<unit>; null removes it, absent it stays." example:"600/min"`
	Burst     optional[string] `json:"burst,omitempty" minLength:"1" doc:"Bucket capacity, <count>/<unit>; null removes it, absent it stays." example:"50/s"`
	Daily     optional[string] `json:"daily,omitempty" minLength:"1" doc:"Cap for one UTC day, <count>/day; null removes it, absent it stays." example:"100000/day"`
	Per       optional[string] `json:"per,omitempty" enum:"key" doc:"\"key\" gives each key its own bucket; null makes all callers share one, absent it stays."`
}

func (p *rateLimitPatch) control() control.RateLimitPatch {
	return control.RateLimitPatch{
		Sustained: p.Sustained.Optional, Burst: p.Burst.Optional, Daily: p.Daily.Optional, Per: p.Per.Optional,
	}
}

type createKeyRequest struct {
	Name      string            `json:"name" minLength:"1" maxLength:"255" doc:"Display name." example:"mobile app"`
	Scope     string            `json:"scope" minLength:"1" maxLength:"300" doc:"read, write, admin, or one of them with a resource." example:"read:orders"`
	ExpiresAt *string           `json:"expires_at,omitempty" nullable:"true" minLength:"1" doc:"When the key expires: an RFC 3339 time, or a date through whose last instant in UTC it is valid." example:"2030-01-31"`
	GatewayID *string           `json:"gateway_id,omitempty" nullable:"true" minLength:"1" doc:"Restricts the key to one gateway." example:"gw_01jz8y5c3te9b8r2m6q4v7x0aa"`
	RateLimit *string           `json:"rate_limit,omitempty" nullable:"true" minLength:"1" doc:"Limit of the key, <count>/<unit>." example:"100/s"`
	Level     *string           `json:"level,omitempty" nullable:"true" enum:"gateway,account" doc:"gateway, the default, for the data plane; account for this API, which takes neither gateway_id nor rate_limit."`
	Owner     *string           `json:"owner,omitempty" nullable:"true" minLength:"1" maxLength:"255" doc:"Whose key it is: printable ASCII." example:"customer-42"`
	Metadata  map[string]string `json:"metadata,omitempty" nullable:"true" maxProperties:"16" doc:"Strings of yours."`
}

type updateKeyRequest struct {
	Name      *string                     `json:"name,omitempty" minLength:"1" maxLength:"255" doc:"Display name." example:"mobile app"`
	Owner     optional[string]            `json:"owner,omitempty" minLength:"1" maxLength:"255" doc:"Whose key it is; null for nobody's." example:"customer-42"`
	RateLimit optional[string]            `json:"rate_limit,omitempty" minLength:"1" doc:"Limit of the key, <count>/<unit>; null for none." example:"100/s"`
	Metadata  optional[map[string]string] `json:"metadata,omitempty" maxProperties:"16" doc:"Strings of yours, replaced whole; null for none."`
	ExpiresAt optional[string]            `json:"expires_at,omitempty" minLength:"1" doc:"When the key expires, as at creation; null for never." example:"2030-01-31"`
}

type rotateKeyRequest struct {
	OverlapDays int     `json:"overlap_days" minimum:"0" maximum:"365" doc:"For how many times 24 hours the old key stays valid beside the new one; 0 expires it at once." example:"7"`
	ExpiresAt   *string `json:"expires_at,omitempty" nullable:"true" minLength:"1" doc:"When the new key expires; as the old one was to when absent." example:"2030-01-31"`
}

type verifyKeyRequest struct {
	Key       string  `json:"key" minLength:"1" maxLength:"255" doc:"The key to verify." example:"kg_4tQx9ZexampleexampleexampleexAmple"`
	GatewayID *string `json:"gateway_id,omitempty" nullable:"true" minLength:"1" doc:"Gateway that the call would go to." example:"gw_01jz8y5c3te9b8r2m6q4v7x0aa"`
	Method    *string `json:"method,omitempty" nullable:"true" minLength:"1" maxLength:"32" doc:"Method of the call." example:"GET"`
	Path      *string `json:"path,omitempty" nullable:"true" minLength:"1" maxLength:"16384" doc:"Path of the call." example:"/orders/17"`
}

// value returns what p points to, or the zero value.
func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// optional is a member of a body that is absent, null, or a value.
type optional[T any] struct {
	control.Optional[T]
}

// UnmarshalJSON is called only for a member that is there.
func (o *optional[T]) UnmarshalJSON(data []byte) error {
	o.Present = true
	if string(data) == "null" {
		o.Null = true
		return nil
	}
	return unmarshal(data, &o.Value)
}

// Schema is that of a value or null.
func (optional[T]) Schema(r huma.Registry) *huma.Schema {
	s := r.Schema(reflect.TypeFor[T](), true, "")
	if s.Ref == "" {
		s.Nullable = true
	}
	return s
}

// setTo makes an Optional of a member that cannot be null.
func setTo[T any](p *T) control.Optional[T] {
	if p == nil {
		return control.Optional[T]{}
	}
	return control.Optional[T]{Present: true, Value: *p}
}
