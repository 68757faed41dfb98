package adminapi_test

import (
	"encoding/json"
	"fmt"
	"testing"
)

const canaryFields = "canary_id gateway_id upstream other routes steps hold abort min_requests when_done state step weight progress explanation lines created_at ended_at"

// startCanaries returns a server that has a gateway with two upstreams and a route, and the path of its canaries.
func startCanaries(t *testing.T) (s *server, path, routeID string) {
	t.Helper()
	s = start(t)
	gateway := "/v1/gateways/" + s.newGateway("")
	s.do(request{method: "PUT", path: gateway + "/upstreams/next", body: map[string]any{"targets": []any{map[string]any{"url": "http://next"}}}}).want(201)
	return s, gateway + "/canaries", s.post(gateway+"/routes", map[string]any{"path": "/orders", "methods": []string{"GET"}}).want(201).text("route_id")
}

// Guarantee: targets.md 8. A canary is started with its defaults or with what the call gives, shown, listed, paused, resumed,
// promoted and aborted; each call that changes it honours If-Match and Idempotency-Key.
func TestCanaryCalls(t *testing.T) {
	s, path, routeID := startCanaries(t)
	made := s.do(request{method: "POST", path: path, body: `{"upstream": "next"}`, header: map[string]string{"Idempotency-Key": "one"}}).want(201)
	wantFields(t, made.json, canaryFields+" warnings")
	id := made.text("canary_id")
	if made.header.Get("Location") != path+"/"+id {
		t.Errorf("got the Location %s", made.header.Get("Location"))
	}
	for field, want := range map[string]string{
		"upstream": `"next"`, "other": `"default"`, "routes": `["` + routeID + `"]`, "steps": `[1,5,25,50]`, "hold": `"10m"`, "abort": `{"errors":{"more_than":1},"latency":null}`,
		"min_requests": "1000", "when_done": `"hold"`, "state": `"running"`, "step": "1", "weight": "1", "lines": "[]", "ended_at": "null",
		"progress": `[{"next":{"bad":0,"p95_ms":null,"requests":0},"other":{"bad":0,"p95_ms":null,"requests":0},"since":"2027-03-01T12:00:00Z","step":1,"weight":1}]`,
	} {
		if got, _ := json.Marshal(made.json[field]); string(got) != want {
			t.Errorf("%s: got %s, want %s", field, got, want)
		}
	}
	again := s.do(request{method: "POST", path: path, body: `{"upstream": "next"}`, header: map[string]string{"Idempotency-Key": "one"}}).want(201)
	if again.header.Get("Idempotent-Replayed") != "true" || again.text("canary_id") != id {
		t.Errorf("got %v %s, want the first response again", again.header, again.raw)
	}
	s.post(path, `{"upstream": "next"}`).refused(409, "conflict", "")
	for i, step := range []struct{ call, state string }{{"pause", "paused"}, {"resume", "running"}, {"pause", "paused"}, {"abort", "aborted"}} {
		tag := s.get(path + "/" + id).want(200).header.Get("ETag")
		call := request{method: "POST", path: path + "/" + id + "/" + step.call, header: map[string]string{"If-Match": tag, "Idempotency-Key": fmt.Sprint("call", i)}}
		got := s.do(call).want(200)
		wantFields(t, got.json, canaryFields)
		if got.text("state") != step.state || got.header.Get("ETag") == tag {
			t.Errorf("%s: got %s with the ETag %s, want it %s", step.call, got.raw, got.header.Get("ETag"), step.state)
		}
		if s.do(call).want(200).header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("%s was not replayed", step.call)
		}
		call.header = map[string]string{"If-Match": tag}
		s.do(call).refused(412, "precondition_failed", "")
	}
	for _, call := range []string{"pause", "resume", "abort", "promote"} {
		s.do(request{method: "POST", path: path + "/" + id + "/" + call}).refused(409, "conflict", "")
	}
	second := s.post(path, map[string]any{
		"upstream": "next", "routes": []string{routeID}, "steps": []float64{0.25, 99.99}, "hold": "1m", "abort": map[string]any{"latency": map[string]any{"p95_ratio": 1.5}}, "min_requests": 5, "when_done": "promote",
	}).want(201)
	wantFields(t, second.json, canaryFields+" warnings")
	if got := fmt.Sprint(second.json["warnings"]); got != "[the step of 0.25 % has about 0 of the 0 callers of the last hour: fewer than 5 say little hold is below 4m: the canary is never aborted for latency]" {
		t.Errorf("got the warnings %s", got)
	}
	done := s.do(request{method: "POST", path: path + "/" + second.text("canary_id") + "/promote"}).want(200)
	if done.text("state") != "promoted" || done.json["weight"] != nil || done.json["ended_at"] == nil {
		t.Errorf("got %s, want it promoted", done.raw)
	}
	list := s.get(path + "?limit=1").want(200)
	if data := list.data(); len(data) != 1 || data[0]["canary_id"] != second.json["canary_id"] {
		t.Errorf("got %s, want the newest canary", list.raw)
	}
	next := s.get(path + "?limit=1&cursor=" + list.text("next_cursor")).want(200)
	if data := next.data(); len(data) != 1 || data[0]["canary_id"] != id || next.json["next_cursor"] != nil {
		t.Errorf("got %s, want the first canary", next.raw)
	}
}

