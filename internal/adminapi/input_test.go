package adminapi_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// Guarantee: the error of an invalid body names the invalid field (contract, section
// 2).
func TestInvalidBodiesAreRefused(t *testing.T) {
	s := start(t)
	gatewayID := s.newGateway("")
	routeID := s.newRoute("", gatewayID, "/a")
	routes := "/v1/gateways/" + gatewayID + "/routes"
	hook := "/v1/webhooks/" + s.newWebhook(nil).text("webhook_id")
	const endpoint = `{"url": "https://hooks.example.com", "events": ["key.created"]`
	for _, row := range []struct {
		name, method, path, body string
		status                   int
		code, field              string
	}{
		{"empty", "POST", "/v1/keys", "", 400, "invalid_json", ""},
		{"spaces", "POST", "/v1/keys", "  \n", 400, "invalid_json", ""},
		{"cut off", "POST", "/v1/keys", `{"name": "a"`, 400, "invalid_json", ""},
		{"trailing data", "POST", "/v1/keys", `{"name": "a", "scope": "read"} {}`, 400, "invalid_json", ""},
		{"duplicate field", "POST", "/v1/keys", `{"name": "a", "name": "b", "scope": "read"}`, 400, "invalid_json", ""},
		{"duplicate field in an object", "POST", "/v1/keys", `{"name": "a", "scope": "read", "metadata": {"a": "b", "a": "c"}}`, 400, "invalid_json", ""},
		{"not UTF-8", "POST", "/v1/keys", "{\"name\": \"\xff\", \"scope\": \"read\"}", 400, "invalid_json", ""},
		{"byte order mark", "POST", "/v1/keys", "\ufeff{}", 422, "validation_failed", "name"},
		{"too deep", "POST", "/v1/keys", strings.Repeat("[", 100000), 400, "invalid_json", ""},
		{"an array", "POST", "/v1/keys", `[]`, 422, "validation_failed", ""},
		{"null", "POST", "/v1/keys", `null`, 422, "validation_failed", ""},
		{"a string", "POST", "/v1/keys", `"x"`, 422, "validation_failed", ""},
		{"empty object", "POST", "/v1/keys", `{}`, 422, "validation_failed", "name"},
		{"missing field", "POST", "/v1/keys", `{"name": "a"}`, 422, "validation_failed", "scope"},
		{"unknown field", "POST", "/v1/keys", `{"name": "a", "scope": "read", "colour": 1}`, 422, "validation_failed", "colour"},
		{"field name in another case", "POST", "/v1/keys", `{"Name": "a", "scope": "read"}`, 422, "validation_failed", "Name"},
		{"wrong type", "POST", "/v1/keys", `{"name": 1, "scope": "read"}`, 422, "validation_failed", "name"},
		{"null for a required field", "POST", "/v1/keys", `{"name": null, "scope": "read"}`, 422, "validation_failed", "name"},
		{"empty name", "POST", "/v1/keys", `{"name": "", "scope": "read"}`, 422, "validation_failed", "name"},
		{"long name", "POST", "/v1/keys", `{"name": "` + strings.Repeat("é", 256) + `", "scope": "read"}`, 422, "validation_failed", "name"},
		{"bad scope", "POST", "/v1/keys", `{"name": "a", "scope": "root"}`, 422, "validation_failed", "scope"},
		{"bad level", "POST", "/v1/keys", `{"name": "a", "scope": "read", "level": "x"}`, 422, "validation_failed", "level"},
		{"bad rate", "POST", "/v1/keys", `{"name": "a", "scope": "read", "rate_limit": "0/s"}`, 422, "validation_failed", "rate_limit"},
		{"past expiry", "POST", "/v1/keys", `{"name": "a", "scope": "read", "expires_at": "2020-01-01"}`, 422, "validation_failed", "expires_at"},
		{"unknown gateway", "POST", "/v1/keys", `{"name": "a", "scope": "read", "gateway_id": "gw_x"}`, 422, "validation_failed", "gateway_id"},
		{"metadata of another type", "POST", "/v1/keys", `{"name": "a", "scope": "read", "metadata": {"a": 1}}`, 422, "validation_failed", "metadata.a"},
		{"owner with a line break", "POST", "/v1/keys", `{"name": "a", "scope": "read", "owner": "a\nb"}`, 422, "validation_failed", "owner"},

		{"gateway without URL", "POST", "/v1/gateways", `{"name": "a"}`, 422, "validation_failed", "upstream_url"},
		{"bad URL", "POST", "/v1/gateways", `{"name": "a", "upstream_url": "nonsense"}`, 422, "validation_failed", "upstream_url"},
		{"bad rate in an object", "POST", "/v1/gateways", `{"name": "a", "upstream_url": "http://x", "global_rate_limit": {"sustained": "1/year"}}`, 422, "validation_failed", "global_rate_limit.sustained"},
		{"missing field in an object", "POST", "/v1/gateways", `{"name": "a", "upstream_url": "http://x", "global_rate_limit": {}}`, 422, "validation_failed", "global_rate_limit.sustained"},
		{"unknown field in an object", "POST", "/v1/gateways", `{"name": "a", "upstream_url": "http://x", "global_rate_limit": {"sustained": "1/s", "daily": "1/day"}}`, 422, "validation_failed", "global_rate_limit.daily"},
		{"fraction", "POST", "/v1/gateways", `{"name": "a", "upstream_url": "http://x", "max_body_bytes": 1.5}`, 422, "validation_failed", "max_body_bytes"},
		{"number out of range", "POST", "/v1/gateways", `{"name": "a", "upstream_url": "http://x", "max_body_bytes": 99999999999999999999}`, 422, "validation_failed", "max_body_bytes"},
		{"bad spec", "POST", "/v1/gateways", `{"name": "a", "upstream_url": "http://x", "spec": "nonsense"}`, 422, "validation_failed", "spec"},
		{"null for a field that cannot be cleared", "PATCH", "/v1/gateways/" + gatewayID, `{"upstream_url": null}`, 422, "validation_failed", "upstream_url"},
		{"bad item", "POST", "/v1/gateways", `{"name": "a", "upstream_url": "http://x", "cors": {"origins": ["https://a", 5]}}`, 422, "validation_failed", "cors.origins[1]"},

		{"route without methods", "POST", routes, `{"path": "/x"}`, 422, "validation_failed", "methods"},
		{"no methods", "POST", routes, `{"path": "/x", "methods": []}`, 422, "validation_failed", "methods"},
		{"bad template", "POST", routes, `{"path": "x", "methods": ["GET"]}`, 422, "validation_failed", "path"},
		{"empty limit", "POST", routes, `{"path": "/x", "methods": ["GET"], "rate_limit": {}}`, 422, "validation_failed", "rate_limit"},
		{"daily limit per hour", "POST", routes, `{"path": "/x", "methods": ["GET"], "rate_limit": {"daily": "1/h"}}`, 422, "validation_failed", "rate_limit.daily"},
		{"bad burst", "POST", routes, `{"path": "/x", "methods": ["GET"], "rate_limit": {"sustained": "1/s", "burst": "01/s"}}`, 422, "validation_failed", "rate_limit.burst"},
		{"limit update without limit", "POST", routes + "/" + routeID, `{}`, 422, "validation_failed", "rate_limit"},
		{"limit update of another type", "POST", routes + "/" + routeID, `{"rate_limit": {"per": "ip"}}`, 422, "validation_failed", "rate_limit.per"},
		{"limit update with a bad rate", "POST", routes + "/" + routeID, `{"rate_limit": {"sustained": "x"}}`, 422, "validation_failed", "rate_limit.sustained"},

		{"rotation without days", "POST", "/v1/keys/key_x/rotate", `{}`, 422, "validation_failed", "overlap_days"},
		{"rotation over too many days", "POST", "/v1/keys/key_x/rotate", `{"overlap_days": 366}`, 422, "validation_failed", "overlap_days"},
		{"rotation over a string", "POST", "/v1/keys/key_x/rotate", `{"overlap_days": "1"}`, 422, "validation_failed", "overlap_days"},
		{"endpoint without URL", "POST", "/v1/webhooks", `{"events": ["key.created"]}`, 422, "validation_failed", "url"},
		{"endpoint with an invalid URL", "POST", "/v1/webhooks", `{"url": "nonsense", "events": ["key.created"]}`, 422, "validation_failed", "url"},
		{"endpoint with a password", "POST", "/v1/webhooks", `{"url": "https://a:b@hooks.example.com", "events": ["key.created"]}`, 422, "validation_failed", "url"},
		{"endpoint by plain http", "POST", "/v1/webhooks", `{"url": "http://hooks.example.com", "events": ["key.created"]}`, 422, "validation_failed", "url"},
		{"endpoint without events", "POST", "/v1/webhooks", `{"url": "https://hooks.example.com"}`, 422, "validation_failed", "events"},
		{"endpoint with an empty list of events", "POST", "/v1/webhooks", `{"url": "https://hooks.example.com", "events": []}`, 422, "validation_failed", "events"},
		{"endpoint with events null", "POST", "/v1/webhooks", `{"url": "https://hooks.example.com", "events": null}`, 422, "validation_failed", "events"},
		{"endpoint for an unknown event", "POST", "/v1/webhooks", `{"url": "https://hooks.example.com", "events": ["key.created", "key.lost"]}`, 422, "validation_failed", "events[1]"},
		{"endpoint for webhook.test", "POST", "/v1/webhooks", `{"url": "https://hooks.example.com", "events": ["webhook.test"]}`, 422, "validation_failed", "events[0]"},
		{"short secret", "POST", "/v1/webhooks", endpoint + `, "signing_secret": "fifteen bytes.."}`, 422, "validation_failed", "signing_secret"},
		{"long secret", "POST", "/v1/webhooks", endpoint + `, "signing_secret": "` + strings.Repeat("x", 129) + `"}`, 422, "validation_failed", "signing_secret"},
		{"secret of too many bytes", "POST", "/v1/webhooks", endpoint + `, "signing_secret": "` + strings.Repeat("é", 65) + `"}`, 422, "validation_failed", "signing_secret"},
		{"empty secret", "POST", "/v1/webhooks", endpoint + `, "signing_secret": ""}`, 422, "validation_failed", "signing_secret"},
		{"secret of another type", "POST", "/v1/webhooks", endpoint + `, "signing_secret": 1}`, 422, "validation_failed", "signing_secret"},
		{"unknown field of an endpoint", "POST", "/v1/webhooks", endpoint + `, "secret": "x"}`, 422, "validation_failed", "secret"},
		{"endpoint URL patched to null", "PATCH", hook, `{"url": null}`, 422, "validation_failed", "url"},
		{"events patched to none", "PATCH", hook, `{"events": []}`, 422, "validation_failed", "events"},
		{"events patched to null", "PATCH", hook, `{"events": null}`, 422, "validation_failed", "events"},
		{"unknown state", "PATCH", hook, `{"state": "paused"}`, 422, "validation_failed", "state"},
		{"state null", "PATCH", hook, `{"state": null}`, 422, "validation_failed", "state"},
		{"secret in a patch", "PATCH", hook, `{"signing_secret": "auto"}`, 422, "validation_failed", "signing_secret"},
		{"overlap too long", "POST", hook + "/rotate-secret", `{"overlap_hours": 169}`, 422, "validation_failed", "overlap_hours"},
		{"negative overlap", "POST", hook + "/rotate-secret", `{"overlap_hours": -1}`, 422, "validation_failed", "overlap_hours"},
		{"fractional overlap", "POST", hook + "/rotate-secret", `{"overlap_hours": 1.5}`, 422, "validation_failed", "overlap_hours"},
		{"rotation of a secret with an array", "POST", hook + "/rotate-secret", `[]`, 422, "validation_failed", ""},
		{"test with a body", "POST", hook + "/test", `{"a": 1}`, 422, "validation_failed", "a"},
		{"recovery without since", "POST", hook + "/recover", `{}`, 422, "validation_failed", "since"},
		{"recovery without body", "POST", hook + "/recover", "", 400, "invalid_json", ""},
		{"recovery since an invalid time", "POST", hook + "/recover", `{"since": "yesterday"}`, 422, "validation_failed", "since"},
		{"recovery since a number", "POST", hook + "/recover", `{"since": 1}`, 422, "validation_failed", "since"},
		{"rollback with a body", "POST", "/v1/gateways/" + gatewayID + "/revisions/1/rollback", `{"a": 1}`, 422, "validation_failed", "a"},
		{"rollback with an array", "POST", "/v1/gateways/" + gatewayID + "/revisions/1/rollback", `[]`, 422, "validation_failed", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			s.clock.move(1e9)
			s.in(t).do(request{method: row.method, path: row.path, body: row.body}).refused(row.status, row.code, row.field)
		})
	}
}

