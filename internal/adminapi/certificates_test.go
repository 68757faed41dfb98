package adminapi_test

import "testing"

// newCertificate creates a gateway with acme and the hostname, and returns the identifier of its certificate.
func (s *server) newCertificate(key, hostname string) string {
	s.t.Helper()
	s.do(request{method: "POST", path: "/v1/gateways", key: key, body: map[string]any{"name": hostname, "upstream_url": "http://x", "hostname": hostname, "acme": true}}).want(201)
	return s.do(request{method: "GET", path: "/v1/certificates?hostname=" + hostname, key: key}).want(200).data()[0]["certificate_id"].(string)
}

// Guarantee: a certificate has exactly these fields; lists find it by its hostname and a part of it, and page.
func TestCertificates(t *testing.T) {
	s := start(t)
	id := s.newCertificate("", "shop.example.com")
	r := s.get("/v1/certificates/" + id).want(200)
	wantFields(t, r.json, "certificate_id gateway_id hostname state not_before not_after renew_at next_attempt_at last_error created_at")
	if r.text("state") != "pending" || r.text("hostname") != "shop.example.com" || r.json["not_after"] != nil || r.json["last_error"] != nil {
		t.Errorf("got %s", r.raw)
	}
	s.newCertificate("", "api.example.com")
	for query, want := range map[string]int{"": 2, "?q=shop": 1, "?hostname=api.example.com": 1, "?hostname=example.com": 0, "?limit=1": 1} {
		if got := len(s.get("/v1/certificates" + query).want(200).data()); got != want {
			t.Errorf("%s: got %d certificates, want %d", query, got, want)
		}
	}
	gateway := s.get("/v1/gateways/" + r.text("gateway_id")).want(200)
	if gateway.json["acme"] != true {
		t.Errorf("got a gateway %s", gateway.raw)
	}
	s.do(request{method: "PATCH", path: "/v1/gateways/" + r.text("gateway_id"), body: `{"acme": null}`}).want(200)
	s.get("/v1/certificates/"+id).refused(404, "not_found", "")
}

// Guarantee: acme needs a hostname that is given, which cannot be a wildcard.
func TestMistakesOfACME(t *testing.T) {
	s := start(t)
	for body, field := range map[string]string{
		`{"name": "a", "upstream_url": "http://x", "acme": true}`:                                  "acme",
		`{"name": "a", "upstream_url": "http://x", "acme": true, "hostname": "*.example.com"}`:     "hostname",
		`{"name": "a", "upstream_url": "http://x", "acme": "yes", "hostname": "a.example.com"}`:    "acme",
		`{"name": "a", "upstream_url": "http://x", "config": "gateway: {acme: true}\nroutes: []"}`: "config.gateway.acme",
	} {
		s.do(request{method: "POST", path: "/v1/gateways", body: body}).refused(422, "validation_failed", field)
	}
	s.newCertificate("", "shop.example.com")
	id := s.get("/v1/certificates").data()[0]["gateway_id"].(string)
	s.do(request{method: "PATCH", path: "/v1/gateways/" + id, body: `{"hostname": null}`}).refused(422, "validation_failed", "acme")
}

// Guarantee: the word write for certificates renews one, and read does not, nor does write for something else. A second call before the
// attempt has begun changes nothing.
func TestWhoMayRenewCertificates(t *testing.T) {
	s := start(t)
	path := "/v1/certificates/" + s.newCertificate("", "shop.example.com") + "/renew"
	for scope, status := range map[string]int{"read": 403, "write:gateways": 403, "read:certificates": 403, "write:certificates": 200, "write": 200} {
		key := s.newKey(map[string]any{"level": "account", "scope": scope}).text("key")
		if got := s.do(request{method: "POST", path: path, key: key}); got.status != status {
			t.Errorf("%s: got %d %s, want %d", scope, got.status, got.raw, status)
		}
	}
}
