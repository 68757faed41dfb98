package server_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/keygate/keygate/internal/keygatetest"
)

// Guarantee: a route answers at its new path, with its new methods and authentication, and no longer at
// the old one, as soon as the call that moved it has returned. The use of its limit is kept.
func TestMovedRouteAnswersAtOnce(t *testing.T) {
	up := keygatetest.NewUpstream(t)
	s := keygatetest.Start(t)
	want := func(what, target string, r keygatetest.Response, status int) {
		t.Helper()
		if r.Status != status {
			t.Fatalf("%s %s: got %d %s, want %d", what, target, r.Status, r.Body, status)
		}
	}
	create := func(path, body, id string) string {
		t.Helper()
		r := s.Call("POST", path, s.AdminKey, body)
		var record map[string]any
		if err := json.Unmarshal([]byte(r.Body), &record); err != nil || r.Status != http.StatusCreated {
			t.Fatalf("POST %s: got %d %s", path, r.Status, r.Body)
		}
		return record[id].(string)
	}
	routes := "/v1/gateways/" + create("/v1/gateways", `{"name":"g","upstream_url":"`+up.URL+`"}`, "gateway_id") + "/routes"
	key := create("/v1/keys", `{"name":"k","scope":"read"}`, "key")
	route := routes + "/" + create(routes, `{"path":"/old/{id}","methods":["GET","POST"],"rate_limit":{"sustained":"3/day"}}`, "route_id")
	other := create(routes, `{"path":"/taken","methods":["GET"]}`, "route_id")

	want("GET", "/old/1", s.Through("", "GET", "/old/1", key, ""), 200)
	moved := s.Call("PATCH", route, s.AdminKey, `{"path":"/new/{id}","methods":["GET"]}`)
	want("PATCH", route, moved, 200)
	want("GET", "/old/1", s.Through("", "GET", "/old/1", key, ""), 404)
	want("POST", "/new/1", s.Through("", "POST", "/new/1", key, ""), 405)
	r := s.Through("", "GET", "/new/1", key, "")
	want("GET", "/new/1", r, 200)
	if got := r.Header.Get("X-RateLimit-Remaining"); got != "1" {
		t.Errorf("%s requests remain after one before the move and one after, want 1 of 3", got)
	}

	want("PATCH to the path of another route", route, s.Call("PATCH", route, s.AdminKey, `{"path":"/taken"}`), 422)
	want("PATCH with an old ETag", route, s.Call("PATCH", route, s.AdminKey, `{"path":"/newer"}`, "If-Match", `"1"`), 412)
	want("GET", "/new/1", s.Through("", "GET", "/new/1", key, ""), 200)
	want("PATCH", route, s.Call("PATCH", route, s.AdminKey, `{"auth":"none","rate_limit":null}`, "If-Match", moved.Header.Get("ETag")), 200)
	want("GET without a key", "/new/1", s.Through("", "GET", "/new/1", "", ""), 200)
	want("GET without a key", "/taken", s.Through("", "GET", "/taken", "", ""), 401)
	want("DELETE", other, s.Call("DELETE", routes+"/"+other, s.AdminKey, ""), 200)
	want("PATCH to a path that is free now", route, s.Call("PATCH", route, s.AdminKey, `{"path":"/taken"}`), 200)
	want("GET without a key", "/taken", s.Through("", "GET", "/taken", "", ""), 200)
}
