package adminapi

import (
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/ratelimit"
)

// The records of the API (contract, 3.1 to 3.3): every member is always there,
// null where it has no value, but for those with omitempty, which came later and
// are there only where they are set. Their tags are also what the API document says.

// hidden stands for a value that is stored encrypted and never shown.
const hidden = "***"

type gatewayRecord struct {
	GatewayID       string            `json:"gateway_id" doc:"Identifier of the gateway." example:"gw_01jz8y5c3te9b8r2m6q4v7x0aa"`
	Name            string            `json:"name" doc:"Display name." example:"orders"`
	UpstreamURL     string            `json:"upstream_url" doc:"Base URL of the upstream service." example:"https://orders.internal"`
	Hostname        string            `json:"hostname" doc:"Host name under which the data plane reaches the gateway." example:"api.example.com"`
	GlobalRateLimit *globalLimit      `json:"global_rate_limit" doc:"Limit across all routes; null for the installation's default."`
	Timeout         string            `json:"timeout" doc:"Time to the head of the upstream's answer, a Go duration." example:"60s"`
	UpstreamHeaders map[string]string `json:"upstream_headers" doc:"Names of the fields set on every forwarded request; values are never shown."`
	CORS            *corsRecord       `json:"cors" doc:"Answer to browsers of other origins; null if the upstream answers them."`
	MaxBodyBytes    *int64            `json:"max_body_bytes" doc:"Largest request body that is forwarded, in bytes; null for any size." example:"1048576"`
	Revision        *int64            `json:"revision" doc:"Number of the revision in force; null before the first push." example:"3"`
	CreatedAt       time.Time         `json:"created_at" doc:"When the gateway was created."`

	UpstreamClientCertificate string `json:"upstream_client_certificate,omitempty" doc:"Certificate that tells the upstream who calls, as it was given; absent if there is none."`
	UpstreamClientKey         string `json:"upstream_client_key,omitempty" doc:"Stands for its private key, which is never shown." example:"***"`
	UpstreamConnectTimeout    string `json:"upstream_connect_timeout,omitempty" doc:"Time to connect to the upstream, a Go duration; absent for 10s." example:"2s"`
	UpstreamIdleTimeout       string `json:"upstream_idle_timeout,omitempty" doc:"How long a connection to the upstream is kept without use, a Go duration; absent for 90s." example:"30s"`
	UpstreamMaxConnections    int64  `json:"upstream_max_connections,omitempty" doc:"Most connections that the gateway has to its upstream at once; absent for no bound." example:"200"`
}

type globalLimit struct {
	_         struct{} `nullable:"true"`
	Sustained *string  `json:"sustained" doc:"Refill rate, <count>/<unit>." example:"6000/min"`
	Burst     *string  `json:"burst" doc:"Bucket capacity, <count>/<unit>; null for the count of sustained." example:"200/s"`
}

type rateLimitRecord struct {
	_         struct{} `nullable:"true"`
	Sustained *string  `json:"sustained" doc:"Refill rate, <count>/<unit>." example:"600/min"`
	Burst     *string  `json:"burst" doc:"Bucket capacity, <count>/<unit>." example:"50/s"`
	Daily     *string  `json:"daily" doc:"Cap for one UTC day, <count>/day." example:"100000/day"`
	Per       *string  `json:"per" enum:"key" doc:"\"key\" if each key has its own bucket; null if all callers share one."`
}

type corsRecord struct {
	_       struct{} `nullable:"true"`
	Origins []string `json:"origins" nullable:"false" doc:"Origins that may call." example:"https://app.example.com"`
	Methods []string `json:"methods" nullable:"false" doc:"Methods that they may use." example:"GET,POST"`
	Headers []string `json:"headers" nullable:"false" doc:"Request fields that they may set." example:"Authorization"`
	MaxAge  int      `json:"max_age" doc:"For how many seconds a browser may keep a preflight answer." example:"600"`
}

type routeRecord struct {
	RouteID   string           `json:"route_id" doc:"Identifier of the route." example:"rt_01jz8y5c3te9b8r2m6q4v7x0bb"`
	GatewayID string           `json:"gateway_id" doc:"Gateway that the route belongs to." example:"gw_01jz8y5c3te9b8r2m6q4v7x0aa"`
	Path      string           `json:"path" doc:"OpenAPI path template, or a path that ends in /* for everything below." example:"/orders/{id}"`
	Methods   []string         `json:"methods" nullable:"false" doc:"HTTP methods." example:"GET,DELETE"`
	RateLimit *rateLimitRecord `json:"rate_limit" doc:"Limit of the route; null for none."`
	Auth      string           `json:"auth" enum:"key,none" doc:"Whether the route asks for a key."`
	Source    string           `json:"source" enum:"api,spec,config" doc:"What made the route."`
	CreatedAt time.Time        `json:"created_at" doc:"When the route was created."`
}

