package adminapi

import (
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/keygate/keygate/internal/event"
)

// The data of events, for the document and its readers; package event makes it.

type keyEventRecord struct {
	KeyID     string  `json:"key_id" doc:"Identifier of the key." example:"key_01jz8y5c3te9b8r2m6q4v7x0dd"`
	KeyPrefix string  `json:"key_prefix" doc:"Tag and first characters of the key." example:"kg_4tQx9Z"`
	Name      string  `json:"name" doc:"Display name of the key." example:"mobile app"`
	Scope     string  `json:"scope" doc:"Scope of the key." example:"read:orders"`
	Level     string  `json:"level" enum:"gateway,account" doc:"Which plane the key opens."`
	Owner     *string `json:"owner" doc:"Whose key it is." example:"customer-42"`
	GatewayID *string `json:"gateway_id" doc:"Gateway that the key is restricted to; null for all." example:"gw_01jz8y5c3te9b8r2m6q4v7x0aa"`
	ExpiresAt *string `json:"expires_at" format:"date-time" doc:"When the key expires; null for never."`
}

type keyRotatedEventRecord struct {
	KeyID       string `json:"key_id" doc:"Identifier of the old key." example:"key_01jz8y5c3te9b8r2m6q4v7x0dd"`
	KeyPrefix   string `json:"key_prefix" doc:"Tag and first characters of the old key." example:"kg_4tQx9Z"`
	OverlapDays int    `json:"overlap_days" doc:"For how many days both keys are valid." example:"7"`
	NewKeyID    string `json:"new_key_id" doc:"Identifier of the new key." example:"key_01jz8y5c3te9b8r2m6q4v7x0ee"`
}

type rateLimitExceededEventRecord struct {
	GatewayID  string  `json:"gateway_id" doc:"Gateway that was called." example:"gw_01jz8y5c3te9b8r2m6q4v7x0aa"`
	RouteID    string  `json:"route_id" doc:"Route that was called." example:"rt_01jz8y5c3te9b8r2m6q4v7x0bb"`
	KeyID      *string `json:"key_id" doc:"Key of the caller that was refused; null on a public route." example:"key_01jz8y5c3te9b8r2m6q4v7x0dd"`
	KeyPrefix  *string `json:"key_prefix" doc:"Tag and first characters of that key." example:"kg_4tQx9Z"`
	LimitScope string  `json:"limit_scope" enum:"key,route,daily,global" doc:"Which limit refused."`
	Limit      int64   `json:"limit" doc:"Capacity of that limit." example:"100"`
	Method     string  `json:"method" doc:"HTTP method of the request." example:"GET"`
	Path       string  `json:"path" doc:"Path of the route." example:"/orders/{id}"`
	SampleRate int     `json:"sample_rate" doc:"One of how many breaches makes an event." example:"100"`
	Breaches   int64   `json:"breaches" doc:"Number of this breach in the count of its gateway, route and limit scope." example:"101"`
}

type upstreamErrorEventRecord struct {
	GatewayID   string `json:"gateway_id" doc:"Gateway that was called." example:"gw_01jz8y5c3te9b8r2m6q4v7x0aa"`
	RouteID     string `json:"route_id" doc:"Route that was called." example:"rt_01jz8y5c3te9b8r2m6q4v7x0bb"`
	Status      int    `json:"status" doc:"HTTP status that the callers got." example:"502"`
	Reason      string `json:"reason" enum:"upstream_status,unreachable,timeout" doc:"What went wrong with the last of them."`
	Method      string `json:"method" doc:"HTTP method of the last of them." example:"GET"`
	Path        string `json:"path" doc:"Path of the route." example:"/orders/{id}"`
	RequestID   string `json:"request_id" doc:"Identifier of the last of them." example:"req_01jz8y5c3te9b8r2m6q4v7x0ff"`
	Occurrences int64  `json:"occurrences" doc:"How many there were since the event before." example:"12"`
}

type specPushedEventRecord struct {
	GatewayID string  `json:"gateway_id" doc:"Gateway whose routes changed." example:"gw_01jz8y5c3te9b8r2m6q4v7x0aa"`
	Revision  int64   `json:"revision" doc:"Number of the revision." example:"4"`
	Source    string  `json:"source" enum:"cli,api,repository,dashboard,rollback" doc:"What pushed it."`
	Commit    *string `json:"commit" doc:"Commit that it came from; null if from none."`
	Added     int     `json:"added" doc:"How many routes it added."`
	Removed   int     `json:"removed" doc:"How many routes it removed."`
	Changed   int     `json:"changed" doc:"How many routes it changed."`
}

