package adminapi

import (
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/ratelimit"
)

// The records of the API (contract, sections 3.1 to 3.3). Every field is always
// present, and null if it has no value. The exceptions are the optional fields of
// section 3.3, which have omitempty. The OpenAPI document takes its schemas and
// descriptions from the tags.

// hidden is shown in place of a value that is stored encrypted.
const hidden = "***"

type rateLimitRecord struct {
	_         struct{} `nullable:"true"`
	Sustained *string  `json:"sustained" doc:"Refill rate, <count>/<unit>." example:"600/min"`
	Burst     *string  `json:"burst" doc:"Bucket capacity, <count>/<unit>." example:"50/s"`
	Daily     *string  `json:"daily" doc:"Maximum number of requests in a UTC day, <count>/day." example:"100000/day"`
	Per       *string  `json:"per" enum:"key,address" doc:"key if each key has its own bucket, address if each client address (IPv6: each /64) has; null if all callers share one."`
}

type concurrencyRecord struct {
	_   struct{} `nullable:"true"`
	Max int64    `json:"max" doc:"How many requests may be in flight at once." example:"5"`
	Per *string  `json:"per" enum:"key" doc:"key if each key may have as many; null if all callers share them."`
}

type routeRecord struct {
	RouteID     string             `json:"route_id" doc:"Identifier of the route." example:"rt_01jz8y5c3te9b8r2m6q4v7x0bb"`
	GatewayID   string             `json:"gateway_id" doc:"Gateway that the route belongs to." example:"gw_01jz8y5c3te9b8r2m6q4v7x0aa"`
	Path        string             `json:"path" doc:"OpenAPI path template, or a path ending in /* that matches everything below it." example:"/orders/{id}"`
	Methods     []string           `json:"methods" nullable:"false" doc:"HTTP methods." example:"GET,DELETE"`
	RateLimit   *rateLimitRecord   `json:"rate_limit" doc:"Rate limit of the route; null for no limit."`
	Concurrency *concurrencyRecord `json:"concurrency" doc:"Bound of the requests of the route that are in flight; null for none."`
	Cost        *costList          `json:"cost" doc:"What a request costs, for each meter that limits of plans count; null if it costs 1 of the meter requests."`
	Upstream    string             `json:"upstream" doc:"Name of the upstream that gets the requests." example:"default"`
	Split       []SplitRecord      `json:"split" nullable:"true" doc:"Which requests go to another upstream; null for the split of the gateway, [] for none."`
	HandlingRecord
	Auth      string    `json:"auth" enum:"key,token,any,none" doc:"key if the route requires an API key, token if it requires a token of one of the gateway's issuers, any if it takes either; none if it is public. It is default_auth of the gateway if the route does not say it."`
	Source    string    `json:"source" enum:"api,spec,config" doc:"How the route was created."`
	CreatedAt time.Time `json:"created_at" doc:"When the route was created."`
	Warnings  []string  `json:"warnings,omitempty" doc:"Likely mistakes: methods that clients do not usually send. Absent if there are none." example:"POSTT is not a usual method: did you mean POST?"`
}

type revisionRecord struct {
	RevisionID string    `json:"revision_id" doc:"Identifier of the revision." example:"rev_01jz8y5c3te9b8r2m6q4v7x0cc"`
	Number     int64     `json:"number" doc:"Number of the revision. Each gateway's first revision is 1." example:"3"`
	Source     string    `json:"source" enum:"cli,api,repository,dashboard,rollback" doc:"What pushed the revision."`
	Kind       string    `json:"kind" enum:"spec,config" doc:"Kind of document that was pushed."`
	Author     string    `json:"author" doc:"Who pushed the revision: the author of the commit, or the owner or name of the key."`
	Commit     *string   `json:"commit" doc:"Git commit that the revision came from; null if it did not come from a repository."`
	CreatedAt  time.Time `json:"created_at" doc:"When the revision was pushed."`
	Added      int       `json:"added" doc:"Number of routes added."`
	Removed    int       `json:"removed" doc:"Number of routes removed."`
	Changed    int       `json:"changed" doc:"Number of routes changed."`
}