type revisionRecord struct {
	RevisionID string    `json:"revision_id" doc:"Identifier of the revision." example:"rev_01jz8y5c3te9b8r2m6q4v7x0cc"`
	Number     int64     `json:"number" doc:"Number of the revision, from 1 for each gateway." example:"3"`
	Source     string    `json:"source" enum:"cli,api,repository,dashboard,rollback" doc:"What pushed it."`
	Kind       string    `json:"kind" enum:"spec,config" doc:"Kind of the document."`
	Author     string    `json:"author" doc:"Who pushed it."`
	Commit     *string   `json:"commit" doc:"Commit that it came from; null if from none."`
	CreatedAt  time.Time `json:"created_at" doc:"When it was pushed."`
	Added      int       `json:"added" doc:"How many routes it added."`
	Removed    int       `json:"removed" doc:"How many routes it removed."`
	Changed    int       `json:"changed" doc:"How many routes it changed."`
}

type routeChangeRecord struct {
	Path    string   `json:"path" doc:"Path of the route." example:"/orders/{id}"`
	Methods []string `json:"methods" nullable:"false" doc:"HTTP methods of the route." example:"GET"`
	RouteID *string  `json:"route_id" doc:"Identifier of the route; null for one that a dry run would add."`
}

type pushRecord struct {
	Revision  *int64              `json:"revision" doc:"Number of the revision made; null if nothing changed, or in a dry run." example:"4"`
	Added     []routeChangeRecord `json:"added" nullable:"false" doc:"Routes added."`
	Removed   []routeChangeRecord `json:"removed" nullable:"false" doc:"Routes removed."`
	Changed   []routeChangeRecord `json:"changed" nullable:"false" doc:"Routes changed."`
	Unchanged int                 `json:"unchanged" doc:"How many routes stayed as they were."`
	Warnings  []string            `json:"warnings" nullable:"false" doc:"What is probably not meant."`
}

// KeyRecord is exported so that it can be embedded: what is embedded by an
// unexported name is missing from the document.
type KeyRecord struct {
	KeyID       string            `json:"key_id" doc:"Identifier of the key." example:"key_01jz8y5c3te9b8r2m6q4v7x0dd"`
	Name        string            `json:"name" doc:"Display name." example:"mobile app"`
	Level       string            `json:"level" enum:"gateway,account" doc:"Which plane the key opens: gateway for the data plane, account for this API."`
	Scope       string            `json:"scope" doc:"read, write, admin, or one of them with a resource." example:"read:orders"`
	KeyPrefix   string            `json:"key_prefix" doc:"Tag and first characters of the key; the rest is never shown again." example:"kg_4tQx9Z"`
	State       string            `json:"state" enum:"active,expired,revoked" doc:"Where the key stands in its life."`
	Owner       *string           `json:"owner" doc:"Whose key it is." example:"customer-42"`
	GatewayID   *string           `json:"gateway_id" doc:"Gateway that the key is restricted to; null for all." example:"gw_01jz8y5c3te9b8r2m6q4v7x0aa"`
	RateLimit   *string           `json:"rate_limit" doc:"Limit of the key, <count>/<unit>; null for none." example:"100/s"`
	Metadata    map[string]string `json:"metadata" doc:"Strings of yours."`
	CreatedAt   time.Time         `json:"created_at" doc:"When the key was created."`
	ExpiresAt   *time.Time        `json:"expires_at" doc:"When the key expires; null for never."`
	RevokedAt   *time.Time        `json:"revoked_at" doc:"When the key was revoked; null if it was not."`
	LastUsedAt  *time.Time        `json:"last_used_at" doc:"When the key was last used; null for never."`
	RotatedFrom *string           `json:"rotated_from" doc:"Key that this one replaces."`
	RotatedTo   *string           `json:"rotated_to" doc:"Key that replaces this one."`
}

