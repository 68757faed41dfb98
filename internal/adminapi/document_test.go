package adminapi_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"

	"github.com/keygate/keygate/internal/adminapi"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/webhook"
)

// Guarantee: api/openapi.yaml is the document that the code describes.
func TestExportedDocumentIsCurrent(t *testing.T) {
	want, err := adminapi.YAML(adminapi.Document())
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../api/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("api/openapi.yaml is out of date: run make generate")
	}
}

// Guarantee: the document is served without a key, and equals the exported document.
func TestServedDocumentIsTheExportedOne(t *testing.T) {
	s := start(t)
	for _, header := range []map[string]string{nil, {"Authorization": "Bearer nonsense"}} {
		r := s.do(request{method: "GET", path: "/v1/openapi.json", key: "-", header: header}).want(200)
		if r.json["openapi"] != "3.1.0" || r.header.Get("X-RateLimit-Limit") != "" {
			t.Errorf("got OpenAPI %v and headers %v, want 3.1.0 and no rate limit headers", r.json["openapi"], r.header)
		}
	}
	want, err := adminapi.YAML(adminapi.Document())
	if err != nil {
		t.Fatal(err)
	}
	r := s.do(request{method: "GET", path: "/v1/openapi.yaml", key: "-"}).want(200)
	if r.raw != string(want) || r.header.Get("Content-Type") != "application/yaml" {
		t.Error("the served document differs from the exported one")
	}
	s.do(request{method: "POST", path: "/v1/openapi.json", key: "-", body: "{}"}).refused(401, "unauthorized", "")
	if r := s.do(request{method: "POST", path: "/v1/openapi.json", body: "{}"}).refused(405, "method_not_allowed", ""); r.header.Get("Allow") != "GET, HEAD" {
		t.Errorf("got Allow %q, want GET, HEAD", r.header.Get("Allow"))
	}
}

// Guarantee: the document describes every call, with its responses and errors, and
// every field.
func TestDocumentIsComplete(t *testing.T) {
	doc := adminapi.Document()
	for path, item := range doc.Paths {
		for _, op := range []*huma.Operation{item.Get, item.Put, item.Post, item.Patch, item.Delete} {
			if op == nil {
				continue
			}
			if op.OperationID == "" || op.Summary == "" || op.Description == "" || len(op.Tags) != 1 {
				t.Errorf("%s %s has no operation ID, summary, description or tag", op.Method, path)
			}
			want := []string{"422", "500"}
			if len(op.Security) == 0 {
				want = append(want, "401", "429", "503")
			}
			if strings.Contains(path, "{") && len(op.Security) == 0 {
				want = append(want, "403", "404")
			}
			if op.RequestBody != nil {
				want = append(want, "400", "413", "415")
			}
			for _, status := range want {
				if op.Responses[status] == nil {
					t.Errorf("%s %s does not document status %s", op.Method, path, status)
				}
			}
		}
	}
	for name, schema := range doc.Components.Schemas.Map() {
		for field, s := range schema.Properties {
			if s.Description == "" && s.Ref == "" {
				t.Errorf("%s.%s has no description", name, field)
			}
		}
	}
}

// Guarantee: the document explains what all calls have in common.
func TestDocumentHasAnOverview(t *testing.T) {
	text := adminapi.Document().Info.Description
	for _, heading := range []string{"Authentication", "Pagination", "Errors", "Idempotency", "Concurrency", "Limits"} {
		if !strings.Contains(text, "\n## "+heading+"\n") {
			t.Errorf("the description of the API has no section %s", heading)
		}
	}
}

// Guarantee: new fields may be added to responses without breaking generated clients: no schema of a
// response forbids additional properties, and every schema of a request body does.
func TestOnlyRequestsForbidAdditionalProperties(t *testing.T) {
	doc := adminapi.Document()
	for name, s := range doc.Components.Schemas.Map() {
		request := strings.HasSuffix(name, "Request") && name != "LoggedRequest" || strings.HasSuffix(name, "Input") || strings.HasSuffix(name, "Patch")
		objects := []*huma.Schema{s}
		for _, p := range s.Properties {
			objects = append(objects, p.OneOf...)
		}
		for _, o := range objects {
			if closed := o.AdditionalProperties == false; o.Type == huma.TypeObject && closed != request {
				t.Errorf("%s: additional properties forbidden: %t, want %t", name, closed, request)
			}
		}
	}
}

