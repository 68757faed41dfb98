package e2e

import (
	"bytes"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

var requestID = regexp.MustCompile(`^req_[0-9a-hjkmnp-tv-z]{26}$`)

// Guarantee: each row of the table of errors (contract, section 2) has its
// status, its word, its field, and a request id, whatever went wrong.
func TestWrongInputsOfTheManagementAPI(t *testing.T) {
	s := startServer(t)
	up := newRecorder(t)
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
		word, field             string
	}{
		{"not parseable", s.key, "POST", "/v1/keys", `{"name":`, nil, 400, "invalid_json", ""},
		{"two values", s.key, "POST", "/v1/keys", `{"name":"a","scope":"read"} {}`, nil, 400, "invalid_json", ""},
		{"no key", "", "GET", "/v1/keys", nil, nil, 401, "unauthorized", ""},
		{"no key on no path", "", "GET", "/v1/nothing", nil, nil, 401, "unauthorized", ""},
		{"mistyped key", s.key[:len(s.key)-1] + "~", "GET", "/v1/keys", nil, nil, 401, "unauthorized", ""},
		{"gateway-level key", gatewayKey, "GET", "/v1/keys", nil, nil, 401, "unauthorized", ""},
		{"scope too low", reader, "POST", "/v1/keys", `{`, nil, 403, "forbidden", ""},
		{"scope of another resource", keysReader, "GET", "/v1/gateways", nil, nil, 403, "forbidden", ""},
		{"no such path", reader, "DELETE", "/v1/nothing", nil, nil, 404, "not_found", ""},
		{"final slash", s.key, "GET", "/v1/keys/", nil, nil, 404, "not_found", ""},
		{"not built", s.key, "GET", "/v1/nowhere", nil, nil, 404, "not_found", ""},
		{"no such id", s.key, "GET", "/v1/keys/key_00000000000000000000000000", nil, nil, 404, "not_found", ""},
		{"no id", s.key, "GET", "/v1/keys/x", nil, nil, 404, "not_found", ""},
		{"method", reader, "PUT", "/v1/keys", nil, nil, 405, "method_not_allowed", ""},
		{"stale version", s.key, "PATCH", "/v1/keys/" + keyID, `{"name":"b"}`, []string{`If-Match: "999"`}, 412, "precondition_failed", ""},
		{"too large", s.key, "POST", "/v1/keys", big, nil, 413, "body_too_large", ""},
		{"media type", s.key, "POST", "/v1/keys", `name=a`, []string{ct + "application/x-www-form-urlencoded"}, 415, "unsupported_media_type", ""},
		{"no object", s.key, "POST", "/v1/keys", `[]`, nil, 422, "validation_failed", ""},
		{"missing", s.key, "POST", "/v1/keys", `{"scope":"read"}`, nil, 422, "validation_failed", "name"},
		{"missing", s.key, "POST", "/v1/keys", `{"name":"a"}`, nil, 422, "validation_failed", "scope"},
		{"wrong type", s.key, "POST", "/v1/keys", `{"name":1,"scope":"read"}`, nil, 422, "validation_failed", "name"},
		{"null", s.key, "POST", "/v1/keys", `{"name":null,"scope":"read"}`, nil, 422, "validation_failed", "name"},
		{"unknown", s.key, "POST", "/v1/keys", `{"name":"a","scope":"read","colour":"red"}`, nil, 422, "validation_failed", "colour"},
		{"another case", s.key, "POST", "/v1/keys", `{"Name":"a","scope":"read"}`, nil, 422, "validation_failed", ""},
		{"bad scope", s.key, "POST", "/v1/keys", `{"name":"a","scope":"owner"}`, nil, 422, "validation_failed", "scope"},
		{"past", s.key, "POST", "/v1/keys", `{"name":"a","scope":"read","expires_at":"2020-01-01"}`, nil, 422, "validation_failed", "expires_at"},
		{"bad rate", s.key, "POST", "/v1/keys", `{"name":"a","scope":"read","rate_limit":"01/s"}`, nil, 422, "validation_failed", "rate_limit"},
		{"unknown gateway", s.key, "POST", "/v1/keys", `{"name":"a","scope":"read","gateway_id":"gw_00000000000000000000000000"}`, nil, 422, "validation_failed", "gateway_id"},
		{"account key with gateway", s.key, "POST", "/v1/keys", `{"name":"a","scope":"read","level":"account","rate_limit":"1/s"}`, nil, 422, "validation_failed", "rate_limit"},
		{"nested", s.key, "POST", gw + "/routes", `{"path":"/a","methods":["GET"],"rate_limit":{"sustained":"1/min","burst":"x"}}`, nil, 422, "validation_failed", "rate_limit.burst"},
		{"bad path", s.key, "POST", gw + "/routes", `{"path":"a","methods":["GET"]}`, nil, 422, "validation_failed", "path"},
		{"daily unit", s.key, "POST", gw + "/routes", `{"path":"/a","methods":["GET"],"rate_limit":{"daily":"5/h"}}`, nil, 422, "validation_failed", "rate_limit.daily"},
		{"upstream", s.key, "POST", "/v1/gateways", `{"name":"a","upstream_url":"ftp://x"}`, nil, 422, "validation_failed", "upstream_url"},
		{"userinfo", s.key, "POST", "/v1/gateways", `{"name":"a","upstream_url":"http://u:p@x"}`, nil, 422, "validation_failed", "upstream_url"},
		{"hostname", s.key, "POST", "/v1/gateways", `{"name":"a","upstream_url":"http://x","hostname":"127.0.0.1"}`, nil, 422, "validation_failed", "hostname"},
		{"limit 0", s.key, "GET", "/v1/keys?limit=0", nil, nil, 422, "validation_failed", "limit"},
		{"limit 101", s.key, "GET", "/v1/keys?limit=101", nil, nil, 422, "validation_failed", "limit"},
		{"limit no number", s.key, "GET", "/v1/keys?limit=ten", nil, nil, 422, "validation_failed", "limit"},
		{"cursor", s.key, "GET", "/v1/keys?cursor=abc", nil, nil, 422, "validation_failed", "cursor"},
		{"unknown query", s.key, "GET", "/v1/keys?page=2", nil, nil, 422, "validation_failed", "page"},
		{"config", s.key, "PUT", gw + "/config", "routes:\n  - path: /a\n    methods: [GET]\n  - path: b\n    methods: [GET]\n", []string{ct + "application/yaml"}, 422, "validation_failed", "routes[1].path"},
		{"config key", s.key, "PUT", gw + "/config", "rutes: []\n", []string{ct + "application/yaml"}, 422, "validation_failed", "rutes"},
		{"overlap days", s.key, "POST", "/v1/keys/" + keyID + "/rotate", `{"overlap_days":366}`, nil, 422, "validation_failed", "overlap_days"},
		{"idempotency key", s.key, "POST", "/v1/keys", `{"name":"a","scope":"read"}`, []string{"Idempotency-Key: " + strings.Repeat("k", 256)}, 400, "invalid_request", ""},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			a, err := s.try(c.key, c.method, c.path, c.body, c.headers...)
			if err != nil {
				t.Fatal(err)
			}
			m := a.json(t)
			field, _ := m["field"].(string)
			if a.status != c.status || m["error"] != c.word || (c.field != "" && field != c.field) {
				t.Errorf("%s %s: %d %s\nwant %d %s, field %q", c.method, c.path, a.status, a.body, c.status, c.word, c.field)
			}
			if id, _ := m["request_id"].(string); !requestID.MatchString(id) || a.header.Get("X-Request-Id") != id {
				t.Errorf("request_id %q, X-Request-Id %q", id, a.header.Get("X-Request-Id"))
			}
			if got := a.header.Get("Content-Type"); got != "application/json" {
				t.Errorf("Content-Type %q", got)
			}
			if message, _ := m["message"].(string); message == "" || strings.Contains(message, "huma") || strings.Contains(message, "sql") {
				t.Errorf("message %q", message)
			}
			switch {
			case a.status == 401 && (m["code"] != "key_invalid" || a.header.Get("WWW-Authenticate") != "Bearer"):
				t.Errorf("code %v, WWW-Authenticate %q", m["code"], a.header.Get("WWW-Authenticate"))
			case a.status == 403 && m["code"] != "scope_insufficient":
				t.Errorf("code %v", m["code"])
			case a.status == 405 && a.header.Get("Allow") == "":
				t.Error("no Allow")
			}
			if bytes.Contains(a.body, []byte(s.key)) {
				t.Error("the answer holds the caller's key")
			}
		})
	}
	if n := len(s.call(200, "GET", "/v1/keys?limit=100", nil).json(t)["data"].([]any)); n != 4 {
		t.Errorf("there are %d keys, want the 4 that were made rightly", n)
	}
}