// Guarantee: what is wrong with a canary is a 422 with its field, and unknown ones are a 404.
func TestInvalidCanaryCalls(t *testing.T) {
	s, path, routeID := startCanaries(t)
	for body, field := range map[string]string{
		`{}`:                                                                     "upstream",
		`{"upstream": "none"}`:                                                   "upstream",
		`{"upstream": "next", "steps": []}`:                                      "steps",
		`{"upstream": "next", "steps": [5, 1]}`:                                  "steps[1]",
		`{"upstream": "next", "steps": [1, 100]}`:                                "steps[1]",
		`{"upstream": "next", "steps": [1.005]}`:                                 "steps[0]",
		`{"upstream": "next", "steps": ["1"]}`:                                   "steps[0]",
		`{"upstream": "next", "hold": "10"}`:                                     "hold",
		`{"upstream": "next", "abort": {}}`:                                      "abort",
		`{"upstream": "next", "abort": {"errors": {}}}`:                          "abort.errors.more_than",
		`{"upstream": "next", "abort": {"errors": {"more_than": -1}}}`:           "abort.errors.more_than",
		`{"upstream": "next", "abort": {"latency": {"p95_ratio": 1}}}`:           "abort.latency.p95_ratio",
		`{"upstream": "next", "min_requests": 0}`:                                "min_requests",
		`{"upstream": "next", "when_done": "stop"}`:                              "when_done",
		`{"upstream": "next", "routes": ["rt_x"]}`:                               "routes[0]",
		`{"upstream": "next", "routes": ["` + routeID + `", "` + routeID + `"]}`: "routes[1]",
		`{"upstream": "next", "weight": 5}`:                                      "weight",
	} {
		if got := s.post(path, body); got.status != 422 || got.text("field") != field {
			t.Errorf("%s: got %d %s, want a 422 of %s", body, got.status, got.raw, field)
		}
	}
	s.get(path+"/can_x").refused(404, "not_found", "")
	for _, call := range []string{"pause", "resume", "abort", "promote"} {
		s.do(request{method: "POST", path: path + "/can_x/" + call}).refused(404, "not_found", "")
	}
}

// Guarantee: canaries are started and changed with write, and with a scope of their gateway or of its canaries; another account finds none.
func TestScopesOfCanaries(t *testing.T) {
	s, path, _ := startCanaries(t)
	gateway := path[len("/v1/") : len(path)-len("/canaries")]
	id := s.post(path, `{"upstream": "next"}`).want(201).text("canary_id")
	for scope, status := range map[string]int{
		"read": 403, "write": 409, "admin:" + gateway: 409, "write:" + gateway + "/canaries": 409, "write:" + gateway + "/upstreams": 403, "write:gateways/gw_other": 403,
	} {
		key := s.accountKey(scope)
		if got := s.do(request{method: "POST", path: path + "/" + id + "/resume", key: key}); got.status != status {
			t.Errorf("%s: got %d, want %d", scope, got.status, status)
		}
	}
	stranger := s.newAccount("stranger")
	for _, q := range []request{{method: "GET", path: path}, {method: "GET", path: path + "/" + id}, {method: "POST", path: path, body: `{"upstream": "next"}`}, {method: "POST", path: path + "/" + id + "/abort"}} {
		q.key = stranger
		s.do(q).refused(404, "not_found", "")
	}
}
