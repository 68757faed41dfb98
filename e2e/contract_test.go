package e2e

import (
	"bytes"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

var requestID = regexp.MustCompile(`^req_[0-9a-hjkmnp-tv-z]{26}$`)

// Guarantee: every error of the management API has the status, error code and
// field of the contract (section 2), and a request ID.
func TestManagementAPIErrorsFollowTheContract(t *testing.T) {
	s := startServer(t)
	up := newRecordingUpstream(t)
	gw := "/v1/gateways/" + s.newGateway(up.URL, nil)
	keyID, gatewayKey := s.newKey(nil)
	_, reader := s.newKey(map[string]any{"level": "account", "scope": "read"})
	_, keysReader := s.newKey(map[string]any{"level": "account", "scope": "read:keys"})
	big := `{"name":"` + strings.Repeat("x", 1<<20) + `","scope":"read"}`
	const ct = "Content-Type: "
	for _, c := range []struct {
		name, key, method, path string
		body                    any
		headers                 []string
		status                  int
		code, field             string
	}{
		{"not parseable", s.key, "POST", "/v1/keys", `{"name":`, nil, 400, "invalid_json", ""},
		{"two values", s.key, "POST", "/v1/keys", `{"name":"a","scope":"read"} {}`, nil, 400, "invalid_json", ""},
		{"no key", "", "GET", "/v1/keys", nil, nil, 401, "unauthorized", ""},
		{"no key, unknown path", "", "GET", "/v1/nothing", nil, nil, 401, "unauthorized", ""},
		{"mistyped key", s.key[:len(s.key)-1] + "~", "GET", "/v1/keys", nil, nil, 401, "unauthorized", ""},
		{"gateway-level key", gatewayKey, "GET", "/v1/keys", nil, nil, 401, "unauthorized", ""},
		{"insufficient scope", reader, "POST", "/v1/keys", `{`, nil, 403, "forbidden", ""},
		{"scope of another resource", keysReader, "GET", "/v1/gateways", nil, nil, 403, "forbidden", ""},
		{"unknown path", reader, "DELETE", "/v1/nothing", nil, nil, 404, "not_found", ""},
		{"final slash", s.key, "GET", "/v1/keys/", nil, nil, 404, "not_found", ""},
		{"unknown path, admin key", s.key, "GET", "/v1/nowhere", nil, nil, 404, "not_found", ""},
		{"unknown identifier", s.key, "GET", "/v1/keys/key_00000000000000000000000000", nil, nil, 404, "not_found", ""},
		{"malformed identifier", s.key, "GET", "/v1/keys/x", nil, nil, 404, "not_found", ""},
		{"method not allowed", reader, "PUT", "/v1/keys", nil, nil, 405, "method_not_allowed", ""},
		{"outdated ETag", s.key, "PATCH", "/v1/keys/" + keyID, `{"name":"b"}`, []string{`If-Match: "999"`}, 412, "precondition_failed", ""},
		{"body too large", s.key, "POST", "/v1/keys", big, nil, 413, "body_too_large", ""},
		{"unsupported media type", s.key, "POST", "/v1/keys", `name=a`, []string{ct + "application/x-www-form-urlencoded"}, 415, "unsupported_media_type", ""},
		{"body is an array", s.key, "POST", "/v1/keys", `[]`, nil, 422, "validation_failed", ""},
		{"missing name", s.key, "POST", "/v1/keys", `{"scope":"read"}`, nil, 422, "validation_failed", "name"},
		{"missing scope", s.key, "POST", "/v1/keys", `{"name":"a"}`, nil, 422, "validation_failed", "scope"},
		{"wrong type", s.key, "POST", "/v1/keys", `{"name":1,"scope":"read"}`, nil, 422, "validation_failed", "name"},
		{"null for a required field", s.key, "POST", "/v1/keys", `{"name":null,"scope":"read"}`, nil, 422, "validation_failed", "name"},
		{"unknown field", s.key, "POST", "/v1/keys", `{"name":"a","scope":"read","colour":"red"}`, nil, 422, "validation_failed", "colour"},
		{"field name in another case", s.key, "POST", "/v1/keys", `{"Name":"a","scope":"read"}`, nil, 422, "validation_failed", ""},
		{"invalid scope", s.key, "POST", "/v1/keys", `{"name":"a","scope":"owner"}`, nil, 422, "validation_failed", "scope"},
		{"expiry in the past", s.key, "POST", "/v1/keys", `{"name":"a","scope":"read","expires_at":"2020-01-01"}`, nil, 422, "validation_failed", "expires_at"},
		{"invalid rate", s.key, "POST", "/v1/keys", `{"name":"a","scope":"read","rate_limit":"01/s"}`, nil, 422, "validation_failed", "rate_limit"},
		{"unknown gateway", s.key, "POST", "/v1/keys", `{"name":"a","scope":"read","gateway_id":"gw_00000000000000000000000000"}`, nil, 422, "validation_failed", "gateway_id"},
		{"account-level key with a rate limit", s.key, "POST", "/v1/keys", `{"name":"a","scope":"read","level":"account","rate_limit":"1/s"}`, nil, 422, "validation_failed", "rate_limit"},
		{"nested field", s.key, "POST", gw + "/routes", `{"path":"/a","methods":["GET"],"rate_limit":{"sustained":"1/min","burst":"x"}}`, nil, 422, "validation_failed", "rate_limit.burst"},
		{"path without a slash", s.key, "POST", gw + "/routes", `{"path":"a","methods":["GET"]}`, nil, 422, "validation_failed", "path"},
		{"daily limit per hour", s.key, "POST", gw + "/routes", `{"path":"/a","methods":["GET"],"rate_limit":{"daily":"5/h"}}`, nil, 422, "validation_failed", "rate_limit.daily"},
		{"upstream with another scheme", s.key, "POST", "/v1/gateways", `{"name":"a","upstream_url":"ftp://x"}`, nil, 422, "validation_failed", "upstream_url"},
		{"upstream with userinfo", s.key, "POST", "/v1/gateways", `{"name":"a","upstream_url":"http://u:p@x"}`, nil, 422, "validation_failed", "upstream_url"},
		{"IP address as hostname", s.key, "POST", "/v1/gateways", `{"name":"a","upstream_url":"http://x","hostname":"127.0.0.1"}`, nil, 422, "validation_failed", "hostname"},
		{"limit 0", s.key, "GET", "/v1/keys?limit=0", nil, nil, 422, "validation_failed", "limit"},
		{"limit 101", s.key, "GET", "/v1/keys?limit=101", nil, nil, 422, "validation_failed", "limit"},
		{"limit is not a number", s.key, "GET", "/v1/keys?limit=ten", nil, nil, 422, "validation_failed", "limit"},
		{"invalid cursor", s.key, "GET", "/v1/keys?cursor=abc", nil, nil, 422, "validation_failed", "cursor"},
		{"unknown query parameter", s.key, "GET", "/v1/keys?page=2", nil, nil, 422, "validation_failed", "page"},
		{"invalid path in a configuration", s.key, "PUT", gw + "/config", "routes:\n  - path: /a\n    methods: [GET]\n  - path: b\n    methods: [GET]\n", []string{ct + "application/yaml"}, 422, "validation_failed", "routes[1].path"},
		{"unknown field in a configuration", s.key, "PUT", gw + "/config", "rutes: []\n", []string{ct + "application/yaml"}, 422, "validation_failed", "rutes"},
		{"overlap too long", s.key, "POST", "/v1/keys/" + keyID + "/rotate", `{"overlap_days":366}`, nil, 422, "validation_failed", "overlap_days"},
		{"Idempotency-Key too long", s.key, "POST", "/v1/keys", `{"name":"a","scope":"read"}`, []string{"Idempotency-Key: " + strings.Repeat("k", 256)}, 400, "invalid_request", ""},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			a, err := s.try(c.key, c.method, c.path, c.body, c.headers...)
			if err != nil {
				t.Fatal(err)
			}
			m := a.json(t)
			field, _ := m["field"].(string)
			if a.status != c.status || m["error"] != c.code || (c.field != "" && field != c.field) {
				t.Errorf("%s %s: got status %d, %s\nwant status %d, error %s, field %q", c.method, c.path, a.status, a.body, c.status, c.code, c.field)
			}
			if id, _ := m["request_id"].(string); !requestID.MatchString(id) || a.header.Get("X-Request-Id") != id {
				t.Errorf("got request_id %q and X-Request-Id %q, want the same identifier", id, a.header.Get("X-Request-Id"))
			}
			if got := a.header.Get("Content-Type"); got != "application/json" {
				t.Errorf("got Content-Type %q, want application/json", got)
			}
			if message, _ := m["message"].(string); message == "" || strings.Contains(message, "huma") || strings.Contains(message, "sql") {
				t.Errorf("got message %q, want a message without names of libraries", message)
			}
			switch {
			case a.status == 401 && (m["code"] != "key_invalid" || a.header.Get("WWW-Authenticate") != "Bearer"):
				t.Errorf("got code %v and WWW-Authenticate %q, want key_invalid and Bearer", m["code"], a.header.Get("WWW-Authenticate"))
			case a.status == 403 && m["code"] != "scope_insufficient":
				t.Errorf("got code %v, want scope_insufficient", m["code"])
			case a.status == 405 && a.header.Get("Allow") == "":
				t.Error("a 405 has no Allow header")
			}
			if bytes.Contains(a.body, []byte(s.key)) {
				t.Error("the response contains the calling key")
			}
		})
	}
	if n := len(s.call(200, "GET", "/v1/keys?limit=100", nil).json(t)["data"].([]any)); n != 4 {
		t.Errorf("got %d keys, want the 4 that were created before the invalid requests", n)
	}
}

