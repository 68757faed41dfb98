package adminapi

import (
	"encoding/hex"
	"net/http"
	"reflect"
	"time"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/control"
)

// auditEntryRecord is one record of the audit log (contract, section 7).
type auditEntryRecord struct {
	Time      time.Time `json:"time" doc:"When the event occurred."`
	Kind      string    `json:"kind" enum:"authentication,management" doc:"authentication for a use of an API key, whether with a gateway or with this API; management for a change made through this API."`
	Outcome   string    `json:"outcome" enum:"success,key_invalid,key_expired,scope_insufficient,address_not_allowed" doc:"Outcome of the authentication. success means that the request was not refused because of its key or scope, whatever its status."`
	KeyPrefix *string   `json:"key_prefix" doc:"Start of the key that was used; null if there was none, or it was not a well-formed key." example:"kg_4tQx9Z"`
	KeyID     *string   `json:"key_id" doc:"Identifier of the key; also of an expired key, and of one that was revoked within the 24 hours before; null if the account has no such key." example:"key_01jz8y5c3te9b8r2m6q4v7x0dd"`
	GatewayID *string   `json:"gateway_id" doc:"Gateway that was called; null for a call of this API." example:"gw_01jz8y5c3te9b8r2m6q4v7x0aa"`

	Credential *string `json:"credential" enum:"key,token,user" doc:"What the request had: key, token for a token of an issuer of the gateway, or user for the session of one; null for none of them. A token that failed a check has the outcome key_expired if it had expired, and otherwise key_invalid; the reason is in GET /v1/requests." example:"key"`
	IssuerID   *string `json:"issuer_id" doc:"Issuer of the token; null without a token, and for one that was refused before its issuer was known." example:"iss_01jz8y5c3te9b8r2m6q4v7x0bb"`
	Subject    *string `json:"subject" doc:"Subject of the token, or identifier of the user; null without a token, and for one that was refused. A subject of more than 255 bytes is shown as its SHA-256." example:"ada"`

	Method    string `json:"method" doc:"HTTP method." example:"GET"`
	Path      string `json:"path" doc:"Path without the query." example:"/orders/17"`
	ClientIP  string `json:"client_ip" doc:"IP address of the client." example:"203.0.113.7"`
	RequestID string `json:"request_id" doc:"Identifier of the request." example:"req_01jz8y5c3te9b8r2m6q4v7x0ff"`
	Count     int64  `json:"count" doc:"Number of events that the record stands for: 1, or, if an address had more than 60 refused authentications (401) in a minute, the number of those beyond. time, method, path, client_ip and request_id are then those of the first of them, and key_prefix, key_id, gateway_id, issuer_id and subject are null if they are not the same in all; an IPv6 address stands for its /64. While the minute runs, the number grows." example:"1"`
	*AuditAction
}

// AuditAction holds the fields that only records of kind management have. It is
// exported so that it can be embedded; see KeyRecord.
type AuditAction struct {
	Action     string            `json:"action" required:"false" doc:"Only in management records: what was done." example:"key.create"`
	Target     string            `json:"target" required:"false" doc:"Only in management records: identifier of the record that was changed." example:"key_01jz8y5c3te9b8r2m6q4v7x0dd"`
	ActorKeyID *string           `json:"actor_key_id" required:"false" doc:"Only in management records: identifier of the calling key; null for a command run on the server's machine, and for a change that the server made itself." example:"key_01jz8y5c3te9b8r2m6q4v7x0dd"`
	Actor      *auditActor       `json:"actor" required:"false" doc:"Only in management records: who made the change; null in records of versions that did not store it."`
	Diff       map[string][2]any `json:"diff" required:"false" nullable:"false" doc:"Only in management records: the changed fields, each with its value before and after. A secret is shown as ***. In the place of a value of more than 4,096 bytes of JSON there is an object: omitted (true), bytes, and sha256 of its JSON with sorted keys and without white space."`
}

type auditActor struct {
	_    struct{} `nullable:"true"`
	Kind string   `json:"kind" enum:"key,user,offline,repository,canary,system" doc:"What made the change: a key, a user, a command on the server's machine, the repository that a gateway follows, Keygate as it judges a canary, or Keygate itself."`
	ID   *string  `json:"id" doc:"Identifier of the key or user; null for others." example:"usr_01jz8y5c3te9b8r2m6q4v7x0dd"`
	Name *string  `json:"name" doc:"Name of the user at the time of the change; null for others." example:"Ada Lovelace"`
}

type auditHeadRecord struct {
	Number int64      `json:"number" doc:"Number of the last sealed block in the account's chain, starting at 1; 0 if there is none yet." example:"17"`
	Digest *string    `json:"digest" doc:"Digest of that block, in hexadecimal. Pass it to keygate audit-log verify --head to detect changes to this and all earlier blocks. null if there is none yet." example:"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"`
	Time   *time.Time `json:"time" doc:"When the block was sealed; null if there is none yet."`
	// The records behind the chain, which it does not protect yet.
	Unsealed int64      `json:"unsealed" doc:"Number of records that are in no block yet: the chain does not protect them." example:"12"`
	SealedBy *time.Time `json:"sealed_by" doc:"By when these are sealed; null if there are none."`
}