// describeEvents tells what is delivered to webhook endpoints.
func describeEvents(registry huma.Registry) map[string]*huma.PathItem {
	items := map[string]*huma.PathItem{}
	var fields []*huma.Param
	for _, f := range signatureHeaders() {
		fields = append(fields, &huma.Param{Ref: "#/components/parameters/" + f.Name})
	}
	for _, e := range []struct {
		of            event.Type
		id, when, doc string
		data          reflect.Type
	}{
		{event.KeyCreated, "onKeyCreated", "A key was made", "A key was created, or made by a rotation.", reflect.TypeFor[keyEventRecord]()},
		{event.KeyRotated, "onKeyRotated", "A rotation began", "A key was rotated: the old one stays valid during the overlap.", reflect.TypeFor[keyRotatedEventRecord]()},
		{event.KeyRevoked, "onKeyRevoked", "A key was revoked", "A key was revoked: it is refused from now on.", reflect.TypeFor[keyEventRecord]()},
		{event.KeyExpired, "onKeyExpired", "A key expired", "A key passed its expiry.", reflect.TypeFor[keyEventRecord]()},
		{event.RateLimitExceeded, "onRateLimitExceeded", "A limit refused a request", "A limit refused a request: the 1st, 101st, 201st … time.",
			reflect.TypeFor[rateLimitExceededEventRecord]()},
		{event.GatewayUpstreamError, "onUpstreamError", "An upstream failed", "An upstream answered 5xx, could not be reached or was too slow: at most one event a second for each route and status.",
			reflect.TypeFor[upstreamErrorEventRecord]()},
		{event.GatewaySpecPushed, "onSpecPushed", "Routes were pushed", "A push or a rollback changed the routes of a gateway.", reflect.TypeFor[specPushedEventRecord]()},
	} {
		envelope := registry.Schema(reflect.TypeFor[eventRecord](), true, "")
		items[string(e.of)] = &huma.PathItem{Post: &huma.Operation{
			OperationID: e.id, Tags: []string{"Events"}, Summary: e.when, Description: e.doc,
			Security:   []map[string][]string{{}},
			Parameters: fields,
			RequestBody: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{jsonType: {Schema: &huma.Schema{AllOf: []*huma.Schema{envelope, {
				Type: huma.TypeObject,
				Properties: map[string]*huma.Schema{
					"type": {Type: huma.TypeString, Enum: []any{string(e.of)}},
					"data": registry.Schema(e.data, true, ""),
				},
			}}}}}},
			Responses: map[string]*huma.Response{
				"2XX": {Description: "The event was taken. Anything else within 30 seconds, or nothing, is a failed attempt."},
				"410": {Description: "No event is wanted any more: the endpoint is disabled."},
			},
		}}
	}
	return items
}

// signatureHeaders are the header fields of a delivery.
func signatureHeaders() []*huma.Param {
	var out []*huma.Param
	for _, f := range []struct{ name, doc, example string }{
		{"X-Service-Signature", "sha256= and the HMAC with SHA-256 of the body in lower-case hexadecimal, keyed with the whole signing secret.",
			"sha256=23748c666abc36e7c6e4a7fd59aff2dc91110a3f625a1bda5f2163e0d0655afd"},
		{"X-Service-Event", "Type of the event.", "key.created"},
		{"X-Service-Delivery", "Identifier of the delivery.", "dlv_01jz8y5c3te9b8r2m6q4v7x0hh"},
		{"X-Service-Attempt", "Number of the attempt, from 1.", "1"},
		{"webhook-id", "Identifier of the event, of Standard Webhooks.", "evt_01jz8y5c3te9b8r2m6q4v7x0jj"},
		{"webhook-timestamp", "Unix second of the attempt, of Standard Webhooks.", "1893456000"},
		{"webhook-signature", "Signatures of Standard Webhooks, separated by spaces.", "v1,ZFTtqTMlRRda5DrUfeU+38hZESobOIEF+oBEo6hfW7Y="},
	} {
		out = append(out, &huma.Param{Name: f.name, In: "header", Required: true, Description: f.doc, Schema: &huma.Schema{Type: huma.TypeString}, Example: f.example})
	}
	return append(out, &huma.Param{
		Name: "X-Service-Signature-Previous", In: "header", Description: "As X-Service-Signature, with the old secret, while a rotation overlaps.",
		Schema: &huma.Schema{Type: huma.TypeString},
	})
}