// Guarantee: a field limit_scope has scopes of the table in package ratelimit: the scopes of gateways, or the
// scope of the API.
func TestLimitScopesAreThoseOfTheTable(t *testing.T) {
	var gateways, management []any
	for _, scope := range ratelimit.ScopeReference() {
		if scope.Management {
			management = append(management, scope.Code)
		} else {
			gateways = append(gateways, scope.Code)
		}
	}
	found := 0
	for name, s := range adminapi.Document().Components.Schemas.Map() {
		if p := s.Properties["limit_scope"]; p != nil {
			found++
			if got := slices.DeleteFunc(slices.Clone(p.Enum), func(v any) bool { return v == nil }); !slices.Equal(got, gateways) && !slices.Equal(got, management) {
				t.Errorf("%s has the scopes %v, want %v or %v", name, got, gateways, management)
			}
		}
	}
	if found < 4 {
		t.Errorf("%d schemas have a field limit_scope, want at least 4", found)
	}
}

// Guarantee: the document for the client's generator has the same calls, in OpenAPI
// 3.0, each with one success and one error response.
func TestClientDocumentHasEveryCall(t *testing.T) {
	content, err := adminapi.ClientDocument().Downgrade()
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		OpenAPI string
		Paths   map[string]map[string]struct {
			Responses map[string]any
		}
	}
	if err := json.Unmarshal(content, &doc); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(doc.OpenAPI, "3.0.") || len(doc.Paths) != len(adminapi.Document().Paths) {
		t.Errorf("got OpenAPI %s with %d paths, want 3.0 with %d", doc.OpenAPI, len(doc.Paths), len(adminapi.Document().Paths))
	}
	for path, calls := range doc.Paths {
		for method, call := range calls {
			if len(call.Responses) != 2 || call.Responses["default"] == nil {
				t.Errorf("%s %s: got responses %v, want one and default", method, path, call.Responses)
			}
		}
	}
}

// Guarantee: the document has every field of every event that is delivered.
func TestEventsAreDocumented(t *testing.T) {
	doc := adminapi.Document()
	data := map[event.Type]any{
		event.KeyCreated: event.Key{}, event.KeyRotated: event.Rotation{By: "holder"}, event.KeyRevoked: event.Key{}, event.KeyExpired: event.Key{},
		event.RateLimitExceeded: event.Breach{LimitName: new(string)}, event.GatewayUpstreamError: event.UpstreamError{}, event.GatewaySpecPushed: event.Push{},
		event.GatewaySyncFailed: event.SyncFailed{}, event.OwnerSuspended: event.Owner{}, event.OwnerResumed: event.Owner{}, event.QuotaThreshold: event.Threshold{}, event.UsageFinalized: event.Finalized{},
		event.UpstreamTargetDown: event.TargetState{}, event.UpstreamTargetUp: event.TargetState{},
		event.CanaryAdvanced: event.Canary{}, event.CanaryAborted: event.Canary{}, event.CanaryPromoted: event.Canary{}, event.CanaryPaused: event.Canary{},
		event.IssuerUnreachable: event.KeysUnreachable{}, event.UserRoleChanged: event.UserRole{}, event.UserSuspended: event.User{},
		event.CertificateRenewed: event.Certificate{}, event.CertificateFailed: event.Certificate{}, event.CertificateExpiring: event.Certificate{},
	}
	if len(doc.Webhooks) != len(webhook.EventTypes()) || len(data) != len(doc.Webhooks) {
		t.Errorf("%d events are documented, want %d", len(doc.Webhooks), len(webhook.EventTypes()))
	}
	for schema, property := range map[string]string{"Event": "type", "CreateWebhookRequest": "events", "UpdateWebhookRequest": "events"} {
		s := doc.Components.Schemas.Map()[schema].Properties[property]
		if s.Items != nil {
			s = s.Items
		}
		if len(s.Enum) != len(webhook.EventTypes()) {
			t.Errorf("%s.%s takes %d events, want %d", schema, property, len(s.Enum), len(webhook.EventTypes()))
		}
	}
	for _, typ := range webhook.EventTypes() {
		item := doc.Webhooks[string(typ)]
		if item == nil || item.Post == nil {
			t.Errorf("%s is not documented", typ)
			continue
		}
		schema := item.Post.RequestBody.Content["application/json"].Schema.AllOf[1].Properties["data"]
		content, err := json.Marshal(data[typ])
		if err != nil {
			t.Fatal(err)
		}
		var sent map[string]any
		if err := json.Unmarshal(content, &sent); err != nil {
			t.Fatal(err)
		}
		documented := slices.Sorted(maps.Keys(doc.Components.Schemas.SchemaFromRef(schema.Ref).Properties))
		if names := slices.Sorted(maps.Keys(sent)); !slices.Equal(names, documented) {
			t.Errorf("%s: documented fields %v, want %v", typ, documented, names)
		}
	}
}