// Guarantee: the data plane makes its checks in the order of the contract (section
// 4.2), and each error has the status and code of the contract.
func TestDataPlaneErrorsFollowTheContract(t *testing.T) {
	s := startServer(t)
	up := newRecordingUpstream(t)
	// Once the default gateway is deleted and two gateways are left, requests for unknown hosts reach neither.
	first := s.newGateway(up.URL, nil)
	id := s.call(http.StatusCreated, "POST", "/v1/gateways", map[string]any{"name": "g", "upstream_url": up.URL, "hostname": "api.example"}).field(t, "gateway_id")
	other := s.call(http.StatusCreated, "POST", "/v1/gateways", map[string]any{"name": "h", "upstream_url": "http://127.0.0.1:1", "hostname": "down.example"}).field(t, "gateway_id")
	s.call(http.StatusOK, "DELETE", "/v1/gateways/"+first, nil)
	route := func(gw, path string, methods []string, more map[string]any) {
		body := map[string]any{"path": path, "methods": methods}
		for k, v := range more {
			body[k] = v
		}
		s.call(http.StatusCreated, "POST", "/v1/gateways/"+gw+"/routes", body)
	}
	route(id, "/orders/{id}", []string{"GET", "DELETE"}, nil)
	route(id, "/orders-old", []string{"GET"}, nil)
	route(id, "/public", []string{"GET"}, map[string]any{"auth": "none"})
	route(other, "/x", []string{"GET"}, nil)
	_, admin := s.newKey(nil)
	_, read := s.newKey(map[string]any{"scope": "read"})
	_, orders := s.newKey(map[string]any{"scope": "read:orders"})
	_, bound := s.newKey(map[string]any{"gateway_id": other})
	for _, c := range []struct {
		name, method, target, key string
		headers                   []string
		status                    int
		errorCode, authCode       string
	}{
		{"allowed", "GET", "/orders/1", admin, nil, 200, "", ""},
		{"key in the query", "GET", "/orders/1?api_key=" + admin + "&a=b", "", nil, 200, "", ""},
		{"public route", "GET", "/public", "", nil, 200, "", ""},
		{"unknown host", "GET", "/orders/1", admin, []string{"Host: nobody.example"}, 404, "gateway_not_found", ""},
		{"no key", "GET", "/orders/1", "", nil, 401, "unauthorized", "key_invalid"},
		{"no key, no route", "GET", "/nothing", "", nil, 401, "unauthorized", "key_invalid"},
		{"invalid bearer, valid api_key", "GET", "/orders/1?api_key=" + admin, "kg_wrong", nil, 401, "unauthorized", "key_invalid"},
		{"account-level key", "GET", "/orders/1", s.key, nil, 401, "unauthorized", "key_invalid"},
		{"two api_key", "GET", "/orders/1?api_key=a&api_key=b", "", nil, 400, "invalid_request", ""},
		{"two api_key, public route", "GET", "/public?api_key=a&api%5fkey=b", "", nil, 400, "invalid_request", ""},
		{"key of another gateway", "GET", "/orders/1", bound, nil, 403, "forbidden", "scope_insufficient"},
		{"unknown route", "GET", "/nothing", admin, nil, 404, "route_not_found", ""},
		{"method not allowed", "POST", "/orders/1", read, nil, 405, "method_not_allowed", ""},
		{"scope does not allow the method", "DELETE", "/orders/1", read, nil, 403, "forbidden", "scope_insufficient"},
		{"scope of another resource", "GET", "/orders-old", orders, nil, 403, "forbidden", "scope_insufficient"},
		{"scope of the resource", "GET", "/orders/1", orders, nil, 200, "", ""},
		{"HEAD", "HEAD", "/orders/1", read, nil, 200, "", ""},
		{"dot segment", "GET", "/orders/../public", admin, nil, 400, "invalid_request", ""},
		{"encoded dot segment", "GET", "/orders/%2e%2E/public", admin, nil, 400, "invalid_request", ""},
		{"empty segment", "GET", "/orders//1", admin, nil, 400, "invalid_request", ""},
		{"encoded slash", "GET", "/orders/a%2fb", admin, nil, 400, "invalid_request", ""},
		{"encoded NUL", "GET", "/orders/a%00", admin, nil, 400, "invalid_request", ""},
		{"TRACE", "TRACE", "/nothing", "", nil, 405, "method_not_allowed", ""},
		{"target too long", "GET", "/orders/1?" + strings.Repeat("x", 16<<10), admin, nil, 414, "target_too_long", ""},
		{"upstream down", "GET", "/x", admin, []string{"Host: down.example"}, 502, "upstream_unreachable", ""},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			up.take()
			headers := append([]string{"Host: api.example"}, c.headers...)
			a, err := s.send(c.method, c.target, c.key, headers...)
			if err != nil {
				t.Fatal(err)
			}
			reached := up.take()
			if a.status != c.status {
				t.Fatalf("%s %s: got status %d, want %d\n%s", c.method, c.target, a.status, c.status, a.body)
			}
			if !requestID.MatchString(a.header.Get("X-Request-Id")) {
				t.Errorf("got X-Request-Id %q, want an identifier", a.header.Get("X-Request-Id"))
			}
			if c.status == 200 {
				if len(reached) != 1 {
					t.Fatalf("%d requests reached the upstream, want 1", len(reached))
				}
				for name, values := range reached[0].header {
					for _, v := range append(values, reached[0].target) {
						if strings.Contains(v, "kg_") {
							t.Errorf("the upstream got the key, in %s: %s", name, v)
						}
					}
				}
			} else {
				if len(reached) != 0 {
					t.Errorf("a refused request reached the upstream: %+v", reached)
				}
				m := a.json(t)
				code, _ := m["code"].(string)
				if m["error"] != c.errorCode || code != c.authCode || m["request_id"] != a.header.Get("X-Request-Id") {
					t.Errorf("got %s, want error %s, code %q", a.body, c.errorCode, c.authCode)
				}
				if c.status == 405 && c.name == "method not allowed" && a.header.Get("Allow") != "DELETE, GET, HEAD" {
					t.Errorf("got Allow %q, want DELETE, GET, HEAD", a.header.Get("Allow"))
				}
			}
			gatewayFound := c.errorCode != "gateway_not_found" && c.status != 400 && c.name != "TRACE" && c.status != 414
			if gatewayFound && a.header.Get("X-Ratelimit-Limit") == "" {
				t.Errorf("no rate limit headers: %v", a.header)
			}
			if c.status != 429 && a.header.Get("Retry-After") != "" {
				t.Errorf("got Retry-After %q, want it only with a 429", a.header.Get("Retry-After"))
			}
		})
	}
}