// newKeyRecord is the only record that holds a key string. A replay under an
// Idempotency-Key leaves it out and says so in Message.
type newKeyRecord struct {
	KeyRecord
	Key           string     `json:"key,omitempty" doc:"The key itself, shown this once; absent from a replay." example:"kg_4tQx9ZexampleexampleexampleexAmple"`
	OverlapEndsAt *time.Time `json:"overlap_ends_at,omitempty" doc:"Of a rotation: when the old key expires."`
	Message       string     `json:"message,omitempty" doc:"In a replay: why the key is absent."`
}

type verificationRecord struct {
	Valid bool    `json:"valid" doc:"Whether the call would be let in."`
	Code  *string `json:"code" enum:"key_invalid,key_expired,scope_insufficient" doc:"Why not; null if it would."`
	KeyID *string `json:"key_id" doc:"Identifier of the key; null if the account has no such key."`
	Owner *string `json:"owner" doc:"Whose key it is."`
	Scope *string `json:"scope" doc:"Scope of the key." example:"read"`
	State *string `json:"state" enum:"active,expired,revoked" doc:"State of the key."`
}

type accountRecord struct {
	AccountID          string           `json:"account_id" doc:"Identifier of the account." example:"acct_01jz8y5c3te9b8r2m6q4v7x0ee"`
	Name               string           `json:"name" doc:"Name of the account." example:"default"`
	Plan               string           `json:"plan" enum:"starter,platform,scale" doc:"Plan of the account."`
	AuditRetentionDays int              `json:"audit_retention_days" doc:"For how many days the audit log is kept." example:"365"`
	Key                accountKeyRecord `json:"key" doc:"The calling key."`
}

type accountKeyRecord struct {
	KeyID string `json:"key_id" doc:"Identifier of the key." example:"key_01jz8y5c3te9b8r2m6q4v7x0dd"`
	Name  string `json:"name" doc:"Display name of the key." example:"admin"`
	Scope string `json:"scope" doc:"Scope of the key." example:"admin"`
}

type settingsRecord struct {
	Settings []Setting `json:"settings" nullable:"false" doc:"Every setting of the installation."`
}

// Setting is one setting of the installation as GET /v1/settings shows it. A
// secret value is left out by whoever makes it.
type Setting struct {
	Name   string `json:"name" doc:"Name of the setting: that of its flag." example:"gateway-addr"`
	Value  string `json:"value" doc:"Value in force; *** for a secret." example:"127.0.0.1:8080"`
	Source string `json:"source" enum:"default,file,environment,flag" doc:"Where the value came from."`
}

type list[T any] struct {
	Data       []T     `json:"data" nullable:"false" doc:"One page of records, newest first."`
	NextCursor *string `json:"next_cursor" doc:"Cursor of the next page; null on the last one."`
}

// errorRecord is what package fault answers with; it is here for the document.
type errorRecord struct {
	Error      string `json:"error" doc:"Machine-readable error code." example:"validation_failed"`
	Message    string `json:"message" doc:"What is wrong, and what to do about it." example:"is required: give the display name"`
	Field      string `json:"field,omitempty" doc:"Dotted path of the offending field, or the name of the parameter or header field." example:"rate_limit.burst"`
	Code       string `json:"code,omitempty" enum:"key_invalid,key_expired,scope_insufficient" doc:"Of 401 and 403 alone."`
	Limit      *int64 `json:"limit,omitempty" doc:"Of 429 alone: capacity of the limit that refused."`
	Remaining  *int64 `json:"remaining,omitempty" doc:"Of 429 alone: requests left, 0."`
	ResetAt    *int64 `json:"reset_at,omitempty" doc:"Of 429 alone: Unix second at which the request would pass."`
	LimitScope string `json:"limit_scope,omitempty" enum:"account" doc:"Of 429 alone: which limit refused."`
	RequestID  string `json:"request_id" doc:"Identifier of the request, also in X-Request-Id." example:"req_01jz8y5c3te9b8r2m6q4v7x0ff"`
}

