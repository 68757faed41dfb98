package adminapi

import (
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// Document returns the OpenAPI 3.1 document of the API. It is made from the
// same operations and types that serve the calls.
func Document() *huma.OpenAPI {
	doc, _ := describe((&API{}).operations())
	return doc
}

// ClientDocument returns the document that the Go client is generated from: the
// same calls and records, with one face for all failures of a call and without
// what a generator would only make bulk of.
func ClientDocument() *huma.OpenAPI {
	doc := Document()
	failure := &huma.Response{Description: "The call failed.", Content: map[string]*huma.MediaType{
		jsonType: {Schema: &huma.Schema{Ref: schemaPrefix + "Error"}},
	}}
	for _, item := range doc.Paths {
		for _, op := range []*huma.Operation{item.Get, item.Put, item.Post, item.Patch, item.Delete} {
			if op == nil {
				continue
			}
			for status, r := range op.Responses {
				if r.Ref != "" {
					delete(op.Responses, status)
					continue
				}
				r.Headers = nil
				if r.Content[jsonType] == nil || r.Content[jsonType].Schema.Ref == "" {
					r.Content = nil
				}
			}
			op.Responses["default"] = failure
		}
	}
	doc.Components.Responses, doc.Components.Headers, doc.Components.Parameters, doc.Webhooks = nil, nil, nil, nil
	for _, s := range doc.Components.Schemas.Map() {
		for _, p := range s.Properties {
			p.Enum = slices.DeleteFunc(p.Enum, func(v any) bool { return v == nil }) // nullable says it
		}
	}
	return doc
}

const schemaPrefix = "#/components/schemas/"

// describe makes the document, and gives each operation with a JSON body the
// schema to check it against.
func describe(ops []operation) (*huma.OpenAPI, map[string]*huma.Schema) {
	registry := huma.NewMapRegistry(schemaPrefix, schemaName)
	doc := &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{
			Title:       "Keygate management API",
			Version:     "1",
			Description: "Creates gateways in front of HTTP services, manages the API keys that open them, and configures their routes and rate limits.",
			License:     &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"},
		},
		Servers:  []*huma.Server{{URL: "http://127.0.0.1:8081", Description: "A server on this machine."}},
		Security: []map[string][]string{{"bearer": {}}},
		Tags: []*huma.Tag{
			{Name: "Gateways", Description: "What stands in front of an upstream service."},
			{Name: "Documents", Description: "OpenAPI documents and configuration files that make a gateway's routes."},
			{Name: "Revisions", Description: "The pushes that changed a gateway's routes."},
			{Name: "Routes", Description: "What a gateway lets through, and its limits."},
			{Name: "Keys", Description: "API keys of both planes."},
			{Name: "Webhooks", Description: "Addresses of yours that are told of events."},
			{Name: "Webhook deliveries", Description: "What was sent to them, and what came back."},
			{Name: "Events", Description: "What happened to keys and gateways."},
			{Name: "Limits", Description: "Where rate limits stand, and what others would have done."},
			{Name: "Audit log", Description: "Who presented a key, and who changed what."},
			{Name: "Traffic", Description: "How much was called, how fast, and why requests were refused."},
			{Name: "Account", Description: "The account and the installation."},
			{Name: "Document", Description: "This document."},
		},
		Components: &huma.Components{
			Schemas: registry,
			SecuritySchemes: map[string]*huma.SecurityScheme{"bearer": {
				Type: "http", Scheme: "bearer", BearerFormat: "kga_…",
				Description: "An account-level API key. GET needs the scope read; POST, PUT and PATCH write; DELETE admin. " +
					"A scope with a resource covers the paths below /v1 that begin with it, by whole segments.",
			}},
			Headers:    commonHeaders(),
			Parameters: map[string]*huma.Param{},
			Responses:  failures(registry),
		},
	}
	bodies := map[string]*huma.Schema{}
	for i := range ops {
		doc.AddOperation(ops[i].describe(registry))
		if t := ops[i].body; t != nil {
			bodies[ops[i].id] = registry.Schema(t, true, "")
		}
	}
	for _, f := range signatureHeaders() {
		doc.Components.Parameters[f.Name] = f
	}
	doc.Webhooks = describeEvents(registry)
	for _, s := range registry.Map() {
		allowNull(s)
	}
	return doc, bodies
}

