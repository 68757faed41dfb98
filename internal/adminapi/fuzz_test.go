package adminapi_test

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
)

// Guarantee: no body makes a call respond with a 500, and every response is JSON.
func FuzzBodies(f *testing.F) {
	calls := []struct{ method, path, mediaType string }{
		{"POST", "/v1/keys", jsonType}, {"PATCH", "/v1/keys/KEY", jsonType}, {"POST", "/v1/keys/KEY/rotate", jsonType},
		{"POST", "/v1/keys/verify", jsonType}, {"POST", "/v1/gateways", jsonType}, {"PATCH", "/v1/gateways/GATEWAY", jsonType},
		{"POST", "/v1/gateways/GATEWAY/routes", jsonType}, {"POST", "/v1/gateways/GATEWAY/routes/ROUTE", jsonType},
		{"PUT", "/v1/gateways/GATEWAY/spec?dry_run=true", "text/plain"}, {"PUT", "/v1/gateways/GATEWAY/config?dry_run=true", "text/plain"},
		{"POST", "/v1/webhooks", jsonType}, {"PATCH", "/v1/webhooks/HOOK", jsonType},
		{"POST", "/v1/webhooks/HOOK/rotate-secret", jsonType}, {"POST", "/v1/webhooks/HOOK/recover", jsonType},
	}
	for i, seed := range []string{
		`{"name": "a", "scope": "read", "level": "account", "metadata": {"a": "b"}, "expires_at": "2030-01-31"}`,
		`{"name": null, "owner": null, "rate_limit": "1/s", "metadata": {}, "expires_at": null}`,
		`{"overlap_days": 7, "expires_at": "2030-01-31T00:00:00Z"}`,
		`{"key": "kg_x", "gateway_id": "gw_x", "method": "GET", "path": "/a"}`,
		`{"name": "a", "upstream_url": "https://x", "spec": "openapi: 3.0.0", "cors": {"origins": ["*"]}, "upstream_headers": {"a": "b"}, "max_body_bytes": 1}`,
		`{"name": "a", "timeout": "1s", "global_rate_limit": {"sustained": "1/s", "burst": null}, "upstream_ca": null}`,
		`{"path": "/a/{b}.json", "methods": ["GET"], "rate_limit": {"daily": "1/day", "per": "key"}, "auth": "none"}`,
		`{"rate_limit": {"sustained": null, "burst": "1/s"}}`,
		petSpec,
		"gateway: {name: a}\nroutes: [{path: /a, methods: [GET], rate_limit: {sustained: 1/s}}]",
		`{"url": "https://hooks.example.com:8443/a?b=c", "events": ["key.created"], "signing_secret": "sixteen bytes or so"}`,
		`{"url": "https://[2001:db8::1]/", "events": ["key.revoked", "key.expired"], "state": "active"}`,
		`{"overlap_hours": 168}`,
		`{"since": "2027-03-01T12:00:00.123456789+01:00"}`,
	} {
		f.Add(uint8(i), []byte(seed))
	}
	s := start(f)
	gatewayID := s.newGateway("")
	ids := strings.NewReplacer("GATEWAY", gatewayID, "ROUTE", s.newRoute("", gatewayID, "/a"), "KEY", s.newKey(nil).text("key_id"),
		"HOOK", s.newWebhook(nil).text("webhook_id"))
	f.Fuzz(func(t *testing.T, which uint8, body []byte) {
		s.clock.move(1e9)
		call := calls[int(which)%len(calls)]
		r := httptest.NewRequest(call.method, ids.Replace(call.path), strings.NewReader(string(body)))
		r.Header.Set("Authorization", "Bearer "+s.admin)
		r.Header.Set("Content-Type", call.mediaType)
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, r)
		var res map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &res); err != nil || w.Header().Get("Content-Type") != jsonType {
			t.Fatalf("got status %d, %v, want JSON\n%s", w.Code, w.Header(), w.Body)
		}
		switch w.Code {
		case 200, 201:
		case 400, 404, 409, 413, 422:
			if res["error"] == "" || res["message"] == "" {
				t.Fatalf("got status %d, %s, want error and message", w.Code, w.Body)
			}
		default:
			t.Fatalf("%s %s: got status %d, want success or a client error\n%s\n%q", call.method, call.path, w.Code, w.Body, body)
		}
	})
}

const jsonType = "application/json"

// Guarantee: no path, query or header makes a call respond with a 500.
func FuzzHeads(f *testing.F) {
	f.Add("/v1/keys", "limit=5&cursor=abc", `"1", W/"2"`, "k")
	f.Add("/v1/gateways/gw_x/routes", "limit=%zz", "*", "\x00")
	f.Add("/v1/keys/%2e%2e/rotate", "a=b;c", "", strings.Repeat("k", 300))
	s := start(f)
	f.Fuzz(func(t *testing.T, path, query, match, idempotencyKey string) {
		for _, method := range []string{"GET", "POST", "PATCH", "DELETE"} {
			s.clock.move(1e9)
			r := httptest.NewRequest(method, "/", strings.NewReader("{}"))
			r.URL.Path, r.URL.RawPath, r.URL.RawQuery = path, path, query
			r.Header.Set("Authorization", "Bearer "+s.admin)
			r.Header.Set("Content-Type", jsonType)
			r.Header.Set("If-Match", match)
			r.Header.Set("Idempotency-Key", idempotencyKey)
			w := httptest.NewRecorder()
			s.handler.ServeHTTP(w, r)
			if w.Code >= 500 || w.Header().Get("X-Request-Id") == "" {
				t.Fatalf("%s: got status %d, want no server error, with X-Request-Id\n%s", method, w.Code, w.Body)
			}
		}
	})
}