type routeChangeRecord struct {
	Path    string   `json:"path" doc:"Path of the route." example:"/orders/{id}"`
	Methods []string `json:"methods" nullable:"false" doc:"HTTP methods of the route." example:"GET"`
	RouteID *string  `json:"route_id" doc:"Identifier of the route; null for a route that a dry run would add."`

	Changes []settingChangeRecord `json:"changes,omitempty" nullable:"false" doc:"What changes about a route that exists before and after: rate_limit, concurrency, cost, auth, upstream, split. Beyond 1 MiB of costs in all, further ones are digests. Absent for other routes."`
}

type pushRecord struct {
	Revision  *int64              `json:"revision" doc:"Number of the new revision; null if nothing changed, or in a dry run." example:"4"`
	Added     []routeChangeRecord `json:"added" nullable:"false" doc:"Routes that were added, or in a dry run would be."`
	Removed   []routeChangeRecord `json:"removed" nullable:"false" doc:"Routes that were removed, or in a dry run would be."`
	Changed   []routeChangeRecord `json:"changed" nullable:"false" doc:"Routes that were changed, or in a dry run would be."`
	Unchanged int                 `json:"unchanged" doc:"Number of routes that did not change."`
	Warnings  []string            `json:"warnings" nullable:"false" doc:"Likely mistakes in the document."`

	Gateway []settingChangeRecord `json:"gateway,omitempty" nullable:"false" doc:"Settings of the gateway that the section gateway of a configuration file changed, or in a dry run would change; those of an upstream as upstreams.NAME.SETTING, and its targets as upstreams.NAME.targets.URL. Absent if there are none."`

	Effect *effectRecord `json:"effect,omitempty" doc:"What the push would have done to the requests of the last 24 hours. Only with effect=true."`
}

type settingChangeRecord struct {
	Field  string `json:"field" doc:"Name of the setting, as in the record of the gateway or route." example:"timeout"`
	Before any    `json:"before" doc:"The setting before, in the form of the audit log: *** for a secret, a digest for certificates; null for none." example:"\"60s\""`
	After  any    `json:"after" doc:"The setting after, in the same form." example:"\"30s\""`
}

// KeyRecord is a key. It is exported because huma omits an embedded struct with an
// unexported name from the document.
type KeyRecord struct {
	KeyID       string            `json:"key_id" doc:"Identifier of the key." example:"key_01jz8y5c3te9b8r2m6q4v7x0dd"`
	Name        string            `json:"name" doc:"Display name." example:"mobile app"`
	Level       string            `json:"level" enum:"gateway,account" doc:"gateway for calls through gateways, account for this API."`
	Scope       string            `json:"scope" doc:"One or more scopes separated by spaces, any of which suffices: read, write or admin, optionally limited to a resource, as in read:orders." example:"read:orders write:customers"`
	KeyPrefix   string            `json:"key_prefix" doc:"Start of the key, for recognizing it. The full key cannot be retrieved again." example:"kg_4tQx9Z"`
	State       string            `json:"state" enum:"active,expired,revoked" doc:"State of the key."`
	Owner       *string           `json:"owner" doc:"External ID of the owner of the key; null if it has none." example:"customer-42"`
	OwnerID     *string           `json:"owner_id" doc:"Identifier of the owner; null if the key has none." example:"own_01jz8y5c3te9b8r2m6q4v7x0aa"`
	PlanID      *string           `json:"plan_id" doc:"Plan of the key itself, whatever its owner has; null for none." example:"plan_01jz8y5c3te9b8r2m6q4v7x0bb"`
	Plan        *string           `json:"plan" doc:"Name of that plan; null for none." example:"free"`
	GatewayID   *string           `json:"gateway_id" doc:"Gateway that the key is restricted to; null if it works on every gateway of the account." example:"gw_01jz8y5c3te9b8r2m6q4v7x0aa"`
	RateLimit   *keyLimitRecord   `json:"rate_limit" doc:"Rate limit of the key, in the form in which it was given: a rate, or an object; null for no limit."`
	Concurrency *int64            `json:"concurrency" doc:"How many requests with the key may be in flight at once, those with the other keys of its rotations included; null for any number." example:"5"`
	Metadata    map[string]string `json:"metadata" doc:"Key-value pairs of your own. Keygate does not interpret them."`
	AllowIPs    []string          `json:"allow_ips" nullable:"true" doc:"Networks whose addresses may use the key; null if all may." example:"203.0.113.0/24"`
	DenyIPs     []string          `json:"deny_ips" nullable:"true" doc:"Networks whose addresses may not use the key; null for none." example:"198.51.100.0/24"`
	CreatedAt   time.Time         `json:"created_at" doc:"When the key was created."`
	ExpiresAt   *time.Time        `json:"expires_at" doc:"When the key expires; null for never."`
	RevokedAt   *time.Time        `json:"revoked_at" doc:"When the key was revoked; null if it is not revoked."`
	LastUsedAt  *time.Time        `json:"last_used_at" doc:"When the key was last used; null if never."`
	RotatedFrom *string           `json:"rotated_from" doc:"Identifier of the key that this key replaced in a rotation; null if none."`
	Imported    bool              `json:"imported" doc:"Whether the key was imported, so that its string is not one of Keygate's. A rotation replaces it by one that is." example:"false"`
	RotatedTo   *string           `json:"rotated_to" doc:"Identifier of the key that replaced this key in a rotation; null if none."`
}

