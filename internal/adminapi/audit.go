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
	Time      time.Time `json:"time" doc:"When it happened."`
	Kind      string    `json:"kind" enum:"authentication,management" doc:"A key that was presented on either plane, or a change made through this API."`
	Outcome   string    `json:"outcome" enum:"success,key_invalid,key_expired,scope_insufficient" doc:"How the authentication ended: success is whatever was not refused for its key or scope."`
	KeyPrefix *string   `json:"key_prefix" doc:"Tag and first characters of the key that was presented; null if what was presented has no key's form." example:"kg_4tQx9Z"`
	KeyID     *string   `json:"key_id" doc:"Identifier of the key; null if the account has no such key." example:"key_01jz8y5c3te9b8r2m6q4v7x0dd"`
	GatewayID *string   `json:"gateway_id" doc:"Gateway that was called; null for this API." example:"gw_01jz8y5c3te9b8r2m6q4v7x0aa"`
	Method    string    `json:"method" doc:"HTTP method." example:"GET"`
	Path      string    `json:"path" doc:"Path without the query." example:"/orders/17"`
	ClientIP  string    `json:"client_ip" doc:"Address of the caller." example:"203.0.113.7"`
	RequestID string    `json:"request_id" doc:"Identifier of the request." example:"req_01jz8y5c3te9b8r2m6q4v7x0ff"`
	*AuditAction
}

// AuditAction is what a record of the kind management has beside the others; a
// record of another kind has none of it. It is exported so that it can be
// embedded.
type AuditAction struct {
	Action     string            `json:"action" required:"false" doc:"Of management alone: what was done." example:"key.create"`
	Target     string            `json:"target" required:"false" doc:"Of management alone: identifier of the record acted on." example:"key_01jz8y5c3te9b8r2m6q4v7x0dd"`
	ActorKeyID *string           `json:"actor_key_id" required:"false" doc:"Of management alone: identifier of the calling key; null for a command on the server's own machine, and for what the server does by itself." example:"key_01jz8y5c3te9b8r2m6q4v7x0dd"`
	Diff       map[string][2]any `json:"diff" required:"false" nullable:"false" doc:"Of management alone: each field that changed, with its values before and after; a secret stands as ***."`
}

type auditHeadRecord struct {
	Number int64      `json:"number" doc:"Number of the last sealed block of the account's chain, from 1; 0 before the first." example:"17"`
	Digest *string    `json:"digest" doc:"Digest of that block in hexadecimal: with it, keygate audit-log verify --head finds any change of the blocks up to here; null before the first." example:"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"`
	Time   *time.Time `json:"time" doc:"When the block was sealed; null before the first."`
}

func auditFilters() []queryParam {
	return append([]queryParam{
		enumParam("kind", "Only records of this kind.", string(audit.Authentication), string(audit.Management)),
		enumParam("outcome", "Only records with this outcome.", string(audit.Success), string(audit.KeyInvalid), string(audit.KeyExpired), string(audit.ScopeInsufficient)),
		{name: "key_prefix", doc: "Only records of keys with this prefix.", schema: textSchema(), example: "kg_4tQx9Z"},
		{name: "key_id", doc: "Only records of this key.", schema: textSchema(), example: "key_01jz8y5c3te9b8r2m6q4v7x0dd"},
		{name: "gateway_id", doc: "Only records of this gateway.", schema: textSchema(), example: "gw_01jz8y5c3te9b8r2m6q4v7x0aa"},
		{name: "actor", doc: "Only management records of this calling key.", schema: textSchema(), example: "key_01jz8y5c3te9b8r2m6q4v7x0dd"},
	}, timeRangeParams("records")...)
}

func (a *API) auditOperations() []operation {
	return []operation{{
		id: "listAuditLog", method: http.MethodGet, path: "/v1/audit-log", tag: "Audit log",
		summary:     "List the audit log",
		description: "Lists who presented a key on either plane, with what result, and who changed what, newest first. Complete up to the moment of the call.",
		query:       append(pageParams(), auditFilters()...), success: http.StatusOK, result: reflect.TypeFor[list[auditEntryRecord]](),
		run: a.listAuditLog,
	}, {
		id: "getAuditHead", method: http.MethodGet, path: "/v1/audit-log/head", tag: "Audit log",
		summary:     "Get the head of the audit log",
		description: "Gives the end of the hash chain of the account's sealed blocks. Whoever keeps it elsewhere can prove later that no older record was altered or removed.",
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
		Kind: audit.Kind(c.query.Get("kind")), Outcome: audit.Outcome(c.query.Get("outcome")), KeyPrefix: c.query.Get("key_prefix"),
		KeyID: c.query.Get("key_id"), GatewayID: c.query.Get("gateway_id"), Actor: c.query.Get("actor"), Since: since, Until: until,
	}
	return page(c, "audit-log", c.cursorBinding(auditFilters()), func(p control.Page) ([]audit.Record, error) {
		return a.cfg.Control.AuditLog(c.ctx, &c.caller, f, p)
	}, func(r *audit.Record) (string, auditEntryRecord) { return r.Place, presentAudit(r) })
}

func (a *API) getAuditHead(c *call) (response, error) {
	h, err := a.cfg.Control.AuditHead(c.ctx, &c.caller)
	if err != nil {
		return response{}, err
	}
	r := auditHeadRecord{Number: h.Number}
	if h.Number > 0 {
		r.Digest, r.Time = optionalText(hex.EncodeToString(h.Digest[:])), optionalTime(h.Time)
	}
	return ok(r), nil
}

func presentAudit(r *audit.Record) auditEntryRecord {
	out := auditEntryRecord{
		Time: r.Time.UTC(), Kind: string(r.Kind), Outcome: string(r.Outcome), KeyPrefix: optionalText(r.KeyPrefix), KeyID: optionalText(r.KeyID),
		GatewayID: optionalText(r.GatewayID), Method: r.Method, Path: r.Path, ClientIP: r.ClientIP, RequestID: r.RequestID,
	}
	if r.Kind == audit.Management {
		out.AuditAction = &AuditAction{Action: string(r.Action), Target: r.Target, ActorKeyID: optionalText(r.ActorKeyID), Diff: r.Diff}
		if out.Diff == nil {
			out.Diff = map[string][2]any{}
		}
	}
	return out
}
