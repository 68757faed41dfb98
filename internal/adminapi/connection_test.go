package adminapi_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/certificate/certificatetest"
)

// Guarantee: the connection settings of a gateway are in its record only if they are
// set, and the private key is in no response, not even in one that refuses it.
func TestConnectionSettingsHideThePrivateKey(t *testing.T) {
	s := start(t)
	pair := certificatetest.New(t, "client")
	secret := strings.Split(string(pair.Key), "\n")[1]
	set := map[string]any{
		"upstream_client_certificate": string(pair.Cert), "upstream_client_key": string(pair.Key), "upstream_connect_timeout": "1500ms",
		"upstream_idle_timeout": "60s", "upstream_max_connection_age": "60s", "upstream_max_connections": 7,
	}
	body := map[string]any{"name": "a", "upstream_url": "https://orders.internal"}
	for name, value := range set {
		body[name] = value
	}
	created := s.post("/v1/gateways", body).want(201)
	id := created.text("gateway_id")
	all := gatewayFields() + " upstream_client_certificate upstream_client_key upstream_connect_timeout upstream_idle_timeout upstream_max_connection_age upstream_max_connections"
	wantFields(t, created.json, all)
	for name, want := range map[string]any{
		"upstream_client_certificate": string(pair.Cert), "upstream_client_key": "***", "upstream_connect_timeout": "1500ms",
		"upstream_idle_timeout": "60s", "upstream_max_connection_age": "60s", "upstream_max_connections": 7.0,
	} {
		if created.json[name] != want {
			t.Errorf("got %s = %v, want %v", name, created.json[name], want)
		}
	}
	path := "/v1/gateways/" + id
	if got := s.get(path).want(200); got.raw != created.raw {
		t.Errorf("got %s, want %s", got.raw, created.raw)
	}
	patch := func(t *testing.T, body string) *response {
		t.Helper()
		return s.in(t).do(request{method: "PATCH", path: path, body: body})
	}
	quoted, err := json.Marshal(string(pair.Key))
	if err != nil {
		t.Fatal(err)
	}
	key := string(quoted)
	t.Run("invalid settings are refused without the private key in the error", func(t *testing.T) {
		s := s.in(t)
		for _, bad := range []struct{ body, field string }{
			{`{"upstream_client_key": ""}`, "upstream_client_key"},
			{`{"upstream_client_key": "***"}`, "upstream_client_key"},
			{`{"upstream_client_key": [` + key + `]}`, "upstream_client_key"},
			{`{"upstream_client_key": {"pem": ` + key + `}}`, "upstream_client_key"},
			{`{"upstream_client_key": 7}`, "upstream_client_key"},
			{`{"upstream_client_key": null}`, "upstream_client_key"},
			{`{"upstream_client_certificate": null}`, "upstream_client_certificate"},
			{`{"upstream_client_certificate": ` + key + `}`, "upstream_client_certificate"},
			{`{"upstream_client_keys": ` + key + `}`, "upstream_client_keys"},
			{`{"upstream_ca": ` + key + `}`, "upstream_ca"},
			{`{"timeout": ` + key + `}`, "timeout"},
			{`{"upstream_url": ` + key + `}`, "upstream_url"},
			{`{"hostname": ` + key + `}`, "hostname"},
			{`{"upstream_connect_timeout": ` + key + `}`, "upstream_connect_timeout"},
			{`{"upstream_connect_timeout": "2m"}`, "upstream_connect_timeout"},
			{`{"upstream_connect_timeout": 5}`, "upstream_connect_timeout"},
			{`{"upstream_idle_timeout": "500ms"}`, "upstream_idle_timeout"},
			{`{"upstream_max_connection_age": "25h"}`, "upstream_max_connection_age"},
			{`{"upstream_max_connection_age": 60}`, "upstream_max_connection_age"},
			{`{"upstream_max_connections": 0}`, "upstream_max_connections"},
			{`{"upstream_max_connections": 100001}`, "upstream_max_connections"},
			{`{"upstream_max_connections": 1.5}`, "upstream_max_connections"},
			{`{"upstream_max_connections": "7"}`, "upstream_max_connections"},
		} {
			if r := patch(t, bad.body).refused(422, "validation_failed", bad.field); strings.Contains(r.raw, secret) {
				t.Errorf("%s: the response contains the private key: %s", bad.field, r.raw)
			}
		}
		if got := s.get(path).want(200); got.raw != created.raw || got.header.Get("ETag") != created.header.Get("ETag") {
			t.Errorf("after refused calls: got %s, want %s", got.raw, created.raw)
		}
	})
	var cleared *response
	t.Run("null clears the settings", func(t *testing.T) {
		cleared = patch(t, `{"upstream_client_certificate": null, "upstream_client_key": null, "upstream_connect_timeout": null,
			"upstream_idle_timeout": null, "upstream_max_connection_age": null, "upstream_max_connections": null}`).want(200)
		wantFields(t, cleared.json, gatewayFields())
		if cleared.header.Get("ETag") == created.header.Get("ETag") {
			t.Error("the ETag did not change with the record")
		}
	})
	t.Run("null at creation means the default", func(t *testing.T) {
		s := s.in(t)
		nothing := s.post("/v1/gateways", map[string]any{
			"name": "b", "upstream_url": "https://orders.internal", "upstream_client_certificate": nil, "upstream_client_key": nil,
			"upstream_connect_timeout": nil, "upstream_idle_timeout": nil, "upstream_max_connection_age": nil, "upstream_max_connections": nil,
		}).want(201)
		wantFields(t, nothing.json, gatewayFields())
	})
	t.Run("no response contains the private key", func(t *testing.T) {
		s := s.in(t)
		for _, r := range []*response{created, cleared, s.get("/v1/gateways"), s.get("/v1/audit-log?limit=100")} {
			if strings.Contains(r.raw, secret) {
				t.Errorf("the response contains the private key: %s", r.raw)
			}
		}
	})
}