type importedKeys struct {
	Data []importedKeyRecord `json:"data" nullable:"false" doc:"The keys, in the order of the request."`
}

type importedKeyRecord struct {
	KeyRecord
	Warnings []string `json:"warnings" nullable:"false" doc:"strength_unknown if only the hash of the key was given, so that it may be short or easy to guess; and the warnings of createKey. Empty if there are none."`
}

// newKeyRecord is the only record that holds a key string. A response replayed for
// an Idempotency-Key omits it and says so in Message.
type newKeyRecord struct {
	KeyRecord
	Key           string     `json:"key,omitempty" doc:"The full key. It is returned only once, and is absent from a replayed response." example:"kg_4tQx9ZexampleexampleexampleexAmple"`
	OverlapEndsAt *time.Time `json:"overlap_ends_at,omitempty" doc:"After a rotation: when the old key expires."`
	Warnings      []string   `json:"warnings" nullable:"false" doc:"Likely mistakes: resources of the scopes of a gateway-level key under which no route of its gateway, or of the account, lies. Empty if there are none."`
	Message       string     `json:"message,omitempty" doc:"In a replayed response: why key is absent."`
}

type verificationRecord struct {
	Valid bool    `json:"valid" doc:"Whether the request would pass the checks of key, gateway and scope."`
	Code  *string `json:"code" enum:"key_invalid,key_expired,token_invalid,token_expired,scope_insufficient,owner_suspended" doc:"Why the request would be refused; null if valid is true."`
	KeyID *string `json:"key_id" doc:"Identifier of the key; null if the account has no such key."`
	Owner *string `json:"owner" doc:"Owner of the key, or the one that the token names; null if there is none."`
	Scope *string `json:"scope" doc:"Scopes of the key or of the token, separated by spaces." example:"read"`
	State *string `json:"state" enum:"active,expired,revoked" doc:"State of the key."`

	Reason    *string    `json:"reason" doc:"Why a token was refused, which its bearer is not told; null for keys, and for a token that passes its checks." example:"the claim aud has none of the issuer's audiences: it has \"web\""`
	IssuerID  *string    `json:"issuer_id" doc:"Issuer of the token; null for keys, and if the token was refused before its issuer was known." example:"iss_01jz8y5c3te9b8r2m6q4v7x0bb"`
	Subject   *string    `json:"subject" doc:"Subject of the token; null for keys and for a token that was refused. A subject of more than 255 bytes is shown as its SHA-256." example:"ada"`
	Plan      *string    `json:"plan" doc:"Plan that the token names; null for keys, and if it names none."`
	ExpiresAt *time.Time `json:"expires_at" doc:"When the token expires; null for keys and for a token that was refused."`
}

type accountKeyRecord struct {
	_     struct{} `nullable:"true"`
	KeyID string   `json:"key_id" doc:"Identifier of the key." example:"key_01jz8y5c3te9b8r2m6q4v7x0dd"`
	Name  string   `json:"name" doc:"Display name of the key." example:"admin"`
	Scope string   `json:"scope" doc:"Scopes of the key, separated by spaces." example:"admin"`
}