func optionalText(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func optionalNumber(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return &n
}

func optionalTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// orEmpty returns s, or an empty slice for nil, which JSON would show as null.
func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

func rate(r ratelimit.Rate) *string { return optionalText(r.String()) }

func presentGateway(g *gateway.Gateway) gatewayRecord {
	r := gatewayRecord{
		GatewayID: g.ID, Name: g.Name, UpstreamURL: g.UpstreamURL, Hostname: g.Hostname, Timeout: g.Timeout,
		UpstreamHeaders: map[string]string{},
		MaxBodyBytes:    optionalNumber(g.MaxBodyBytes), Revision: optionalNumber(g.Revision), CreatedAt: g.CreatedAt.UTC(),
		UpstreamClientCertificate: g.UpstreamClientCertificate, UpstreamConnectTimeout: g.UpstreamConnectTimeout,
		UpstreamIdleTimeout: g.UpstreamIdleTimeout, UpstreamMaxConnections: g.UpstreamMaxConnections,
	}
	if len(g.UpstreamClientKey) > 0 {
		r.UpstreamClientKey = hidden
	}
	if !g.GlobalLimit.IsZero() {
		r.GlobalRateLimit = &globalLimit{Sustained: rate(g.GlobalLimit.Sustained), Burst: rate(g.GlobalLimit.Burst)}
	}
	for name := range g.UpstreamHeaders {
		r.UpstreamHeaders[name] = hidden
	}
	if c := g.CORS; c != nil {
		r.CORS = &corsRecord{Origins: orEmpty(c.Origins), Methods: orEmpty(c.Methods), Headers: orEmpty(c.Headers), MaxAge: c.MaxAge}
	}
	return r
}

func presentRoute(r *gateway.Route) routeRecord {
	return routeRecord{
		RouteID: r.ID, GatewayID: r.GatewayID, Path: r.Path, Methods: orEmpty(r.Methods),
		RateLimit: presentLimit(r.RateLimit), Auth: string(r.Auth), Source: string(r.Source), CreatedAt: r.CreatedAt.UTC(),
	}
}

func presentLimit(c ratelimit.Config) *rateLimitRecord {
	if c.IsZero() {
		return nil
	}
	return &rateLimitRecord{Sustained: rate(c.Sustained), Burst: rate(c.Burst), Daily: rate(c.Daily), Per: optionalText(c.Per)}
}

func presentRevision(r *gateway.Revision) revisionRecord {
	return revisionRecord{
		RevisionID: r.ID, Number: r.Number, Source: string(r.Source), Kind: string(r.Kind), Author: r.Author,
		Commit: optionalText(r.Commit), CreatedAt: r.CreatedAt.UTC(), Added: r.Added, Removed: r.Removed, Changed: r.Changed,
	}
}

func presentPush(p *control.PushResult) pushRecord {
	return pushRecord{
		Revision: optionalNumber(p.Revision), Added: presentChanges(p.Added), Removed: presentChanges(p.Removed),
		Changed: presentChanges(p.Changed), Unchanged: p.Unchanged, Warnings: orEmpty(p.Warnings),
	}
}

func presentChanges(changes []control.RouteChange) []routeChangeRecord {
	out := make([]routeChangeRecord, len(changes))
	for i, c := range changes {
		out[i] = routeChangeRecord{Path: c.Path, Methods: orEmpty(c.Methods), RouteID: optionalText(c.RouteID)}
	}
	return out
}

func presentKey(k *apikey.Key, now time.Time) KeyRecord {
	r := KeyRecord{
		KeyID: k.ID, Name: k.Name, Level: string(k.Level), Scope: k.Scope.String(), KeyPrefix: k.Prefix,
		State: string(k.State(now)), Owner: optionalText(k.Owner), GatewayID: optionalText(k.GatewayID), RateLimit: rate(k.RateLimit),
		Metadata: k.Metadata, CreatedAt: k.CreatedAt.UTC(), ExpiresAt: optionalTime(k.ExpiresAt), RevokedAt: optionalTime(k.RevokedAt),
		LastUsedAt: optionalTime(k.LastUsedAt), RotatedFrom: optionalText(k.RotatedFrom), RotatedTo: optionalText(k.RotatedTo),
	}
	if r.Metadata == nil {
		r.Metadata = map[string]string{}
	}
	return r
}

func presentVerification(v *control.Verification) verificationRecord {
	r := verificationRecord{Valid: v.Valid, Code: optionalText(v.Code)}
	if k := v.Key; k != nil {
		scope, state := k.Scope.String(), string(v.State)
		r.KeyID, r.Owner, r.Scope, r.State = &k.ID, optionalText(k.Owner), &scope, &state
	}
	return r
}

func presentAccount(a *account.Account, k *apikey.Key) accountRecord {
	return accountRecord{
		AccountID: a.ID, Name: a.Name, Plan: string(a.Plan), AuditRetentionDays: a.Plan.AuditRetentionDays(),
		Key: accountKeyRecord{KeyID: k.ID, Name: k.Name, Scope: k.Scope.String()},
	}
}
