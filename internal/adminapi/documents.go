package adminapi

import (
	"bytes"
	"context"
	"net/http"
	"reflect"
	"slices"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

const (
	jsonType = "application/json"
	yamlType = "application/yaml"
	textType = "text/plain"
)

func dryRunParam() queryParam {
	return boolParam("dry_run", "If true, returns what the call would change, without changing anything.")
}

// boolParam returns a parameter that is true or false.
func boolParam(name, doc string) queryParam {
	return queryParam{
		name: name, doc: doc, schema: &huma.Schema{Type: huma.TypeBoolean},
		check: func(v string) error {
			if v != "true" && v != "false" {
				return fault.Invalid(name, "must be true or false")
			}
			return nil
		},
	}
}

func effectParam() queryParam {
	return boolParam("effect", "If true, with dry_run=true, also returns what the push would have done to the requests of the last 24 hours. "+
		"Needs a key whose scope also allows GET /v1/reports/traffic or the simulation of limits of the gateway. It counts as a search.")
}

func (a *API) documentOperations() []operation {
	push := reflect.TypeFor[pushRecord]()
	return []operation{{
		id: "getGatewaySpec", method: http.MethodGet, path: "/v1/gateways/{gateway_id}/spec", tag: "Documents",
		summary:     "Get the spec",
		description: "Returns the OpenAPI document that was pushed last, byte for byte. If the routes did not come from an OpenAPI document, the response is a 404.",
		success:     http.StatusOK, media: []string{yamlType, jsonType},
		run: a.getSpec,
	}, {
		id: "putGatewaySpec", method: http.MethodPut, path: "/v1/gateways/{gateway_id}/spec", tag: "Documents",
		summary: "Push a spec",
		description: "Replaces all routes of the gateway with one route for each operation of an OpenAPI 3.0, 3.1 or 3.2 document, as one revision. " +
			"If-Match takes the ETag of the gateway.",
		query: []queryParam{dryRunParam(), effectParam()}, document: true, maxBody: maxDocument, ifMatch: true,
		success: http.StatusOK, result: push, errors: []int{http.StatusConflict},
		run: func(c *call) (response, error) { return c.push(a.cfg.Control.PushSpec) },
	}, {
		id: "getGatewayConfig", method: http.MethodGet, path: "/v1/gateways/{gateway_id}/config", tag: "Documents",
		summary:     "Get the configuration",
		description: "Exports the gateway and its routes as a configuration file, which can be pushed again unchanged.",
		success:     http.StatusOK, media: []string{yamlType},
		run: a.getConfig,
	}, {
		id: "putGatewayConfig", method: http.MethodPut, path: "/v1/gateways/{gateway_id}/config", tag: "Documents",
		summary: "Push a configuration",
		description: "Applies a configuration file: updates the gateway and replaces all of its routes, as one revision. " +
			"If-Match takes the ETag of the gateway.",
		query: []queryParam{dryRunParam(), effectParam()}, document: true, maxBody: maxDocument, ifMatch: true,
		success: http.StatusOK, result: push, errors: []int{http.StatusConflict},
		run: func(c *call) (response, error) { return c.push(a.cfg.Control.PushConfiguration) },
	}}
}

func (a *API) getSpec(c *call) (response, error) {
	if err := c.takeDocumentSlot(); err != nil {
		return response{}, err
	}
	return respond(documentOf)(a.cfg.Control.Spec(c.ctx, &c.actor, c.params["gateway_id"]))
}

// documentOf returns the document of a revision as it was pushed.
func documentOf(r *gateway.Revision) response {
	mediaType := yamlType
	if bytes.HasPrefix(bytes.TrimLeft(r.Content, " \t\r\n"), []byte("{")) {
		mediaType = jsonType
	}
	return response{status: http.StatusOK, raw: r.Content}.with("Content-Type", mediaType)
}

func (a *API) getConfig(c *call) (response, error) {
	if err := c.takeDocumentSlot(); err != nil {
		return response{}, err
	}
	content, err := a.cfg.Control.Configuration(c.ctx, &c.actor, c.params["gateway_id"])
	if err != nil {
		return response{}, err
	}
	return response{status: http.StatusOK, raw: content}.with("Content-Type", yamlType), nil
}

// push calls f, one of the two push operations of package control.
func (c *call) push(f func(context.Context, *control.Actor, string, []byte, bool, control.Match) (*control.PushResult, error)) (response, error) {
	if err := c.checkEffect(); err != nil {
		return response{}, err
	}
	result, err := f(c.ctx, &c.actor, c.params["gateway_id"], c.body, c.query.Get("dry_run") == "true", c.match)
	if err != nil {
		return response{}, err
	}
	if c.query.Get("dry_run") != "true" && slices.ContainsFunc(result.Settings, func(s control.SettingChange) bool { return s.Field == "upstream_url" }) {
		result.Warnings = append(result.Warnings, c.unreachable(c.params["gateway_id"])...)
	}
	return c.withEffect(ok(presentPush(result)), result)
}

// wantsEffect reports whether the call asks for the effect of a change.
func (c *call) wantsEffect() bool { return c.query.Get("effect") == "true" }

// checkEffect checks that a call that asks for an effect is a dry run.
func (c *call) checkEffect() error {
	if c.wantsEffect() && c.query.Get("dry_run") != "true" {
		return fault.Invalid("effect", "needs dry_run=true: it is what the change would have done")
	}
	return nil
}

// withEffect returns res, the response to the push with the result r, with its effect if the call asks
// for it.
func (c *call) withEffect(res response, r *control.PushResult) (response, error) {
	if !c.wantsEffect() {
		return res, nil
	}
	e, err := searching(c, func() (*control.Effect, error) { return c.api.cfg.Control.Effect(c.ctx, &c.actor, r) })
	if err != nil {
		return response{}, err
	}
	record := presentPush(r)
	record.Effect = presentEffect(e, c.completeness.Missing)
	res.body = record
	return res, nil
}

func (a *API) revisionOperations() []operation {
	return []operation{{
		id: "listRevisions", method: http.MethodGet, path: "/v1/gateways/{gateway_id}/revisions", tag: "Revisions",
		summary: "List revisions", description: "Returns the pushes and rollbacks that changed the gateway's routes, newest first.",
		query: pageParams(), success: http.StatusOK, result: reflect.TypeFor[list[revisionRecord]](),
		run: a.listRevisions,
	}, {
		id: "getRevision", method: http.MethodGet, path: "/v1/gateways/{gateway_id}/revisions/{number}", tag: "Revisions",
		summary: "Get a revision", description: "Returns one revision. One that is no longer kept is a 404 that says how long revisions are kept.",
		success: http.StatusOK, result: reflect.TypeFor[revisionRecord](),
		run: ofRevision(a.getRevision),
	}, {
		id: "getRevisionContent", method: http.MethodGet, path: "/v1/gateways/{gateway_id}/revisions/{number}/content", tag: "Revisions",
		summary: "Get the document of a revision", description: "Returns the OpenAPI document or configuration file of a revision, with *** in the place of secrets.",
		success: http.StatusOK, media: []string{yamlType, jsonType},
		run: ofRevision(a.getRevisionContent),
	}, {
		id: "diffRevision", method: http.MethodGet, path: "/v1/gateways/{gateway_id}/revisions/{number}/diff", tag: "Revisions",
		summary: "Compare two revisions",
		description: "Returns what differs between two revisions, in the form of a push: what pushing this one would have changed while the revision from was in force. " +
			"Of the settings in a configuration file, it has those that this revision sets. Changes of single routes after a revision are not part of it.",
		query: []queryParam{{
			name: "from", doc: "Number of the revision to compare with. The default is the one before; 0 is the state before the first revision.",
			schema: &huma.Schema{Type: huma.TypeInteger, Format: "int64", Minimum: bound(0)}, example: 3,
			check: func(v string) error {
				if _, ok := revisionNumber(v); !ok && v != "0" {
					return fault.Invalid("from", "must be the number of a revision, or 0")
				}
				return nil
			},
		}},
		success: http.StatusOK, result: reflect.TypeFor[pushRecord](),
		run: ofRevision(a.diffRevision),
	}, {
		id: "rollbackRevision", method: http.MethodPost, path: "/v1/gateways/{gateway_id}/revisions/{number}/rollback", tag: "Revisions",
		summary: "Roll back to a revision",
		description: "Creates a new revision with the routes and rate limits of an old one. Takes no request body. " +
			"If-Match takes the ETag of the gateway.",
		query:      []queryParam{dryRunParam(), effectParam()},
		replayable: true, ifMatch: true, success: http.StatusOK, result: reflect.TypeFor[pushRecord](),
		run: ofRevision(a.rollback),
	}}
}

func (a *API) listRevisions(c *call) (response, error) {
	return page(c, "revisions", c.params["gateway_id"], func(p control.Page) ([]gateway.Revision, error) {
		var before int64
		if p.After != "" {
			var ok bool
			if before, ok = revisionNumber(p.After); !ok {
				return nil, invalidCursor()
			}
		}
		return a.cfg.Control.Revisions(c.ctx, &c.actor, c.params["gateway_id"], p.Limit, before)
	}, func(r *gateway.Revision) (string, revisionRecord) {
		return strconv.FormatInt(r.Number, 10), presentRevision(r)
	})
}

// ofRevision returns the run function of a call for the revision that its path names.
func ofRevision(run func(c *call, number int64) (response, error)) func(c *call) (response, error) {
	return func(c *call) (response, error) {
		n, valid := revisionNumber(c.params["number"])
		if !valid {
			return response{}, fault.Missing("revision")
		}
		return run(c, n)
	}
}

func (a *API) getRevision(c *call, n int64) (response, error) {
	return show(presentRevision)(a.cfg.Control.RevisionRecord(c.ctx, &c.actor, c.params["gateway_id"], n))
}

func (a *API) getRevisionContent(c *call, n int64) (response, error) {
	if err := c.takeDocumentSlot(); err != nil {
		return response{}, err
	}
	return respond(documentOf)(a.cfg.Control.Revision(c.ctx, &c.actor, c.params["gateway_id"], n))
}

func (a *API) diffRevision(c *call, to int64) (response, error) {
	if err := c.takeDocumentSlot(); err != nil {
		return response{}, err
	}
	from := to - 1
	if v := c.query.Get("from"); v != "" {
		from, _ = revisionNumber(v)
	}
	return show(presentPush)(a.cfg.Control.CompareRevisions(c.ctx, &c.actor, c.params["gateway_id"], from, to))
}

func (a *API) rollback(c *call, n int64) (response, error) {
	if err := c.checkEffect(); err != nil {
		return response{}, err
	}
	if err := c.takeDocumentSlot(); err != nil {
		return response{}, err
	}
	present := func(p *control.PushResult) response { return ok(presentPush(p)) }
	result, err := a.cfg.Control.Rollback(withIdempotency(c, present), &c.actor, c.params["gateway_id"], n, c.query.Get("dry_run") == "true", c.match)
	if err != nil {
		return response{}, err
	}
	return c.withEffect(present(result), result)
}

// revisionNumber parses the number of a revision. It accepts only the canonical
// spelling, without a sign or leading zeros.
func revisionNumber(s string) (n int64, ok bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && n > 0 && strconv.FormatInt(n, 10) == s
}
