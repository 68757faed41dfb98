package adminapi_test

import "testing"

// Guarantee: edge.md, 2: what a route does with its requests is created, shown, replaced field by field and removed by null; an absent
// field stays. What is wrong is refused with its field, and changes nothing; so is a path that does not fit the prefix any more.
func TestHandlingOfARoute(t *testing.T) {
	s := start(t)
	routes := "/v1/gateways/" + s.newGateway("") + "/routes"
	want := func(r *response, strip, redirect, respond string) {
		t.Helper()
		for name, text := range map[string]string{"strip_prefix": strip, "redirect": redirect, "respond": respond} {
			if got := compact(t, r.json[name]); got != text {
				t.Errorf("%s: got %s %s, want %s", r.what, name, got, text)
			}
		}
	}
	const redirect = `{"keep_path":true,"keep_query":false,"status":308,"to":"https://example.com"}`
	const respond = `{"body":"{}","content_type":"application/json","headers":{"X-A":"b"},"status":410}`
	created := s.do(request{method: "POST", path: routes, body: `{"path": "/api/*", "methods": ["GET"], "strip_prefix": "/api", "redirect": {"to": "https://example.com", "status": 308, "keep_path": true}}`}).want(201)
	want(created, `"/api"`, redirect, "null")
	at := routes + "/" + created.text("route_id")
	for _, step := range []struct{ body, strip, redirect, respond string }{
		{`{"auth": "none"}`, `"/api"`, redirect, "null"},
		{`{"strip_prefix": null}`, "null", redirect, "null"},
		{`{"redirect": {"to": "/b", "status": 302, "keep_query": true, "keep_path": null}}`, "null", `{"keep_path":false,"keep_query":true,"status":302,"to":"/b"}`, "null"},
		{`{"redirect": null, "respond": ` + respond + `}`, "null", "null", respond},
		{`{"respond": {"status": 204}, "path": "/v2/api/{x}", "strip_prefix": "/v2"}`, `"/v2"`, "null", `{"body":"","content_type":null,"headers":{},"status":204}`},
	} {
		want(s.do(request{method: "PATCH", path: at, body: step.body}).want(200), step.strip, step.redirect, step.respond)
		want(s.get(at).want(200), step.strip, step.redirect, step.respond)
	}
	for body, field := range map[string]string{
		`"strip_prefix": "api"`: "strip_prefix", `"strip_prefix": ""`: "strip_prefix", `"strip_prefix": 1`: "strip_prefix", `"strip_prefix": "/api"`: "strip_prefix",
		`"redirect": "/b"`: "redirect", `"redirect": {"status": 308}`: "redirect.to", `"redirect": {"to": "/b"}`: "redirect.status", `"respond": null, "redirect": {"to": "/b", "status": 303}`: "redirect.status",
		`"respond": null, "redirect": {"to": "//b", "status": 308}`: "redirect.to", `"redirect": {"to": "/b", "status": 308, "regex": "x"}`: "redirect.regex",
		`"respond": {"status": 99}`: "respond.status", `"respond": {"status": 200, "headers": {"Host": "a"}}`: "respond.headers.Host", `"respond": {"status": 200, "body": "a"}`: "respond.content_type",
		`"redirect": {"to": "/b", "status": 308}, "respond": {"status": 200}`: "redirect",
	} {
		s.do(request{method: "PATCH", path: at, body: `{` + body + `}`}).refused(422, "validation_failed", field)
		s.do(request{method: "POST", path: routes, body: `{"path": "/b/c", "methods": ["GET"], ` + body + `}`}).refused(422, "validation_failed", field)
	}
	s.do(request{method: "PATCH", path: at, body: `{"path": "/v3/api/{x}"}`}).refused(422, "validation_failed", "strip_prefix")
	want(s.get(at).want(200), `"/v2"`, "null", `{"body":"","content_type":null,"headers":{},"status":204}`)
}