// Guarantee: the error of an invalid query names the parameter.
func TestInvalidQueriesAreRefused(t *testing.T) {
	s := start(t)
	gatewayID := s.newGateway("")
	for query, field := range map[string]string{
		"limit=0": "limit", "limit=101": "limit", "limit=-1": "limit", "limit=x": "limit", "limit=": "limit", "limit=1.0": "limit", "limit=%2B5": "limit",
		"limit=05": "limit", "limit=1&limit=2": "limit", "cursor=": "cursor", "cursor=x": "cursor", "cursor=%00": "cursor",
		"Limit=5": "Limit", "nonsense=1": "nonsense", "state=gone": "state", "level=x": "level", "q=": "q", "q=%ff": "q",
	} {
		s.get("/v1/keys?"+query).refused(422, "validation_failed", field)
	}
	for query, field := range map[string]string{
		"webhook-deliveries?state=lost": "state", "webhook-deliveries?event_type=key.lost": "event_type", "webhook-deliveries?webhook_id=": "webhook_id", "webhook-deliveries?event_id=": "event_id",
		"webhook-deliveries?since=x": "since", "webhook-deliveries?until=2027-13-01": "until", "webhook-deliveries?type=key.created": "type",
		"webhook-deliveries?since=2027-03-02&until=2027-03-01": "since", "webhooks?state=active": "state",
		"events?type=webhook.test": "type", "events?since=": "since", "events?event_type=key.created": "event_type", "events?limit=0": "limit",
	} {
		s.get("/v1/"+query).refused(422, "validation_failed", field)
	}
	s.get("/v1/keys?limit=%zz").refused(400, "invalid_request", "")
	s.get("/v1/account?limit=1").refused(422, "validation_failed", "limit")
	s.get("/v1/gateways/"+gatewayID+"?x").refused(422, "validation_failed", "x")
	s.get("/v1/gateways?state=active").refused(422, "validation_failed", "state")
	s.do(request{method: "GET", path: "/v1/openapi.json?a=b", key: "-"}).refused(422, "validation_failed", "a")
	put := request{method: "PUT", path: "/v1/gateways/" + gatewayID + "/spec?dry_run=1", body: petSpec, header: map[string]string{"Content-Type": "text/plain"}}
	s.do(put).refused(422, "validation_failed", "dry_run")
}

