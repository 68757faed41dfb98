package adminapi

import (
	_ "embed"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/keygate/keygate/internal/cookie"
	"github.com/keygate/keygate/internal/gateway"
)

// overview is the description of the API as a whole, in Markdown.
//
//go:embed overview.md
var overview string

// Document returns the OpenAPI 3.1 document of the API. It is derived from the
// operations and types that serve the calls.
func Document() *huma.OpenAPI {
	doc, _ := describe((&API{}).operations())
	return doc
}

// ClientDocument returns the document that the Go client is generated from. It has
// the same calls and records, but a single error response for each call, and none
// of the headers, parameters and webhooks, for which the generator would write
// code that the client does not use.
func ClientDocument() *huma.OpenAPI {
	doc := Document()
	failure := &huma.Response{Description: "The request failed.", Content: map[string]*huma.MediaType{
		jsonType: {Schema: &huma.Schema{Ref: schemaPrefix + "Error"}},
	}}
	for _, item := range doc.Paths {
		for _, op := range []*huma.Operation{item.Get, item.Put, item.Post, item.Patch, item.Delete} {
			if op == nil {
				continue
			}
			for status, r := range op.Responses {
				if r.Ref != "" || status == "304" {
					delete(op.Responses, status)
					continue
				}
				r.Headers = nil
				if r.Content[jsonType] == nil || r.Content[jsonType].Schema.Ref == "" {
					r.Content = nil
					continue
				}
				r.Content = map[string]*huma.MediaType{jsonType: r.Content[jsonType]}
			}
			if op.Responses["201"] != nil || op.Responses["302"] != nil {
				delete(op.Responses, "200") // of a dry run, or a page
			}
			delete(op.Responses, "202") // an error for the client
			op.Responses["default"] = failure
		}
	}
	doc.Components.Responses, doc.Components.Headers, doc.Components.Parameters, doc.Webhooks = nil, nil, nil, nil
	// A creation whose name is in the configuration file is written by hand. The upstream URL may be a target.
	creation := doc.Components.Schemas.Map()["CreateGatewayRequest"]
	creation.Required = []string{"name"}
	creation.Properties["upstream_url"].Extensions = map[string]any{"x-go-type-skip-optional-pointer": true}
	for _, s := range doc.Components.Schemas.Map() {
		if p := s.Properties["rate_limit"]; p != nil && len(p.OneOf) > 0 {
			p.Nullable, p.OneOf, p.Extensions = true, nil, map[string]any{"x-go-type": "KeyRateLimit"} // written by hand
		}
		if p := s.Properties["ejection"]; p != nil && len(p.OneOf) > 0 {
			p.OneOf, p.Extensions = nil, map[string]any{"x-go-type": "Ejection"} // written by hand
		}
		if p := s.Properties["cost"]; p != nil && p.Items != nil { // a slice of one type, written by hand
			p.Items.Ref, p.Extensions = schemaPrefix+"Cost", map[string]any{"x-go-type-skip-optional-pointer": true}
		}
		for _, p := range s.Properties {
			p.Enum = slices.DeleteFunc(p.Enum, func(v any) bool { return v == nil }) // in OpenAPI 3.0, nullable suffices
		}
	}
	return doc
}

const schemaPrefix = "#/components/schemas/"

