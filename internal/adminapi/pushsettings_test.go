package adminapi_test

import (
	"strings"
	"testing"
)

// Guarantee: the response to a push of a configuration, and to its dry run, has the settings that
// change, without secrets. It has no such field if no setting changes.
func TestPushShowsChangedSettings(t *testing.T) {
	s := start(t)
	at := "/v1/gateways/" + s.newGateway("") + "/config"
	put := func(query, body string) *response {
		return s.do(request{method: "PUT", path: at + query, body: body, header: map[string]string{"Content-Type": "application/yaml"}})
	}
	const file = "gateway: {timeout: 30s, max_body_bytes: 5, upstream_headers: {X-Token: s3cret}}\nroutes: []\n"
	const want = `"gateway":[{"field":"timeout","before":"60s","after":"30s"},{"field":"upstream_headers","before":null,"after":{"X-Token":"***"}},{"field":"max_body_bytes","before":null,"after":5}]`
	for _, query := range []string{"?dry_run=true", ""} {
		if got := put(query, file).want(200); !strings.Contains(got.raw, want) {
			t.Errorf("%s: got %s, want %s in it", query, got.raw, want)
		}
	}
	wantFields(t, put("", file).want(200).json, "revision added removed changed unchanged warnings")
	put("", "gateway:\n  upstream_client_key: '***'\nroutes: []\n").refused(422, "validation_failed", "gateway.upstream_client_key")
}

// Guarantee: POST of a gateway takes a configuration file, and with dry_run=true returns what it would
// create, as a push does, without creating it. Without a file, the name and the upstream URL are required.
func TestGatewayIsCreatedFromAFile(t *testing.T) {
	s := start(t)
	const file = `{"timeout": "30s", "config": "gateway:\n  name: shop\n  upstream_url: https://shop.internal\n  upstream_headers: {X-Token: s3cret}\nroutes: [{path: /a, methods: [GET]}]\n"}`
	dry := s.post("/v1/gateways?dry_run=true", file).want(200)
	wantFields(t, dry.json, "revision added removed changed unchanged warnings gateway")
	if dry.json["revision"] != nil || !strings.Contains(dry.raw, `{"field":"upstream_headers","before":null,"after":{"X-Token":"***"}}`) || !strings.Contains(dry.raw, `{"path":"/a","methods":["GET"],"route_id":null}`) {
		t.Errorf("dry run: got %s, want the settings and the route", dry.raw)
	}
	if n := len(s.get("/v1/gateways").want(200).data()); n != 0 {
		t.Errorf("got %d gateways after a dry run, want 0", n)
	}
	created := s.post("/v1/gateways", file).want(201)
	if created.text("name") != "shop" || created.text("timeout") != "30s" || created.json["revision"] != 1.0 || strings.Contains(created.raw, "s3cret") {
		t.Errorf("got %s, want the gateway of the file at revision 1, without its secret", created.raw)
	}
	if at := "/v1/gateways/" + created.text("gateway_id"); len(s.get(at+"/routes").want(200).data()) != 1 || s.get(at+"/revisions/1").text("kind") != "config" {
		t.Error("want one route and a revision of kind config")
	}
	for body, field := range map[string]string{
		`{}`: "name", `{"name": "a"}`: "upstream_url", `{"name": "a", "upstream_url": "http://a", "config": "routes: []", "spec": "x"}`: "config",
		`{"config": "routes: []"}`: "name", `{"config": ""}`: "config", `{"name": null, "config": "gateway: {name: a, upstream_url: 'http://a'}\nroutes: []"}`: "name",
		`{"config": "gateway: {name: a, upstream_url: 'http://a', timeout: 2h}\nroutes: []"}`: "config.gateway.timeout",
	} {
		s.post("/v1/gateways", body).refused(422, "validation_failed", field)
		s.post("/v1/gateways?dry_run=true", body).refused(422, "validation_failed", field)
	}
	s.post("/v1/gateways?dry_run=x", file).refused(422, "validation_failed", "dry_run")
}
