package adminapi

import (
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/keygate/keygate/internal/event"
)

// The types below describe the data of events for the document. Package event
// encodes the data itself.

type keyEventRecord struct {
	KeyID     string  `json:"key_id" doc:"Identifier of the key." example:"key_01jz8y5c3te9b8r2m6q4v7x0dd"`
	KeyPrefix string  `json:"key_prefix" doc:"Start of the key, for recognizing it." example:"kg_4tQx9Z"`
	Name      string  `json:"name" doc:"Display name of the key." example:"mobile app"`
	Scope     string  `json:"scope" doc:"Scope of the key." example:"read:orders"`
	Level     string  `json:"level" enum:"gateway,account" doc:"gateway for calls through gateways, account for this API."`
	Owner     *string `json:"owner" doc:"Owner of the key; null if none was set." example:"customer-42"`
	GatewayID *string `json:"gateway_id" doc:"Gateway that the key is restricted to; null if it works on every gateway of the account." example:"gw_01jz8y5c3te9b8r2m6q4v7x0aa"`
	ExpiresAt *string `json:"expires_at" format:"date-time" doc:"When the key expires; null for never."`
}

type userEventRecord struct {
	UserID string  `json:"user_id" doc:"Identifier of the user." example:"usr_01jz8y5c3te9b8r2m6q4v7x0dd"`
	Email  *string `json:"email" doc:"Email of the user; null if it is not known." example:"ada@example.com"`
	Name   *string `json:"name" doc:"Name of the user; null if it is not known." example:"Ada Lovelace"`
	Role   string  `json:"role" enum:"viewer,editor,admin" doc:"Role of the user."`
}

type userRoleEventRecord struct {
	UserID       string  `json:"user_id" doc:"Identifier of the user." example:"usr_01jz8y5c3te9b8r2m6q4v7x0dd"`
	Email        *string `json:"email" doc:"Email of the user; null if it is not known." example:"ada@example.com"`
	Name         *string `json:"name" doc:"Name of the user; null if it is not known." example:"Ada Lovelace"`
	Role         string  `json:"role" enum:"viewer,editor,admin" doc:"Role that the user has now."`
	PreviousRole string  `json:"previous_role" enum:"viewer,editor,admin" doc:"Role that it had before."`
}

type keyRotatedEventRecord struct {
	KeyID       string `json:"key_id" doc:"Identifier of the old key." example:"key_01jz8y5c3te9b8r2m6q4v7x0dd"`
	KeyPrefix   string `json:"key_prefix" doc:"Start of the old key, for recognizing it." example:"kg_4tQx9Z"`
	OverlapDays int    `json:"overlap_days" doc:"How long both keys are valid, in days of 24 hours." example:"7"`
	NewKeyID    string `json:"new_key_id" doc:"Identifier of the new key." example:"key_01jz8y5c3te9b8r2m6q4v7x0ee"`
	By          string `json:"by,omitempty" enum:"holder" doc:"holder if the holder of the key has rotated it, by self-service; otherwise absent."`
}

type rateLimitExceededEventRecord struct {
	GatewayID  string  `json:"gateway_id" doc:"Gateway that was called." example:"gw_01jz8y5c3te9b8r2m6q4v7x0aa"`
	RouteID    string  `json:"route_id" doc:"Route that was called." example:"rt_01jz8y5c3te9b8r2m6q4v7x0bb"`
	KeyID      *string `json:"key_id" doc:"Key of the refused request; null on a public route." example:"key_01jz8y5c3te9b8r2m6q4v7x0dd"`
	KeyPrefix  *string `json:"key_prefix" doc:"Start of that key; null on a public route." example:"kg_4tQx9Z"`
	LimitScope string  `json:"limit_scope" enum:"key,route,daily,global,plan,anonymous,self_service,concurrency" doc:"Scope of the limit that was exceeded."`
	LimitName  string  `json:"limit_name,omitempty" doc:"Plan and limit, if it was a limit of a plan; for the scope concurrency also route or key; otherwise absent." example:"pro.per-minute"`
	Limit      int64   `json:"limit" doc:"Capacity of the limit that was exceeded." example:"100"`
	Method     string  `json:"method" doc:"HTTP method of the request." example:"GET"`
	Path       string  `json:"path" doc:"Path of the route." example:"/orders/{id}"`
	SampleRate int     `json:"sample_rate" doc:"One event is raised for this many breaches." example:"100"`
	Breaches   int64   `json:"breaches" doc:"Number of breaches of this gateway, route and limit scope so far, including this one." example:"101"`
}