func auditFilters() []queryParam {
	return append([]queryParam{
		enumParam("kind", "Only records of this kind.", string(audit.Authentication), string(audit.Management)),
		enumParam("outcome", "Only records with this outcome.", string(audit.Success), string(audit.KeyInvalid), string(audit.KeyExpired), string(audit.ScopeInsufficient), string(audit.AddressNotAllowed)),
		boolParam("notable", "If true, only changes and refusals, without the authentications that succeeded."),
		{name: "key_prefix", doc: "Only records of keys with this prefix.", schema: textSchema(), example: "kg_4tQx9Z"},
		{name: "key_id", doc: "Only records of this key.", schema: textSchema(), example: "key_01jz8y5c3te9b8r2m6q4v7x0dd"},
		{name: "gateway_id", doc: "Only records of this gateway.", schema: textSchema(), example: "gw_01jz8y5c3te9b8r2m6q4v7x0aa"},
		{name: "actor", doc: "Only changes by this key or user (an identifier), or by this kind of another actor (offline, repository, canary, system).", schema: textSchema(), example: "key_01jz8y5c3te9b8r2m6q4v7x0dd"},
	}, timeRangeParams("records")...)
}

func (a *API) auditOperations() []operation {
	return []operation{{
		id: "listAuditLog", method: http.MethodGet, path: "/v1/audit-log", tag: "Audit log",
		summary: "List the audit log",
		description: "Returns audit records, newest first: each authentication with its outcome, for gateways and for this API, and each change made through this API. The log is complete up to the time of the call. " +
			"With format, returns all matching records as they are at the time of the call, oldest first, in one response that may be of any length; it counts as one call of the rate limit. At most 2 such responses at a time for each account, and 8 in all; one more is a 429. A response that does not end properly is not complete. One that lacks the newest records, because the store did not take them, has the header X-Keygate-Incomplete with the reason.",
		query: auditQuery(), success: http.StatusOK, result: reflect.TypeFor[recordedList[auditEntryRecord]](), media: []string{jsonlType, csvType},
		run: a.listAuditLog,
	}, {
		id: "getAuditHead", method: http.MethodGet, path: "/v1/audit-log/head", tag: "Audit log",
		summary:     "Get the head of the audit log",
		description: "Returns the end of the hash chain over the sealed blocks of the account's audit log, and how many records are not sealed yet. If you store it elsewhere, you can later prove that no earlier record was changed or removed.",
		success:     http.StatusOK, result: reflect.TypeFor[auditHeadRecord](),
		run: a.getAuditHead,
	}}
}

func (a *API) listAuditLog(c *call) (response, error) {
	since, until, err := c.timeRange()
	if err != nil {
		return response{}, err
	}
	f := audit.Filter{
		Kind: audit.Kind(c.query.Get("kind")), Outcome: audit.Outcome(c.query.Get("outcome")), Notable: c.query.Get("notable") == "true", KeyPrefix: c.query.Get("key_prefix"),
		KeyID: c.query.Get("key_id"), GatewayID: c.query.Get("gateway_id"), Actor: c.query.Get("actor"), Since: since, Until: until,
	}
	if c.query.Has("format") {
		return a.exportAuditLog(c, f)
	}
	return page(c, "audit-log", c.cursorBinding(auditFilters()), func(p control.Page) ([]audit.Record, error) {
		return searching(c, func() ([]audit.Record, error) { return a.cfg.Control.AuditLog(c.ctx, &c.actor, f, p) })
	}, func(r *audit.Record) (string, auditEntryRecord) { return r.Cursor, presentAudit(r) })
}

func (a *API) getAuditHead(c *call) (response, error) {
	end, err := a.cfg.Control.AuditHead(c.ctx, &c.actor)
	if err != nil {
		return response{}, err
	}
	h := &end.Head
	r := auditHeadRecord{Number: h.Number, Unsealed: end.Open.Total(), SealedBy: optionalTime(end.Open.SealedBy())}
	if h.Number > 0 {
		r.Digest, r.Time = optionalText(hex.EncodeToString(h.Digest[:])), optionalTime(h.Time)
	}
	return ok(r), nil
}

func presentAudit(r *audit.Record) auditEntryRecord {
	out := auditEntryRecord{
		Time: r.Time.UTC(), Kind: string(r.Kind), Outcome: string(r.Outcome), KeyPrefix: optionalText(r.KeyPrefix), KeyID: optionalText(r.KeyID),
		GatewayID: optionalText(r.GatewayID), Credential: optionalText(r.Credential()), IssuerID: optionalText(r.IssuerID), Subject: optionalText(r.Subject), Method: r.Method, Path: r.Path, ClientIP: r.ClientIP, RequestID: r.RequestID,
		Count: max(1, r.Count),
	}
	if r.Kind == audit.Management {
		out.AuditAction = &AuditAction{Action: string(r.Action), Target: r.Target, ActorKeyID: optionalText(r.ActorKeyID), Diff: r.Diff}
		if by := r.By(); by.Kind != "" {
			out.Actor = &auditActor{Kind: string(by.Kind), ID: optionalText(by.ID), Name: optionalText(by.Name)}
		}
		if out.Diff == nil {
			out.Diff = map[string][2]any{}
		}
	}
	return out
}