type sessionRecord struct {
	AccountID string             `json:"account_id" doc:"Identifier of the account." example:"acct_01jz8y5c3te9b8r2m6q4v7x0ee"`
	Key       *accountKeyRecord  `json:"key" doc:"The key that the session was created with. The session has its present scope, and ends with it. null for the session of a user."`
	User      *callingUserRecord `json:"user" doc:"The user who has signed in. The session has its present role. null for the session of a key."`
	ExpiresAt time.Time          `json:"expires_at" doc:"When the session ends. That of a user also ends after 2 hours without a call." example:"2026-07-01T21:00:00Z"`

	SignOutURL *string `json:"sign_out_url,omitempty" doc:"After the session of a user has ended: where the browser signs out at the identity provider too; absent if the provider has no such page." example:"https://login.example.com/logout"`
}

type settingsRecord struct {
	Version  string    `json:"version" doc:"Version of the server, as keygate version prints it." example:"v0.1.0"`
	Settings []Setting `json:"settings" nullable:"false" doc:"All settings of the installation."`
}

// Setting is one setting of the installation, as in GET /v1/settings. Its Value
// must not be a secret.
type Setting struct {
	Name   string `json:"name" doc:"Name of the setting, which is the name of its flag." example:"gateway-addr"`
	Value  string `json:"value" doc:"Current value; *** for a secret." example:"127.0.0.1:8080"`
	Source string `json:"source" enum:"default,file,environment,flag" doc:"Where the value comes from."`
}

type list[T any] struct {
	Data       []T     `json:"data" nullable:"false" doc:"One page of records, newest first."`
	NextCursor *string `json:"next_cursor" doc:"Cursor of the next page; null on the last page."`
}

// recordedList is a list of what nodes have recorded.
type recordedList[T any] struct {
	Data             []T     `json:"data" nullable:"false" doc:"One page of records, newest first."`
	NextCursor       *string `json:"next_cursor" doc:"Cursor of the next page; null on the last page."`
	Incomplete       bool    `json:"incomplete,omitempty" doc:"true if the newest records are missing, because the store did not take them; otherwise absent."`
	IncompleteReason string  `json:"incomplete_reason,omitempty" doc:"Why records are missing; absent if none are." example:"the newest records are missing, and are added as soon as the store takes them: the disk is full"`
}

// errorRecord describes the error body for the document. Package fault encodes the
// errors themselves.
type errorRecord struct {
	Error      string          `json:"error" doc:"Machine-readable error code." example:"validation_failed"`
	Message    string          `json:"message" doc:"What is wrong and how to fix it." example:"is required: add it"`
	Field      string          `json:"field,omitempty" doc:"Dotted path of the invalid field, or the name of the query parameter or header." example:"rate_limit.burst"`
	Errors     []problemRecord `json:"errors,omitempty" doc:"With 422, and with the 409 of an import: everything that is wrong, at most 50 items. The first has the same field and message as the error."`
	LeftOut    int             `json:"errors_left_out,omitempty" doc:"How many problems of a document or an import there are beyond errors. They are counted up to 950." example:"12"`
	Code       string          `json:"code,omitempty" enum:"key_invalid,key_expired,scope_insufficient,reauthentication_required" doc:"Only with 401 and 403: why the key was refused."`
	Limit      *int64          `json:"limit,omitempty" doc:"Only with 429: capacity of the limit that was exceeded."`
	Remaining  *int64          `json:"remaining,omitempty" doc:"Only with 429: remaining requests, which is 0."`
	ResetAt    *int64          `json:"reset_at,omitempty" doc:"Only with 429: when the request would pass, as a Unix time in seconds."`
	LimitScope string          `json:"limit_scope,omitempty" enum:"account" doc:"Only with 429: scope of the limit that was exceeded."`
	RequestID  string          `json:"request_id" doc:"Identifier of the request, also in the X-Request-Id header." example:"req_01jz8y5c3te9b8r2m6q4v7x0ff"`
}

