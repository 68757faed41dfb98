package adminapi_test

import (
	"testing"
)

// Guarantee: the bound of a route's requests in flight is created, shown, replaced as a whole and removed by null; an absent one
// stays. What is wrong with it is refused with its field, and changes nothing.
func TestConcurrencyOfARoute(t *testing.T) {
	s := start(t)
	routes := "/v1/gateways/" + s.newGateway("") + "/routes"
	want := func(r *response, concurrency string) {
		t.Helper()
		if got := compact(t, r.json["concurrency"]); got != concurrency {
			t.Errorf("%s: got %s, want %s", r.what, got, concurrency)
		}
	}
	const eachKey = `{"max":5,"per":"key"}`
	created := s.do(request{method: "POST", path: routes, body: `{"path": "/a", "methods": ["GET"], "concurrency": ` + eachKey + `}`}).want(201)
	want(created, eachKey)
	at := routes + "/" + created.text("route_id")
	for _, step := range []struct{ body, want string }{
		{`{"auth": "none"}`, eachKey},
		{`{"concurrency": {"max": 1000000}}`, `{"max":1000000,"per":null}`},
		{`{"concurrency": {"max": 1, "per": null}}`, `{"max":1,"per":null}`},
		{`{"concurrency": null}`, "null"},
		{`{"concurrency": ` + eachKey + `}`, eachKey},
	} {
		want(s.do(request{method: "PATCH", path: at, body: step.body}).want(200), step.want)
		want(s.get(at).want(200), step.want)
	}
	for concurrency, field := range map[string]string{
		`5`: "concurrency", `[]`: "concurrency", `{}`: "concurrency.max", `{"per": "key"}`: "concurrency.max", `{"max": null}`: "concurrency.max",
		`{"max": 0}`: "concurrency.max", `{"max": 1000001}`: "concurrency.max", `{"max": 1.5}`: "concurrency.max", `{"max": "5"}`: "concurrency.max",
		`{"max": 5, "per": "owner"}`: "concurrency.per", `{"max": 5, "per": ""}`: "concurrency.per", `{"max": 5, "most": 5}`: "concurrency.most",
	} {
		s.do(request{method: "PATCH", path: at, body: `{"concurrency": ` + concurrency + `}`}).refused(422, "validation_failed", field)
		s.do(request{method: "POST", path: routes, body: `{"path": "/b", "methods": ["GET"], "concurrency": ` + concurrency + `}`}).refused(422, "validation_failed", field)
	}
	want(s.get(at).want(200), eachKey)
	want(s.do(request{method: "POST", path: routes, body: `{"path": "/b", "methods": ["GET"], "concurrency": null}`}).want(201), "null")
}