// Guarantee: the checks of the data plane come in the order of contract 4.2,
// each with its status and word.
func TestWrongInputsOfTheDataPlane(t *testing.T) {
	s := startServer(t)
	up := newRecorder(t)
	id := s.call(http.StatusCreated, "POST", "/v1/gateways", map[string]any{"name": "g", "upstream_url": up.URL, "hostname": "api.example"}).str(t, "gateway_id")
	other := s.call(http.StatusCreated, "POST", "/v1/gateways", map[string]any{"name": "h", "upstream_url": "http://127.0.0.1:1", "hostname": "down.example"}).str(t, "gateway_id")
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
		word, code                string
	}{
		{"fine", "GET", "/orders/1", admin, nil, 200, "", ""},
		{"by query", "GET", "/orders/1?api_key=" + admin + "&a=b", "", nil, 200, "", ""},
		{"public", "GET", "/public", "", nil, 200, "", ""},
		{"unknown host", "GET", "/orders/1", admin, []string{"Host: nobody.example"}, 404, "gateway_not_found", ""},
		{"no key", "GET", "/orders/1", "", nil, 401, "unauthorized", "key_invalid"},
		{"no key, no route", "GET", "/nothing", "", nil, 401, "unauthorized", "key_invalid"},
		{"bad bearer, good api_key", "GET", "/orders/1?api_key=" + admin, "kg_wrong", nil, 401, "unauthorized", "key_invalid"},
		{"account-level key", "GET", "/orders/1", s.key, nil, 401, "unauthorized", "key_invalid"},
		{"two api_key", "GET", "/orders/1?api_key=a&api_key=b", "", nil, 400, "invalid_request", ""},
		{"two api_key, public", "GET", "/public?api_key=a&api%5fkey=b", "", nil, 400, "invalid_request", ""},
		{"another gateway's key", "GET", "/orders/1", bound, nil, 403, "forbidden", "scope_insufficient"},
		{"no route", "GET", "/nothing", admin, nil, 404, "route_not_found", ""},
		{"method", "POST", "/orders/1", read, nil, 405, "method_not_allowed", ""},
		{"scope word", "DELETE", "/orders/1", read, nil, 403, "forbidden", "scope_insufficient"},
		{"scope resource", "GET", "/orders-old", orders, nil, 403, "forbidden", "scope_insufficient"},
		{"scope resource fits", "GET", "/orders/1", orders, nil, 200, "", ""},
		{"HEAD", "HEAD", "/orders/1", read, nil, 200, "", ""},
		{"dot segment", "GET", "/orders/../public", admin, nil, 400, "invalid_request", ""},
		{"encoded dot segment", "GET", "/orders/%2e%2E/public", admin, nil, 400, "invalid_request", ""},
		{"empty segment", "GET", "/orders//1", admin, nil, 400, "invalid_request", ""},
		{"encoded slash", "GET", "/orders/a%2fb", admin, nil, 400, "invalid_request", ""},
		{"encoded NUL", "GET", "/orders/a%00", admin, nil, 400, "invalid_request", ""},
		{"TRACE", "TRACE", "/nothing", "", nil, 405, "method_not_allowed", ""},
		{"long target", "GET", "/orders/1?" + strings.Repeat("x", 16<<10), admin, nil, 414, "target_too_long", ""},
		{"upstream down", "GET", "/x", admin, []string{"Host: down.example"}, 502, "upstream_unreachable", ""},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			up.take()
			headers := append([]string{"Host: api.example"}, c.headers...)
			a, err := s.through(c.method, c.target, c.key, headers...)
			if err != nil {
				t.Fatal(err)
			}
			reached := up.take()
			if a.status != c.status {
				t.Fatalf("%s %s: %d %s, want %d", c.method, c.target, a.status, a.body, c.status)
			}
			if !requestID.MatchString(a.header.Get("X-Request-Id")) {
				t.Errorf("X-Request-Id %q", a.header.Get("X-Request-Id"))
			}
			if c.status == 200 {
				if len(reached) != 1 {
					t.Fatalf("%d requests reached the upstream", len(reached))
				}
				for name, values := range reached[0].header {
					for _, v := range append(values, reached[0].target) {
						if strings.Contains(v, "kg_") {
							t.Errorf("the upstream saw the key in %s: %s", name, v)
						}
					}
				}
			} else {
				if len(reached) != 0 {
					t.Errorf("a refused request reached the upstream: %+v", reached)
				}
				m := a.json(t)
				code, _ := m["code"].(string)
				if m["error"] != c.word || code != c.code || m["request_id"] != a.header.Get("X-Request-Id") {
					t.Errorf("body %s, want %s, code %q", a.body, c.word, c.code)
				}
				if c.status == 405 && c.name == "method" && a.header.Get("Allow") != "DELETE, GET, HEAD" {
					t.Errorf("Allow %q", a.header.Get("Allow"))
				}
			}
			found := c.word != "gateway_not_found" && c.status != 400 && c.name != "TRACE" && c.status != 414
			if found && a.header.Get("X-Ratelimit-Limit") == "" {
				t.Errorf("no rate limit headers: %v", a.header)
			}
			if c.status != 429 && a.header.Get("Retry-After") != "" {
				t.Errorf("Retry-After %q", a.header.Get("Retry-After"))
			}
		})
	}
}