type upstreamErrorEventRecord struct {
	GatewayID   string `json:"gateway_id" doc:"Gateway that was called." example:"gw_01jz8y5c3te9b8r2m6q4v7x0aa"`
	RouteID     string `json:"route_id" doc:"Route that was called." example:"rt_01jz8y5c3te9b8r2m6q4v7x0bb"`
	Status      int    `json:"status" doc:"HTTP status of the responses." example:"502"`
	Reason      string `json:"reason" enum:"upstream_status,unreachable,timeout" doc:"Cause of the last error."`
	Method      string `json:"method" doc:"HTTP method of the last failed request." example:"GET"`
	Path        string `json:"path" doc:"Path of the route." example:"/orders/{id}"`
	RequestID   string `json:"request_id" doc:"Identifier of the last failed request." example:"req_01jz8y5c3te9b8r2m6q4v7x0ff"`
	Occurrences int64  `json:"occurrences" doc:"Number of errors since the previous event." example:"12"`
}

type specPushedEventRecord struct {
	GatewayID string  `json:"gateway_id" doc:"Gateway whose routes changed." example:"gw_01jz8y5c3te9b8r2m6q4v7x0aa"`
	Revision  int64   `json:"revision" doc:"Number of the revision." example:"4"`
	Source    string  `json:"source" enum:"cli,api,repository,dashboard,rollback" doc:"What pushed the revision."`
	Commit    *string `json:"commit" doc:"Git commit that the revision came from; null if it did not come from a repository."`
	Author    string  `json:"author" doc:"Who pushed the revision: the author of the commit, or the owner or name of the key."`
	Added     int     `json:"added" doc:"Number of routes added."`
	Removed   int     `json:"removed" doc:"Number of routes removed."`
	Changed   int     `json:"changed" doc:"Number of routes changed."`
}

type syncFailedEventRecord struct {
	GatewayID string  `json:"gateway_id" doc:"Gateway that follows the repository." example:"gw_01jz8y5c3te9b8r2m6q4v7x0aa"`
	Commit    *string `json:"commit" doc:"Commit whose file cannot be pushed; null if the repository could not be read." example:"2f1c0e6a8d3b45978899aabbccddeeff00112233"`
	Branch    string  `json:"branch" doc:"Branch that the gateway follows." example:"main"`
	Path      string  `json:"path" doc:"Path of the file in the repository." example:"api/openapi.yaml"`
	Message   string  `json:"message" doc:"What is wrong, as in last_error of the repository." example:"api/openapi.yaml:12:5: paths.orders: a path must start with a slash"`
}

type keysUnreachableEventRecord struct {
	IssuerID string `json:"issuer_id" doc:"The issuer." example:"iss_01jz8y5c3te9b8r2m6q4v7x0aa"`
	Name     string `json:"name" doc:"Name of the issuer." example:"login"`
	Issuer   string `json:"issuer" doc:"The claim iss of its tokens." example:"https://login.example.com/"`
	Message  string `json:"message" doc:"Why its keys could not be fetched, as in last_error of the issuer." example:"the provider refused the connection"`
}

type ownerEventRecord struct {
	OwnerID string  `json:"owner_id" doc:"Identifier of the owner." example:"own_01jz8y5c3te9b8r2m6q4v7x0aa"`
	Owner   string  `json:"owner" doc:"External ID of the owner, which its keys have as owner." example:"customer-42"`
	Name    *string `json:"name" doc:"Display name of the owner; null if it has none." example:"Acme Corporation"`
}

