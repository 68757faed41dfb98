package adminapi_test

import (
	"fmt"
	"reflect"
	"testing"
)

// Guarantee: contract 3.3: key_headers and allow_encoded_slashes can be set, are always in
// the record, and null restores their defaults; a refused value changes nothing.
func TestRequestSettings(t *testing.T) {
	s := start(t)
	created := s.post("/v1/gateways", map[string]any{
		"name": "a", "upstream_url": "https://orders.internal", "key_headers": []string{"X-API-Key", "Authorization"}, "allow_encoded_slashes": true,
	}).want(201)
	path := "/v1/gateways/" + created.json["gateway_id"].(string)
	wantSettings := func(t *testing.T, r *response, slashes bool, headers ...any) {
		t.Helper()
		if !reflect.DeepEqual(r.json["key_headers"], headers) || r.json["allow_encoded_slashes"] != slashes {
			t.Errorf("got %v and %v, want %v and %t", r.json["key_headers"], r.json["allow_encoded_slashes"], headers, slashes)
		}
	}
	wantSettings(t, created, true, "X-API-Key", "Authorization")
	for _, bad := range []struct{ body, field string }{
		{`{"key_headers": []}`, "key_headers"},
		{`{"key_headers": "X-API-Key"}`, "key_headers"},
		{`{"key_headers": [7]}`, "key_headers[0]"},
		{`{"key_headers": ["X-API-Key", "x-api-key"]}`, "key_headers[1]"},
		{`{"key_headers": ["X-API-Key", "Cookie"]}`, "key_headers[1]"},
		{`{"key_headers": ["a", "b", "c", "d", "e"]}`, "key_headers"},
		{`{"allow_encoded_slashes": "true"}`, "allow_encoded_slashes"},
		{`{"allow_encoded_slashes": 1}`, "allow_encoded_slashes"},
		{`{"cut_streams": "false"}`, "cut_streams"},
	} {
		s.do(request{method: "PATCH", path: path, body: bad.body}).refused(422, "validation_failed", bad.field)
	}
	if got := s.get(path).want(200); got.raw != created.raw {
		t.Errorf("after refused calls: got %s, want %s", got.raw, created.raw)
	}
	wantSettings(t, s.do(request{method: "PATCH", path: path, body: `{"key_headers": null, "allow_encoded_slashes": null}`}).want(200), false, "Authorization")
	nothing := s.post("/v1/gateways", map[string]any{"name": "b", "upstream_url": "https://b.internal"}).want(201)
	wantSettings(t, nothing, false, "Authorization")
}

// Guarantee: contract 3.3: cut_streams is true unless it is set to false, and null restores that.
func TestCutStreamsSetting(t *testing.T) {
	s := start(t)
	created := s.post("/v1/gateways", map[string]any{"name": "a", "upstream_url": "https://orders.internal", "cut_streams": false}).want(201)
	path := "/v1/gateways/" + created.json["gateway_id"].(string)
	if got := created.json["cut_streams"]; got != false {
		t.Errorf("got %v in a new gateway, want false", got)
	}
	for _, step := range []struct {
		body string
		want bool
	}{{`{"name": "b"}`, false}, {`{"cut_streams": null}`, true}, {`{"cut_streams": false}`, false}, {`{"cut_streams": true}`, true}} {
		if got := s.do(request{method: "PATCH", path: path, body: step.body}).want(200).json["cut_streams"]; got != step.want {
			t.Errorf("after %s: got %v, want %t", step.body, got, step.want)
		}
	}
	if got := s.post("/v1/gateways", map[string]any{"name": "c", "upstream_url": "https://c.internal"}).want(201).json["cut_streams"]; got != true {
		t.Errorf("got %v for a gateway that does not set it, want true", got)
	}
}

// Guarantee: verify reports a path with an encoded slash only for a gateway that allows it.
func TestVerifyOfAnEncodedSlash(t *testing.T) {
	s := start(t)
	gatewayWith := func(slashes bool) string {
		return s.post("/v1/gateways", map[string]any{
			"name": fmt.Sprint(slashes), "upstream_url": "https://orders.internal", "allow_encoded_slashes": slashes,
		}).want(201).json["gateway_id"].(string)
	}
	on, off := gatewayWith(true), gatewayWith(false)
	key := s.post("/v1/keys", map[string]any{"name": "k", "scope": "read:projects"}).want(201).json["key"]
	verify := func(gatewayID, path string) *response {
		return s.post("/v1/keys/verify", map[string]any{"key": key, "gateway_id": gatewayID, "method": "GET", "path": path})
	}
	for path, valid := range map[string]bool{"/projects/group%2Fname": true, "/projects%2Fname": false} {
		if got := verify(on, path).want(200).json["valid"]; got != valid {
			t.Errorf("%s: got valid %v, want %v", path, got, valid)
		}
	}
	key = s.post("/v1/keys", map[string]any{"name": "k", "scope": "read:projects/group%2Fname"}).want(201).json["key"]
	for path, valid := range map[string]bool{
		"/projects/group%2fname": true, "/projects/group%2Fname/issues": true, "/projects/group": false,
		"/projects/group/name": false, "/projects/group%2Fname%2Fissues": false, "/projects/group%5Cname": false,
	} {
		if got := verify(on, path).want(200).json["valid"]; got != valid {
			t.Errorf("%s: got valid %v with a scope that has an encoded slash, want %v", path, got, valid)
		}
	}
	verify(off, "/projects/group%2Fname").refused(422, "validation_failed", "path")
	verify(on, "/projects/a%2F..%2Fb").refused(422, "validation_failed", "path")
	s.post("/v1/keys/verify", map[string]any{"key": key, "path": "/projects/group%2Fname"}).refused(422, "validation_failed", "path")
}