// schemaName gives a type its name in the document: gatewayRecord is Gateway,
// list[gatewayRecord] is GatewayList.
func schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	if item, found := strings.CutPrefix(name, "List"); found {
		return strings.TrimSuffix(item, "Record") + "List"
	}
	return strings.TrimSuffix(name, "Record")
}

// allowNull adds null to the values of an enumeration that may be null, as JSON
// Schema wants it.
func allowNull(s *huma.Schema) {
	for _, p := range s.Properties {
		if p.Nullable && len(p.Enum) > 0 && !slices.Contains(p.Enum, nil) {
			p.Enum = append(p.Enum, nil)
		}
	}
}

func (o *operation) describe(registry huma.Registry) *huma.Operation {
	op := &huma.Operation{
		Method: o.method, Path: o.path, OperationID: o.id, Tags: []string{o.tag}, Summary: o.summary, Description: o.description,
		Responses: map[string]*huma.Response{strconv.Itoa(o.success): o.describeSuccess(registry)},
	}
	if o.public {
		op.Security = []map[string][]string{{}}
	}
	for segment := range strings.SplitSeq(o.path, "/") {
		if name, found := strings.CutPrefix(segment, "{"); found {
			op.Parameters = append(op.Parameters, pathParam(strings.TrimSuffix(name, "}")))
		}
	}
	for _, q := range o.query {
		op.Parameters = append(op.Parameters, &huma.Param{Name: q.name, In: "query", Description: q.doc, Schema: q.schema, Example: q.example})
	}
	if o.ifMatch {
		op.Parameters = append(op.Parameters, &huma.Param{
			Name: "If-Match", In: "header", Description: "ETags that the record may have, or *; otherwise the call is a 412.",
			Schema: &huma.Schema{Type: huma.TypeString}, Example: `"3"`,
		})
	}
	if o.replayable {
		op.Parameters = append(op.Parameters, &huma.Param{
			Name: "Idempotency-Key", In: "header",
			Description: "1 to 255 printable characters. The same call with the same value gets the first answer again for 24 hours, without secrets.",
			Schema:      &huma.Schema{Type: huma.TypeString}, Example: "3f1c8e0a-create-orders",
		})
	}
	if o.isPush() {
		op.Parameters = append(op.Parameters, &huma.Param{
			Name: "X-Keygate-Source", In: "header", Description: "What makes the push: cli or dashboard; anything else is api.",
			Schema: &huma.Schema{Type: huma.TypeString}, Example: "cli",
		})
	}
	switch {
	case o.body != nil:
		op.RequestBody = &huma.RequestBody{Required: !o.bodyOptional, Content: map[string]*huma.MediaType{
			jsonType: {Schema: registry.Schema(o.body, true, "")},
		}}
	case o.document:
		op.RequestBody = &huma.RequestBody{Required: true, Description: "The document itself.", Content: map[string]*huma.MediaType{
			yamlType: {Schema: &huma.Schema{Type: huma.TypeString}},
			textType: {Schema: &huma.Schema{Type: huma.TypeString}},
			jsonType: {Schema: &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}},
		}}
	}
	for _, status := range o.failures() {
		op.Responses[strconv.Itoa(status)] = &huma.Response{Ref: "#/components/responses/" + responseName(status)}
	}
	return op
}

// isPush reports whether the call makes a revision.
func (o *operation) isPush() bool { return o.document || o.id == "rollbackRevision" }