type quotaThresholdEventRecord struct {
	Limit       string  `json:"limit" doc:"Name of the limit." example:"per-month"`
	Plan        string  `json:"plan" doc:"Name of the plan that has the limit." example:"pro"`
	Meter       string  `json:"meter" doc:"What the quota counts." example:"requests"`
	Percent     int     `json:"percent" doc:"The percentage in warn_at that was passed." example:"80"`
	Used        int64   `json:"used" doc:"Units that were used in the window, at least." example:"80000"`
	Count       int64   `json:"count" doc:"Units of the window, with those that were granted in addition." example:"100000"`
	WindowStart string  `json:"window_start" format:"date-time" doc:"When the window began."`
	WindowEnd   *string `json:"window_end" format:"date-time" doc:"When the window ends; null for total, which never ends."`
	Owner       *string `json:"owner" doc:"External ID of the owner; null for a key without one." example:"customer-42"`
	OwnerID     *string `json:"owner_id" doc:"Identifier of the owner; null for a key without one." example:"own_01jz8y5c3te9b8r2m6q4v7x0aa"`
	KeyID       *string `json:"key_id" doc:"Key that the quota counts by itself; null if it counts all keys of the owner together. Of the keys of a rotation, it is the first." example:"key_01jz8y5c3te9b8r2m6q4v7x0dd"`
}

type usageFinalizedEventRecord struct {
	PeriodStart string `json:"period_start" format:"date-time" doc:"When the hour began."`
	PeriodEnd   string `json:"period_end" format:"date-time" doc:"When the hour ended."`
	Records     int    `json:"records" doc:"Number of records that became final." example:"312"`
}

type targetEventRecord struct {
	Target    string              `json:"target" doc:"Address of the target: host and port." example:"10.0.0.1:8443"`
	Upstreams []upstreamRefRecord `json:"upstreams" nullable:"false" doc:"Upstreams that have the target, up to 10."`
	Node      *string             `json:"node" doc:"Name of the node that sees the target so; null for a server that shares its database with no other. Other nodes may see it otherwise." example:"gw-1"`
	Reason    string              `json:"reason" doc:"Why. Of a target that is down: connect, reset, timeout, 502, 503, 504 or grpc_unavailable if failures have ejected it, address_not_allowed, or what its check found. Of one that is up: answered (a request succeeded), check, returned (by a call), or changed (its checks were changed). Further values may be added." example:"connect"`
	Count     int64               `json:"count" doc:"How often the target has gone down or come up on the node since the event before, this time included." example:"1"`
}

type upstreamRefRecord struct {
	GatewayID string `json:"gateway_id" doc:"Gateway that has the upstream." example:"gw_01jz8y5c3te9b8r2m6q4v7x0aa"`
	Upstream  string `json:"upstream" doc:"Name of the upstream." example:"default"`
}

type certificateEventRecord struct {
	CertificateID string     `json:"certificate_id" doc:"Identifier of the certificate." example:"cert_01jz8y5c3te9b8r2m6q4v7x0aa"`
	GatewayID     string     `json:"gateway_id" doc:"Gateway whose hostname it is." example:"gw_01jz8y5c3te9b8r2m6q4v7x0aa"`
	Hostname      string     `json:"hostname" doc:"Hostname that it is for." example:"api.example.com"`
	NotAfter      *time.Time `json:"not_after" doc:"When the present certificate ends; null if there is none."`
	Error         *string    `json:"error" doc:"Why the last attempt to get one failed; null if it did not." example:"api.example.com does not reach this installation at port 80"`
}

type canaryEventRecord struct {
	CanaryID    string  `json:"canary_id" doc:"Identifier of the canary." example:"can_01jz8y5c3te9b8r2m6q4v7x0aa"`
	GatewayID   string  `json:"gateway_id" doc:"Gateway of the canary." example:"gw_01jz8y5c3te9b8r2m6q4v7x0aa"`
	Upstream    string  `json:"upstream" doc:"Upstream to which the canary sends requests." example:"next"`
	Step        int     `json:"step" doc:"Number of the present step, from 1." example:"2"`
	Weight      float64 `json:"weight" doc:"Share of the callers that the canary has now, in percent; if it has ended, what it had before." example:"5"`
	Explanation string  `json:"explanation" doc:"Why, in words." example:"18 of 290 failed on next (6.2 %), 31 of 28,710 on default (0.1 %): at least 2.0 points more; allowed 1.0"`
}