// Guarantee: a body is accepted only with a supported Content-Type, in UTF-8 and
// without a Content-Encoding.
func TestMediaTypesAreChecked(t *testing.T) {
	s := start(t)
	gatewayID := s.newGateway("")
	key := `{"name": "a", "scope": "read"}`
	send := func(method, path, body, mediaType string) *response {
		return s.do(request{method: method, path: path, body: body, header: map[string]string{"Content-Type": mediaType}})
	}
	for _, good := range []string{"application/json", "application/json; charset=utf-8", "Application/JSON;charset=UTF-8"} {
		send("POST", "/v1/keys", key, good).want(201)
	}
	for _, bad := range []string{"", "text/plain", "application/x-www-form-urlencoded", "application/yaml", "application/jsonx", "application/json; charset=latin1", ";"} {
		send("POST", "/v1/keys", key, bad).refused(415, "unsupported_media_type", "")
	}
	for _, good := range []string{"application/yaml", "application/json", "text/plain", "text/plain; charset=utf-8", "application/x-yaml"} {
		send("PUT", "/v1/gateways/"+gatewayID+"/spec", petSpec, good).want(200)
	}
	for _, bad := range []string{"", "text/html", "application/octet-stream"} {
		send("PUT", "/v1/gateways/"+gatewayID+"/spec", petSpec, bad).refused(415, "unsupported_media_type", "")
		send("PUT", "/v1/gateways/"+gatewayID+"/config", "routes: []", bad).refused(415, "unsupported_media_type", "")
	}
	r := s.do(request{method: "POST", path: "/v1/keys", body: key, header: map[string]string{"Content-Encoding": "gzip"}})
	r.refused(415, "unsupported_media_type", "")
	// A rollback takes no body, so it needs no Content-Type.
	s.do(request{method: "POST", path: "/v1/gateways/" + gatewayID + "/revisions/1/rollback"}).want(200)
}