// describe returns the document and the schema of each JSON request body, by
// operation ID.
func describe(ops []operation) (*huma.OpenAPI, map[string]*huma.Schema) {
	registry := huma.NewMapRegistry(schemaPrefix, schemaName)
	doc := &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{
			Title:       "Keygate management API",
			Version:     "1",
			Description: overview,
			License:     &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"},
		},
		Servers:  []*huma.Server{{URL: "http://127.0.0.1:8081", Description: "A server on this machine."}},
		Security: []map[string][]string{{"bearer": {}}, {"session": {}}},
		Tags: []*huma.Tag{
			{Name: "Gateways", Description: "A gateway checks and forwards requests to one upstream service."},
			{Name: "Documents", Description: "OpenAPI documents and configuration files that define the routes of a gateway."},
			{Name: "Revisions", Description: "The history of pushes that changed a gateway's routes."},
			{Name: "Repositories", Description: "The Git repositories that gateways follow."},
			{Name: "Upstreams", Description: "The services behind a gateway, each with one or more targets."},
			{Name: "Canaries", Description: "Upstreams that get a growing share of the callers while they are not worse than the other."},
			{Name: "Routes", Description: "The paths and methods that a gateway accepts, with their rate limits."},
			{Name: "Keys", Description: "API keys for calls through gateways and for this API."},
			{Name: "Owners", Description: "The customers or teams that keys belong to."},
			{Name: "Usage records", Description: "How many units of each meter each key has used in each hour, for billing."},
			{Name: "Issuers", Description: "Who signs the tokens that gateways take beside their keys."},
			{Name: "Certificates", Description: "Certificates that Keygate gets for hostnames of gateways by ACME."},
			{Name: "Users", Description: "People who sign in through an identity provider, and invitations."},
			{Name: "Plans", Description: "Named sets of limits that many keys or owners share."},
			{Name: "Webhooks", Description: "Endpoints of yours that receive events."},
			{Name: "Webhook deliveries", Description: "Deliveries of events to your endpoints, with each attempt and its response."},
			{Name: "Events", Description: "Events of keys and gateways, such as the creation of a key or an upstream error."},
			{Name: "Limits", Description: "Current levels of rate limits, and simulation of other limits."},
			{Name: "Audit log", Description: "Authentications and changes."},
			{Name: "Traffic", Description: "Request counts and latencies, and the reasons of refused and failed requests."},
			{Name: "Account", Description: "The account and the installation."},
			{Name: "Accounts", Description: "All accounts, for the operator."},
			{Name: "Nodes", Description: "The nodes that share the database, for the operator."},
			{Name: "Document", Description: "This OpenAPI document."},
		},
		Components: &huma.Components{
			Schemas: registry,
			SecuritySchemes: map[string]*huma.SecurityScheme{"bearer": {
				Type: "http", Scheme: "bearer", BearerFormat: "kga_…",
				Description: "An account-level API key. GET needs the scope read; POST, PUT and PATCH need write; DELETE needs admin. " +
					"A scope with a resource, as in read:keys, allows only the path /v1/keys and the paths below it. Of several scopes, separated by spaces, any one suffices.",
			}, "session": {
				Type: "apiKey", In: "cookie", Name: cookie.Session,
				Description: "The cookie of a session (POST /v1/session), named " + cookie.Secure + " over TLS. A call other than GET needs an Origin that is this server's own.",
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
	requests := map[string]bool{}
	for _, s := range bodies {
		markUsed(registry, s, requests)
	}
	for name, s := range registry.Map() {
		allowNull(s)
		if !requests[name] && s.AdditionalProperties == false {
			s.AdditionalProperties = nil // responses may get new fields
		}
	}
	return doc, bodies
}

// markUsed adds the names of the schemas that s refers to, at any depth, to names.
func markUsed(registry huma.Registry, s *huma.Schema, names map[string]bool) {
	if s == nil {
		return
	}
	if name, isRef := strings.CutPrefix(s.Ref, schemaPrefix); isRef && !names[name] {
		names[name] = true
		s = registry.SchemaFromRef(s.Ref)
	}
	for _, p := range s.Properties {
		markUsed(registry, p, names)
	}
	markUsed(registry, s.Items, names)
}

// schemaName returns the name of a type in the document: Gateway for
// gatewayRecord, GatewayList for list[gatewayRecord] and recordedList[gatewayRecord].
func schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	if item, found := strings.CutPrefix(strings.TrimPrefix(name, "Recorded"), "List"); found {
		return strings.TrimSuffix(item, "Record") + "List"
	}
	return strings.TrimSuffix(name, "Record")
}

// allowNull adds null to the values of each nullable enumeration, as JSON Schema
// requires.
func allowNull(s *huma.Schema) {
	for _, p := range s.Properties {
		if len(p.OneOf) > 0 {
			p.Nullable = false // null is one of the forms
		}
		if p.Nullable && len(p.Enum) > 0 && !slices.Contains(p.Enum, nil) {
			p.Enum = append(p.Enum, nil)
		}
	}
}

func (o *operation) describe(registry huma.Registry) *huma.Operation {
	op := &huma.Operation{
		Method: o.method, Path: o.path, OperationID: o.id, Tags: []string{o.tag}, Summary: o.summary, Description: o.description,
		Parameters: o.parameters(), Responses: map[string]*huma.Response{strconv.Itoa(o.success): o.describeSuccess(registry)},
	}
	if o.public {
		op.Security = []map[string][]string{{}}
	}
	switch {
	case o.body != nil:
		op.RequestBody = &huma.RequestBody{Required: !o.bodyOptional, Content: map[string]*huma.MediaType{
			jsonType: {Schema: registry.Schema(o.body, true, "")},
		}}
		if o.oauth {
			op.RequestBody.Content[formType] = &huma.MediaType{Schema: registry.Schema(o.body, true, "")}
		}
	case o.document:
		op.RequestBody = &huma.RequestBody{Required: true, Description: "The document, in YAML or JSON.", Content: map[string]*huma.MediaType{
			yamlType: {Schema: &huma.Schema{Type: huma.TypeString}},
			textType: {Schema: &huma.Schema{Type: huma.TypeString}},
			jsonType: {Schema: &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}},
		}}
	}
	if o.dryRun != nil {
		op.Responses["200"] = &huma.Response{
			Description: "What the call would create, to a dry run.", Headers: map[string]*huma.Param{"X-Request-Id": {Ref: "#/components/headers/X-Request-Id"}},
			Content: map[string]*huma.MediaType{jsonType: {Schema: registry.Schema(o.dryRun, true, "")}},
		}
	}
	if o.alsoOK != "" {
		r := o.describeSuccess(registry)
		r.Description = o.alsoOK
		delete(r.Headers, "Location")
		op.Responses["200"] = r
	}
	if o.pageOK != "" {
		op.Responses["200"] = &huma.Response{
			Description: o.pageOK, Headers: map[string]*huma.Param{"X-Request-Id": {Ref: "#/components/headers/X-Request-Id"}},
			Content: map[string]*huma.MediaType{htmlType: {Schema: &huma.Schema{Type: huma.TypeString}}},
		}
	}
	if o.waits != "" {
		op.Responses["202"] = &huma.Response{
			Description: o.waits, Headers: map[string]*huma.Param{"X-Request-Id": {Ref: "#/components/headers/X-Request-Id"}},
			Content: map[string]*huma.MediaType{jsonType: {Schema: registry.Schema(reflect.TypeFor[inFlightRecord](), true, "")}},
		}
	}
	if o.mayBeUnmodified() {
		op.Responses["304"] = &huma.Response{Description: http.StatusText(http.StatusNotModified), Headers: map[string]*huma.Param{
			"X-Request-Id": {Ref: "#/components/headers/X-Request-Id"}, "ETag": {Ref: "#/components/headers/ETag"},
		}}
	}
	for _, status := range o.failures() {
		op.Responses[strconv.Itoa(status)] = &huma.Response{Ref: "#/components/responses/" + responseName(status)}
	}
	return op
}

func (o *operation) parameters() (out []*huma.Param) {
	for segment := range strings.SplitSeq(o.path, "/") {
		if name, found := strings.CutPrefix(segment, "{"); found {
			out = append(out, pathParam(strings.TrimSuffix(name, "}")))
		}
	}
	for _, q := range o.query {
		out = append(out, &huma.Param{Name: q.name, In: "query", Required: q.required, Description: q.doc, Schema: q.schema, Example: q.example})
	}
	if o.ifMatch {
		out = append(out, &huma.Param{
			Name: "If-Match", In: "header", Description: "One or more ETags, or *. If the record's ETag is not among them, the call changes nothing and the response is a 412.",
			Schema: &huma.Schema{Type: huma.TypeString}, Example: `"3"`,
		})
	}
	if o.mayBeUnmodified() {
		out = append(out, &huma.Param{
			Name: "If-None-Match", In: "header", Description: "One or more ETags, or *. If the record's ETag is among them, the response is a 304 without a body. What changes without a call, such as last_used_at, does not change the ETag.",
			Schema: &huma.Schema{Type: huma.TypeString}, Example: `"3"`,
		})
	}
	if o.replayable {
		out = append(out, &huma.Param{
			Name: "Idempotency-Key", In: "header",
			Description: "1 to 255 printable ASCII characters. For 24 hours, the same request with the same value gets the first response again, without secrets.",
			Schema:      &huma.Schema{Type: huma.TypeString}, Example: "3f1c8e0a-create-orders",
		})
	}
	if o.isPush() {
		out = append(out, &huma.Param{
			Name: "X-Keygate-Source", In: "header", Description: "Source to record for the revision: cli or dashboard. Any other value means api.",
			Schema: &huma.Schema{Type: huma.TypeString}, Example: "cli",
		})
	}
	return out
}

// mayBeUnmodified reports whether the call honors If-None-Match.
func (o *operation) mayBeUnmodified() bool {
	return o.hasETag && !o.hasState && o.method == http.MethodGet
}

// isPush reports whether the call creates a revision.
func (o *operation) isPush() bool {
	return o.document || o.id == "rollbackRevision" || o.id == "createGateway"
}

func (o *operation) describeSuccess(registry huma.Registry) *huma.Response {
	r := &huma.Response{Description: http.StatusText(o.success), Headers: map[string]*huma.Param{}, Content: map[string]*huma.MediaType{}}
	names := []string{"X-Request-Id"}
	if !o.public {
		names = append(names, "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "RateLimit-Policy", "RateLimit")
	}
	if o.hasETag {
		names = append(names, "ETag")
	}
	if o.mutates() {
		names = append(names, changeHeader, acknowledgedHeader)
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

// failures returns the error statuses of the call, in ascending order.
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
	case "account_id":
		p.Description, p.Example = "Identifier of the account.", "acct_01jz8y5c3te9b8r2m6q4v7x0ee"
	case "gateway_id":
		p.Description, p.Example = "Identifier of the gateway.", "gw_01jz8y5c3te9b8r2m6q4v7x0aa"
	case "upstream":
		p.Description, p.Example = "Name of the upstream.", gateway.DefaultUpstream
	case "route_id":
		p.Description, p.Example = "Identifier of the route.", "rt_01jz8y5c3te9b8r2m6q4v7x0bb"
	case "key_id":
		p.Description, p.Example = "Identifier of the key.", "key_01jz8y5c3te9b8r2m6q4v7x0dd"
	case "owner_id":
		p.Description, p.Example = "Identifier of the owner.", "own_01jz8y5c3te9b8r2m6q4v7x0aa"
	case "plan_id":
		p.Description, p.Example = "Identifier of the plan.", "plan_01jz8y5c3te9b8r2m6q4v7x0bb"
	case "canary_id":
		p.Description, p.Example = "Identifier of the canary.", "can_01jz8y5c3te9b8r2m6q4v7x0aa"
	case "user_id":
		p.Description, p.Example = "Identifier of the user.", "usr_01jz8y5c3te9b8r2m6q4v7x0aa"
	case "invitation_id":
		p.Description, p.Example = "Identifier of the invitation.", "inv_01jz8y5c3te9b8r2m6q4v7x0aa"
	case "token_id":
		p.Description, p.Example = "Identifier of the token.", "tok_01jz8y5c3te9b8r2m6q4v7x0aa"
	case "denial_id":
		p.Description, p.Example = "Identifier of the denial.", "den_01jz8y5c3te9b8r2m6q4v7x0aa"
	case "issuer_id":
		p.Description, p.Example = "Identifier of the issuer.", "iss_01jz8y5c3te9b8r2m6q4v7x0aa"
	case "certificate_id":
		p.Description, p.Example = "Identifier of the certificate.", "cert_01jz8y5c3te9b8r2m6q4v7x0aa"
	case "webhook_id":
		p.Description, p.Example = "Identifier of the endpoint.", "wh_01jz8y5c3te9b8r2m6q4v7x0gg"
	case "delivery_id":
		p.Description, p.Example = "Identifier of the delivery.", "dlv_01jz8y5c3te9b8r2m6q4v7x0hh"
	case "event_id":
		p.Description, p.Example = "Identifier of the event.", "evt_01jz8y5c3te9b8r2m6q4v7x0jj"
	case "request_id":
		p.Description, p.Example = "Identifier of the request.", "req_01jz8y5c3te9b8r2m6q4v7x0ff"
	case "node_id":
		p.Description, p.Example = "Identifier of the node.", "node_01jz8y5c3te9b8r2m6q4v7x0kk"
	case "number":
		p.Description, p.Example = "Number of the revision.", 3
		p.Schema = &huma.Schema{Type: huma.TypeInteger, Format: "int64", Minimum: bound(1)}
	}
	return p
}

func commonHeaders() map[string]*huma.Param {
	header := func(typ, doc string, example any) *huma.Param {
		s := &huma.Schema{Type: typ}
		if typ == huma.TypeInteger {
			s.Format = "int64"
		}
		return &huma.Param{Description: doc, Schema: s, Example: example}
	}
	return map[string]*huma.Param{
		"X-Request-Id":          header(huma.TypeString, "Identifier of the request.", "req_01jz8y5c3te9b8r2m6q4v7x0ff"),
		"X-RateLimit-Limit":     header(huma.TypeInteger, "Capacity of the calling key's rate limit.", 200),
		"X-RateLimit-Remaining": header(huma.TypeInteger, "Remaining requests.", 199),
		"X-RateLimit-Reset":     header(huma.TypeInteger, "When the limit is full again, or for a 429, when the request would pass, as a Unix time in seconds.", 1893456000),
		"RateLimit-Policy":      header(huma.TypeString, "The rate limit, as in the IETF draft on RateLimit headers.", `"account";q=200;w=2`),
		"RateLimit":             header(huma.TypeString, "The current level of the rate limit, as in the IETF draft on RateLimit headers.", `"account";r=199;t=1`),
		"Retry-After":           header(huma.TypeInteger, "How long to wait before retrying, in seconds.", 1),
		"WWW-Authenticate":      header(huma.TypeString, "Required authentication scheme.", "Bearer"),
		"ETag":                  header(huma.TypeString, "Version of the record, for use in If-Match.", `"3"`),
		"Location":              header(huma.TypeString, "Path of the new record.", "/v1/keys/key_01jz8y5c3te9b8r2m6q4v7x0dd"),
		changeHeader:            header(huma.TypeInteger, "Number of the newest change of the account that the call has made or seen. It never falls, and tells nothing of other accounts. Only with several nodes.", 4711),
		acknowledgedHeader:      header(huma.TypeString, "How many of the nodes with a lease have the change. Only with several nodes, and wait=false.", "1/3"),
		"Idempotent-Replayed":   header(huma.TypeString, "true if this is the stored response to an earlier request with the same Idempotency-Key.", "true"),
	}
}

// failures returns the error responses of the document, by name.
func failures(registry huma.Registry) map[string]*huma.Response {
	schema := registry.Schema(reflect.TypeFor[errorRecord](), true, "")
	out := map[string]*huma.Response{}
	for _, f := range []struct {
		status                int
		doc, code, auth, text string
		field                 string
		headers               []string
	}{
		{http.StatusBadRequest, "The request body or a header is malformed.", "invalid_json", "", "the request body is not valid JSON", "", nil},
		{http.StatusUnauthorized, "The API key is missing, invalid or expired.", "unauthorized", "key_invalid", "the API key is not a valid account-level key: check it, or create a new one", "", []string{"WWW-Authenticate"}},
		{http.StatusForbidden, "The scope of the API key does not allow the call.", "forbidden", "scope_insufficient", "the scope of this key, read, does not allow this call: use a key with a sufficient scope", "", nil},
		{http.StatusNotFound, "The account has no such record.", "not_found", "", "there is no such gateway", "", nil},
		{http.StatusConflict, "The current state of a record does not allow the call.", "conflict", "", "is already taken", "hostname", nil},
		{http.StatusPreconditionFailed, "The record's ETag does not match If-Match.", "precondition_failed", "", "the record has changed: get it again", "", nil},
		{http.StatusRequestEntityTooLarge, "The request body is too large.", "body_too_large", "", "the request body must not exceed 1048576 bytes", "", nil},
		{http.StatusUnsupportedMediaType, "The Content-Type of the request is not supported.", "unsupported_media_type", "", "the Content-Type header must be application/json", "", nil},
		{http.StatusUnprocessableEntity, "A field, query parameter or header is missing or invalid.", "validation_failed", "", "is required: add it", "name", nil},
		{http.StatusTooManyRequests, "The rate limit of the calling key is exceeded.", "rate_limit_exceeded", "", "too many requests with this key", "", []string{"Retry-After"}},
		{http.StatusInternalServerError, "An internal error occurred.", "internal", "", "an internal error occurred", "", nil},
		{http.StatusServiceUnavailable, "The server is temporarily unable to handle the request.", "unavailable", "", "the store is not available", "", nil},
	} {
		example := map[string]any{"error": f.code, "message": f.text, "request_id": "req_01jz8y5c3te9b8r2m6q4v7x0ff"}
		if f.auth != "" {
			example["code"] = f.auth
		}
		if f.field != "" {
			example["field"] = f.field
			example["errors"] = []map[string]any{{"field": f.field, "message": f.text}}
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