// describeEvents returns the webhooks of the document: the requests that are
// delivered to webhook endpoints, by event type.
func describeEvents(registry huma.Registry) map[string]*huma.PathItem {
	items := map[string]*huma.PathItem{}
	var fields []*huma.Param
	for _, f := range signatureHeaders() {
		fields = append(fields, &huma.Param{Ref: "#/components/parameters/" + f.Name})
	}
	for _, e := range []struct {
		of               event.Type
		id, summary, doc string
		data             reflect.Type
	}{
		{event.KeyCreated, "onKeyCreated", "Key created", "A key was created, by itself or in a rotation.", reflect.TypeFor[keyEventRecord]()},
		{event.KeyRotated, "onKeyRotated", "Key rotated", "A key was rotated. The old key stays valid during the overlap.", reflect.TypeFor[keyRotatedEventRecord]()},
		{event.KeyRevoked, "onKeyRevoked", "Key revoked", "A key was revoked. It is refused from now on.", reflect.TypeFor[keyEventRecord]()},
		{event.KeyExpired, "onKeyExpired", "Key expired", "A key expired. It is refused from now on.", reflect.TypeFor[keyEventRecord]()},
		{event.RateLimitExceeded, "onRateLimitExceeded", "Rate limit exceeded", "A request exceeded a rate limit. This event is raised for the 1st, 101st, 201st … such request of each gateway, route and limit scope.",
			reflect.TypeFor[rateLimitExceededEventRecord]()},
		{event.GatewayUpstreamError, "onUpstreamError", "Upstream error", "An upstream returned a 5xx status, could not be reached or timed out. There is at most one event per second for each route and status.",
			reflect.TypeFor[upstreamErrorEventRecord]()},
		{event.GatewaySpecPushed, "onSpecPushed", "Routes changed", "A push or rollback changed the routes of a gateway.", reflect.TypeFor[specPushedEventRecord]()},
		{event.GatewaySyncFailed, "onSyncFailed", "Sync failed", "The file of a commit cannot be pushed, or the repository that a gateway follows cannot be read. Nothing has changed. There is one event for each such commit, and one for each cause while the repository cannot be read.",
			reflect.TypeFor[syncFailedEventRecord]()},
		{event.OwnerSuspended, "onOwnerSuspended", "Owner suspended", "An owner was suspended. Gateways refuse its keys from now on.", reflect.TypeFor[ownerEventRecord]()},
		{event.OwnerResumed, "onOwnerResumed", "Owner resumed", "A suspended owner was resumed. Gateways accept its keys again.", reflect.TypeFor[ownerEventRecord]()},
		{event.QuotaThreshold, "onQuotaThreshold", "Quota threshold passed", "An owner or a key has used a percentage of a quota that its warn_at lists. There is one event for each percentage, window and owner or key.",
			reflect.TypeFor[quotaThresholdEventRecord]()},
		{event.UsageFinalized, "onUsageFinalized", "Usage records final", "Usage records of requests that began in the period became final. If more is counted in it later, it has another event.",
			reflect.TypeFor[usageFinalizedEventRecord]()},
		{event.UpstreamTargetDown, "onTargetDown", "Target down", "A node sends no more requests to a target, because failures have ejected it or its check fails. There is at most one event in 10 seconds for each target and node; the last state is reported within 10 seconds.",
			reflect.TypeFor[targetEventRecord]()},
		{event.UpstreamTargetUp, "onTargetUp", "Target up", "A target that was down on a node gets requests again. There is at most one event in 10 seconds for each target and node.", reflect.TypeFor[targetEventRecord]()},
		{event.CanaryAdvanced, "onCanaryAdvanced", "Canary advanced", "A canary has a greater share of the callers now, or is held after its last step.", reflect.TypeFor[canaryEventRecord]()},
		{event.CanaryAborted, "onCanaryAborted", "Canary aborted", "A canary was aborted, by hand or because its upstream is worse than the other. All callers go to the other one again.", reflect.TypeFor[canaryEventRecord]()},
		{event.CanaryPromoted, "onCanaryPromoted", "Canary promoted", "The routes of a canary have its upstream now.", reflect.TypeFor[canaryEventRecord]()},
		{event.IssuerUnreachable, "onIssuerUnreachable", "Issuer unreachable", "The keys of an issuer could not be fetched. Those that were fetched before stay, so its tokens pass as before until it has others. There is one event until the keys can be fetched again.",
			reflect.TypeFor[keysUnreachableEventRecord]()},
		{event.UserRoleChanged, "onUserRoleChanged", "Role of a user changed", "A user has another role: an administrator has changed it, or the identity provider said so at a sign-in.", reflect.TypeFor[userRoleEventRecord]()},
		{event.UserSuspended, "onUserSuspended", "User suspended", "A user was suspended. Its sessions have ended, and it cannot sign in.", reflect.TypeFor[userEventRecord]()},
		{event.CanaryPaused, "onCanaryPaused", "Canary paused", "A canary was paused: by hand, because its routes or upstreams were changed, or because it had too few requests in 24 hours. Callers stay on their sides.", reflect.TypeFor[canaryEventRecord]()},
		{event.CertificateRenewed, "onCertificateRenewed", "Certificate renewed", "A hostname has a new certificate by ACME, the first one or a renewal. It is in force on every node.", reflect.TypeFor[certificateEventRecord]()},
		{event.CertificateFailed, "onCertificateFailed", "Certificate failed", "An attempt to get a certificate by ACME failed: the first one in a row, and then once a day. Keygate tries again.", reflect.TypeFor[certificateEventRecord]()},
		{event.CertificateExpiring, "onCertificateExpiring", "Certificate expiring", "A certificate by ACME ends within 14 days, or within a sixth of its life if that is less, and could not be renewed so far.", reflect.TypeFor[certificateEventRecord]()},
	} {
		envelope := registry.Schema(reflect.TypeFor[eventRecord](), true, "")
		items[string(e.of)] = &huma.PathItem{Post: &huma.Operation{
			OperationID: e.id, Tags: []string{"Events"}, Summary: e.summary, Description: e.doc,
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
				"2XX": {Description: "The event was accepted. Any other status, or no complete response within 30 seconds, is a failed attempt."},
				"410": {Description: "The receiver wants no more events. Keygate disables the endpoint."},
			},
		}}
	}
	return items
}

