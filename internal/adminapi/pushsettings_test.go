package adminapi_test

import (
	"strings"
	"testing"
)

// Guarantee: the response to a push of a configuration, and to its dry run, has the settings that
// change, without secrets. It has no such field if none does.
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