func (o *operation) describeSuccess(registry huma.Registry) *huma.Response {
	r := &huma.Response{Description: http.StatusText(o.success), Headers: map[string]*huma.Param{}, Content: map[string]*huma.MediaType{}}
	names := []string{"X-Request-Id"}
	if !o.public {
		names = append(names, "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "RateLimit-Policy", "RateLimit")
	}
	if o.hasETag {
		names = append(names, "ETag")
	}
	if o.hasLocation {
		names = append(names, "Location")
	}
	if o.replayable {
		names = append(names, "Idempotent-Replayed")
	}
	for _, name := range names {
		r.Headers[name] = &huma.Param{Ref: "#/components/headers/" + name}
	}
	for _, t := range o.media {
		s := &huma.Schema{Type: huma.TypeString}
		if t == jsonType {
			s = &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}
		}
		r.Content[t] = &huma.MediaType{Schema: s}
	}
	if o.result != nil {
		r.Content[jsonType] = &huma.MediaType{Schema: registry.Schema(o.result, true, "")}
	}
	return r
}

// failures lists the statuses that the call may fail with, in rising order.
func (o *operation) failures() []int {
	out := append([]int{http.StatusUnprocessableEntity, http.StatusInternalServerError}, o.errors...)
	if o.public {
		return out
	}
	out = append(out, http.StatusUnauthorized, http.StatusTooManyRequests, http.StatusServiceUnavailable)
	if !o.anyScope {
		out = append(out, http.StatusForbidden)
	}
	if strings.Contains(o.path, "{") {
		out = append(out, http.StatusNotFound)
	}
	if o.body != nil || o.document {
		out = append(out, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusBadRequest)
	}
	if o.replayable {
		out = append(out, http.StatusConflict, http.StatusBadRequest)
	}
	if o.ifMatch {
		out = append(out, http.StatusPreconditionFailed, http.StatusBadRequest)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func pathParam(name string) *huma.Param {
	p := &huma.Param{Name: name, In: "path", Required: true, Schema: &huma.Schema{Type: huma.TypeString}}
	switch name {
	case "gateway_id":
		p.Description, p.Example = "Identifier of the gateway.", "gw_01jz8y5c3te9b8r2m6q4v7x0aa"
	case "route_id":
		p.Description, p.Example = "Identifier of the route.", "rt_01jz8y5c3te9b8r2m6q4v7x0bb"
	case "key_id":
		p.Description, p.Example = "Identifier of the key.", "key_01jz8y5c3te9b8r2m6q4v7x0dd"
	case "webhook_id":
		p.Description, p.Example = "Identifier of the endpoint.", "wh_01jz8y5c3te9b8r2m6q4v7x0gg"
	case "delivery_id":
		p.Description, p.Example = "Identifier of the delivery.", "dlv_01jz8y5c3te9b8r2m6q4v7x0hh"
	case "event_id":
		p.Description, p.Example = "Identifier of the event.", "evt_01jz8y5c3te9b8r2m6q4v7x0jj"
	case "request_id":
		p.Description, p.Example = "Identifier of the request.", "req_01jz8y5c3te9b8r2m6q4v7x0ff"
	case "number":
		p.Description, p.Example = "Number of the revision.", 3
		p.Schema = &huma.Schema{Type: huma.TypeInteger, Format: "int64", Minimum: bound(1)}
	}
	return p
}

func commonHeaders() map[string]*huma.Param {
	field := func(typ, doc string, example any) *huma.Param {
		s := &huma.Schema{Type: typ}
		if typ == huma.TypeInteger {
			s.Format = "int64"
		}
		return &huma.Param{Description: doc, Schema: s, Example: example}
	}
	return map[string]*huma.Param{
		"X-Request-Id":          field(huma.TypeString, "Identifier of the request.", "req_01jz8y5c3te9b8r2m6q4v7x0ff"),
		"X-RateLimit-Limit":     field(huma.TypeInteger, "Capacity of the calling key's limit.", 200),
		"X-RateLimit-Remaining": field(huma.TypeInteger, "Requests left.", 199),
		"X-RateLimit-Reset":     field(huma.TypeInteger, "Unix second at which the limit is full again; of a 429, at which the request would pass.", 1893456000),
		"RateLimit-Policy":      field(huma.TypeString, "The limit, as in the IETF draft.", `"account";q=200;w=2`),
		"RateLimit":             field(huma.TypeString, "Where the limit stands, as in the IETF draft.", `"account";r=199;t=1`),
		"Retry-After":           field(huma.TypeInteger, "Whole seconds to wait.", 1),
		"WWW-Authenticate":      field(huma.TypeString, "The scheme to authenticate with.", "Bearer"),
		"ETag":                  field(huma.TypeString, "Version of the record, for If-Match.", `"3"`),
		"Location":              field(huma.TypeString, "Path of the new record.", "/v1/keys/key_01jz8y5c3te9b8r2m6q4v7x0dd"),
		"Idempotent-Replayed":   field(huma.TypeString, "true if this is the kept answer to an earlier call with the same Idempotency-Key.", "true"),
	}
}

// failures describes each status that a call may fail with.
func failures(registry huma.Registry) map[string]*huma.Response {
	schema := registry.Schema(reflect.TypeFor[errorRecord](), true, "")
	out := map[string]*huma.Response{}
	for _, f := range []struct {
		status                int
		doc, code, auth, text string
		field                 string
		headers               []string
	}{
		{http.StatusBadRequest, "The body is not JSON, or a header field has no meaning.", "invalid_json", "", "the body is not valid JSON", "", nil},
		{http.StatusUnauthorized, "The key is missing, invalid or expired.", "unauthorized", "key_invalid", "the key is not a valid account-level API key: check it, or create another", "", []string{"WWW-Authenticate"}},
		{http.StatusForbidden, "The key's scope does not allow the call.", "forbidden", "scope_insufficient", "the key's scope does not allow this call", "", nil},
		{http.StatusNotFound, "There is no such record in the account.", "not_found", "", "there is no such gateway", "", nil},
		{http.StatusConflict, "The state of a record forbids the call.", "conflict", "", "the hostname is taken", "hostname", nil},
		{http.StatusPreconditionFailed, "If-Match does not hold.", "precondition_failed", "", "the record has changed: get it again", "", nil},
		{http.StatusRequestEntityTooLarge, "The body is too large.", "body_too_large", "", "the body may have at most 1048576 bytes", "", nil},
		{http.StatusUnsupportedMediaType, "The Content-Type is not one that the call takes.", "unsupported_media_type", "", "send the body with Content-Type: application/json", "", nil},
		{http.StatusUnprocessableEntity, "A member, parameter or header field is missing or wrong.", "validation_failed", "", "is required", "name", nil},
		{http.StatusTooManyRequests, "The calling key's limit is used up.", "rate_limit_exceeded", "", "too many requests with this key", "", []string{"Retry-After"}},
		{http.StatusInternalServerError, "Something went wrong inside.", "internal", "", "an internal error happened", "", nil},
		{http.StatusServiceUnavailable, "The server cannot do it now.", "unavailable", "", "the store is not available", "", nil},
	} {
		example := map[string]any{"error": f.code, "message": f.text, "request_id": "req_01jz8y5c3te9b8r2m6q4v7x0ff"}
		if f.auth != "" {
			example["code"] = f.auth
		}
		if f.field != "" {
			example["field"] = f.field
		}
		if f.status == http.StatusTooManyRequests {
			example["limit"], example["remaining"], example["reset_at"], example["limit_scope"] = 200, 0, 1893456000, "account"
		}
		r := &huma.Response{Description: f.doc, Headers: map[string]*huma.Param{}, Content: map[string]*huma.MediaType{
			jsonType: {Schema: schema, Example: example},
		}}
		for _, name := range append([]string{"X-Request-Id"}, f.headers...) {
			r.Headers[name] = &huma.Param{Ref: "#/components/headers/" + name}
		}
		out[responseName(f.status)] = r
	}
	return out
}

func responseName(status int) string { return strings.ReplaceAll(http.StatusText(status), " ", "") }