// Guarantee: a body may have exactly the maximum size of its call, and not one byte
// more, with or without a Content-Length.
func TestBodySizeIsLimited(t *testing.T) {
	s := start(t)
	gatewayID := s.newGateway("")
	exactly := func(n int, head, tail string) string { return head + strings.Repeat("x", n-len(head)-len(tail)) + tail }
	key := func(n int) string { return exactly(n, `{"scope": "read", "name": "`, `"}`) }
	s.post("/v1/keys", key(1<<20)).refused(422, "validation_failed", "name")
	s.post("/v1/keys", key(1<<20+1)).refused(413, "body_too_large", "")
	spec := func(n int) *response {
		// The size is checked before the query, and the query before the document,
		// so that no document of this size is parsed.
		return s.putSpec(gatewayID, exactly(n, "]", "\n"), "?dry_run=maybe")
	}
	spec(16<<20).refused(422, "validation_failed", "dry_run")
	spec(16<<20+1).refused(413, "body_too_large", "")
	s.post("/v1/gateways", exactly(16<<20+1, `{"spec": "`, `"}`)).refused(413, "body_too_large", "")

	// Without a Content-Length.
	req, err := http.NewRequest("POST", s.http.URL+"/v1/keys", io.MultiReader(strings.NewReader(key(1<<20+1))))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.admin)
	req.Header.Set("Content-Type", "application/json")
	res, err := s.http.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != 413 {
		t.Errorf("body without a Content-Length: got status %d, want 413", res.StatusCode)
	}
}