// problemRecord describes one item of errors.
type problemRecord struct {
	Field   string `json:"field,omitempty" doc:"Dotted path of the invalid field, or the name of the query parameter or header." example:"rate_limit.burst"`
	Message string `json:"message" doc:"What is wrong and how to fix it." example:"is required: add it"`
	Line    int    `json:"line,omitempty" doc:"Only for a document: the line, from 1."`
	Column  int    `json:"column,omitempty" doc:"Only for a document: the column, from 1."`
}

// optionalText returns nil for "", else a pointer to s.
func optionalText(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// optionalNumber returns nil for 0, else a pointer to n.
func optionalNumber(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return &n
}

// optionalTime returns nil for the zero time, else a pointer to t in UTC.
func optionalTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// orEmpty returns s, or an empty slice for nil, which would be encoded as null.
func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

func rate(r ratelimit.Rate) *string { return optionalText(r.String()) }

func presentRoute(r *gateway.Route) routeRecord {
	return routeRecord{
		RouteID: r.ID, GatewayID: r.GatewayID, Path: r.Path, Methods: orEmpty(r.Methods),
		RateLimit: presentLimit(r.RateLimit), Concurrency: presentConcurrency(r.Concurrency), Cost: presentCost(r.Cost), Upstream: routeUpstream(r), Split: presentSplit(r.Split), HandlingRecord: presentHandling(r.Handling), Auth: string(r.Auth), Source: string(r.Source), CreatedAt: r.CreatedAt.UTC(),
		Warnings: gateway.RouteWarnings(r.Methods),
	}
}

func presentConcurrency(c ratelimit.Concurrency) *concurrencyRecord {
	if c.IsZero() {
		return nil
	}
	return &concurrencyRecord{Max: c.Max, Per: optionalText(c.Per)}
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
		Changed: presentChanges(p.Changed), Unchanged: p.Unchanged, Warnings: orEmpty(p.Warnings), Gateway: presentSettings(p.Settings),
	}
}

// presentSettings returns nil if there are none.
func presentSettings(changes []control.SettingChange) []settingChangeRecord {
	var out []settingChangeRecord
	for _, c := range changes {
		out = append(out, settingChangeRecord(c))
	}
	return out
}

func presentChanges(changes []control.RouteChange) []routeChangeRecord {
	out := make([]routeChangeRecord, len(changes))
	for i, c := range changes {
		out[i] = routeChangeRecord{Path: c.Path, Methods: orEmpty(c.Methods), RouteID: optionalText(c.RouteID), Changes: presentSettings(c.Changes)}
	}
	return out
}

func presentKey(k *apikey.Key, now time.Time) KeyRecord {
	r := KeyRecord{
		KeyID: k.ID, Name: k.Name, Level: string(k.Level), Scope: k.Scope.String(), KeyPrefix: k.Prefix,
		State: string(k.State(now)), Owner: optionalText(k.Owner), OwnerID: optionalText(k.OwnerID),
		PlanID: optionalText(k.PlanID), Plan: optionalText(k.Plan), GatewayID: optionalText(k.GatewayID), RateLimit: presentKeyLimit(k.RateLimit),
		Concurrency: optionalNumber(k.Concurrency), AllowIPs: k.Addresses.Allow, DenyIPs: k.Addresses.Deny,
		Metadata: k.Metadata, CreatedAt: k.CreatedAt.UTC(), ExpiresAt: optionalTime(k.ExpiresAt), RevokedAt: optionalTime(k.RevokedAt),
		LastUsedAt: optionalTime(k.LastUsedAt), RotatedFrom: optionalText(k.RotatedFrom), Imported: k.Imported, RotatedTo: optionalText(k.RotatedTo),
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
	if p := v.Principal; p != nil {
		scope, subject := p.Scopes.String(), p.RecordedSubject()
		r.IssuerID, r.Subject, r.Owner, r.Plan, r.Scope, r.ExpiresAt = &p.IssuerID, &subject, optionalText(p.Owner), optionalText(p.Plan), &scope, optionalTime(p.ExpiresAt)
	}
	if v.Refusal != nil {
		reason := v.Refusal.Error()
		r.Reason, r.IssuerID = &reason, optionalText(v.Refusal.IssuerID)
	}
	return r
}