// signatureHeaders returns the headers of a delivery that sign or identify it.
func signatureHeaders() []*huma.Param {
	var out []*huma.Param
	for _, f := range []struct{ name, doc, example string }{
		{"X-Service-Signature", "sha256= followed by the HMAC-SHA256 of the body in lower-case hexadecimal. The key is the whole signing secret.",
			"sha256=23748c666abc36e7c6e4a7fd59aff2dc91110a3f625a1bda5f2163e0d0655afd"},
		{"X-Service-Event", "Type of the event.", "key.created"},
		{"X-Service-Delivery", "Identifier of the delivery.", "dlv_01jz8y5c3te9b8r2m6q4v7x0hh"},
		{"X-Service-Attempt", "Number of the attempt, starting at 1.", "1"},
		{"webhook-id", "Identifier of the event, as specified by Standard Webhooks.", "evt_01jz8y5c3te9b8r2m6q4v7x0jj"},
		{"webhook-timestamp", "Time of the attempt, as a Unix time in seconds, as specified by Standard Webhooks.", "1893456000"},
		{"webhook-signature", "One or more signatures, separated by spaces, as specified by Standard Webhooks.", "v1,ZFTtqTMlRRda5DrUfeU+38hZESobOIEF+oBEo6hfW7Y="},
	} {
		out = append(out, &huma.Param{Name: f.name, In: "header", Required: true, Description: f.doc, Schema: &huma.Schema{Type: huma.TypeString}, Example: f.example})
	}
	return append(out, &huma.Param{
		Name: "X-Service-Signature-Previous", In: "header", Description: "Like X-Service-Signature, but with the old secret. Present during the overlap of a secret rotation.",
		Schema: &huma.Schema{Type: huma.TypeString},
	})
}
