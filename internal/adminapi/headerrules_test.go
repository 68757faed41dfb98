package adminapi_test

import (
	"strings"
	"testing"
)

// Guarantee: edge.md, 2: request_headers and response_headers of a gateway and of a route are created, shown, replaced as a whole and
// removed by null and {}. Their values are shown, and the audit log says what has changed.
func TestHeaderRulesInTheAPI(t *testing.T) {
	s := start(t)
	const given, shown = `{"set": {"X-Real-IP": "${client_ip}"}, "remove": ["X-Debug"]}`, `{"remove":["X-Debug"],"set":{"X-Real-IP":"${client_ip}"}}`
	gateway := s.post("/v1/gateways", `{"name": "orders", "upstream_url": "http://127.0.0.1:9", "request_headers": `+given+`, "response_headers": {}}`).want(201)
	at := "/v1/gateways/" + gateway.text("gateway_id")
	route := s.post(at+"/routes", `{"path": "/a", "methods": ["GET"], "request_headers": `+given+`, "response_headers": {"set": null, "remove": []}}`).want(201)
	for _, created := range []*response{gateway, route} {
		if got := compact(t, created.json["request_headers"]); got != shown || created.json["response_headers"] != nil {
			t.Errorf("%s: got %s, want request_headers alone", created.what, created.raw)
		}
	}
	for _, at := range []string{at, at + "/routes/" + route.text("route_id")} {
		for _, step := range []struct{ body, requests, responses string }{
			{`{}`, shown, "null"},
			{`{"response_headers": {"remove": ["Server"]}}`, shown, `{"remove":["Server"],"set":{}}`},
			{`{"request_headers": {"set": {"X-A": "b"}}}`, `{"remove":[],"set":{"X-A":"b"}}`, `{"remove":["Server"],"set":{}}`},
			{`{"request_headers": null, "response_headers": {}}`, "null", "null"},
			{`{"request_headers": ` + given + `}`, shown, "null"},
		} {
			for _, r := range []*response{s.do(request{method: "PATCH", path: at, body: step.body}).want(200), s.get(at).want(200)} {
				if got := compact(t, r.json["request_headers"]) + compact(t, r.json["response_headers"]); got != step.requests+step.responses {
					t.Errorf("%s: got %s, want %s%s", step.body, got, step.requests, step.responses)
				}
			}
		}
	}
	log := s.get("/v1/audit-log?kind=management").want(200).raw
	for _, want := range []string{`"response_headers":[null,{"remove":["Server"]}]`, `"request_headers":[{"set":{"X-A":"b"}},null]`} {
		if strings.Count(log, want) != 2 {
			t.Errorf("the audit log has %d of %s, want 2", strings.Count(log, want), want)
		}
	}
}

// Guarantee: edge.md, 2: rules that are not allowed are 422 with the field and the remedy, and change nothing; so are rules, and headers of
// a respond, for what the gateway's upstream_headers or key_headers have, from whichever side the two meet. Gateways of others are 404, and
// a key with too small a scope gets 403.
func TestWrongHeaderRules(t *testing.T) {
	s := start(t)
	id := s.newGateway("")
	gateway := "/v1/gateways/" + id
	s.do(request{method: "PATCH", path: gateway, body: `{"upstream_headers": {"X-Token": "a"}, "key_headers": ["X-API-Key"]}`}).want(200)
	routes := gateway + "/routes"
	route := routes + "/" + s.post(routes, `{"path": "/a", "methods": ["GET"], "request_headers": {"set": {"X-A": "b"}}}`).want(201).text("route_id")
	for _, path := range []string{gateway, route} {
		for _, c := range []struct{ rules, field, message string }{
			{`{"set": {"Host": "a"}}`, ".set.Host", "is reserved"}, {`{"remove": ["x_keygate_subject"]}`, ".remove[0]", "is reserved"},
			{`{"set": {"Authorization": "a"}}`, ".set.Authorization", "holds a credential"}, {`{"set": {"X-A": "${ip}"}}`, ".set.X-A", "${client_ip}"},
			{`{"set": {"X-A": ""}}`, ".set.X-A", "remove"}, {`{"set": {"X-A": "a"}, "remove": ["x_a"]}`, ".remove[0]", "duplicate"},
			{`{"put": {}}`, ".put", ""}, {`{"set": ["X-A"]}`, ".set", ""}, {`{"set": {"X-A": 1}}`, ".set.X-A", ""}, {`[]`, "", ""}, {`{"remove": "X-A"}`, ".remove", ""},
			{`{"set": {"x_token": "a"}}`, ".set.x_token", "upstream_headers"}, {`{"remove": ["X_API_Key"]}`, ".remove[0]", "key_headers"},
		} {
			for _, name := range []string{"request_headers", "response_headers"} {
				got := s.do(request{method: "PATCH", path: path, body: `{"` + name + `": ` + c.rules + `}`}).refused(422, "validation_failed", name+c.field)
				if !strings.Contains(got.text("message"), c.message) {
					t.Errorf("%s: got %s, want %q", c.rules, got.raw, c.message)
				}
			}
		}
	}
	s.do(request{method: "PATCH", path: route, body: `{"respond": {"status": 200, "headers": {"X-Token": "a"}}}`}).refused(422, "validation_failed", "respond.headers.X-Token")
	s.post(routes, `{"path": "/b", "methods": ["GET"], "response_headers": {"remove": ["X-Token"]}}`).refused(422, "validation_failed", "response_headers.remove[0]")
	if got := compact(t, s.get(route).want(200).json["request_headers"]); got != `{"remove":[],"set":{"X-A":"b"}}` {
		t.Errorf("got %s, want the rules of the creation", got)
	}
	// The other way round.
	s.do(request{method: "PATCH", path: gateway, body: `{"request_headers": {"set": {"X-B": "c"}}}`}).want(200)
	s.do(request{method: "PATCH", path: gateway, body: `{"upstream_headers": {"X-B": "d"}}`}).refused(422, "validation_failed", "request_headers.set.X-B")
	for path, body := range map[string]string{gateway: `{"upstream_headers": {"x_a": "d"}}`, gateway + "/upstreams/default": `{"headers": {"X-A": "d"}}`} {
		if got := s.do(request{method: "PATCH", path: path, body: body}).want(409); !strings.Contains(got.text("message"), "change request_headers.set.X-A of that route first") {
			t.Errorf("%s: got %s, want what to do", path, got.raw)
		}
	}
	s.do(request{method: "PATCH", path: gateway, body: `{"key_headers": ["X-A"]}`}).want(409)
	s.do(request{method: "PATCH", path: gateway + "/upstreams/default", body: `{"headers": {"X-B": "d"}}`}).refused(422, "validation_failed", "request_headers.set.X-B")
	s.do(request{method: "PATCH", path: gateway, body: `{"upstream_headers": {"x_a": "d"}, "name": "` + strings.Repeat("a", 300) + `"}`}).refused(422, "validation_failed", "name")

	reader := s.newKey(map[string]any{"name": "reader", "scope": "read", "level": "account"}).text("key")
	s.do(request{method: "PATCH", path: gateway, key: reader, body: `{"request_headers": null}`}).want(403)
	s.do(request{method: "PATCH", path: "/v1/gateways/gw_00000000000000000000000009", body: `{"request_headers": null}`}).want(404)
}

// Guarantee: a configuration file or a document whose routes have rules for a protected header is refused with the route, and changes
// nothing; so is a rollback to such a revision.
func TestProtectedHeadersOfADocument(t *testing.T) {
	s := start(t)
	gateway := "/v1/gateways/" + s.newGateway("")
	push := func(path, content string) *response {
		return s.do(request{method: "PUT", path: gateway + path, body: content, header: map[string]string{"Content-Type": "application/yaml"}})
	}
	const file = "routes:\n- {path: /a, methods: [GET], request_headers: {set: {X-Token: a}}}\n"
	push("/config", file).want(200)
	push("/config", "routes: []\n").want(200)
	s.do(request{method: "PATCH", path: gateway, body: `{"upstream_headers": {"X-Token": "a"}}`}).want(200)
	if got := push("/config", file).refused(422, "validation_failed", "routes[0].request_headers.set.X-Token"); !strings.Contains(got.raw, "line 2") {
		t.Errorf("got %s, want the position", got.raw)
	}
	push("/config", "gateway:\n  upstream_headers: {X-B: a}\n"+file).want(200)
	push("/config", "gateway:\n  upstream_headers: {X-Token: a}\nroutes: []\n").want(200)
	if got := push("/spec", `{"openapi": "3.1.0", "info": {"title": "a", "version": "1"}, "paths": {"/a": {"get": {"x-keygate-response-headers": {"remove": ["x_token"]}}}}}`).refused(422, "validation_failed", "paths"); !strings.Contains(got.raw, "GET of /a: in its x-keygate-response-headers, remove[0]") {
		t.Errorf("got %s, want the extension", got.raw)
	}
	s.do(request{method: "POST", path: gateway + "/revisions/1/rollback"}).refused(422, "validation_failed", "number")
	s.post("/v1/gateways", map[string]any{"name": "next", "upstream_url": "http://127.0.0.1:9", "upstream_headers": map[string]string{"X-Token": "a"}, "config": file}).refused(422, "validation_failed", "config.routes[0].request_headers.set.X-Token")
}

// Guarantee: identity.md, 2, and edge.md, 2: no rule of a gateway, of its routes or of a document names a header that only tokens of the
// gateway's issuers set.
func TestClaimHeadersAreProtected(t *testing.T) {
	s := start(t)
	s.post("/v1/issuers", `{"name": "login", "issuer": "https://login.example", "audiences": ["api"], "claim_headers": {"X-Team": "team"}}`).want(201)
	gateway := "/v1/gateways/" + s.newGateway("")
	s.do(request{method: "PATCH", path: gateway, body: `{"issuers": ["login"]}`}).want(200)
	s.do(request{method: "PATCH", path: gateway, body: `{"request_headers": {"set": {"x_team": "a"}}}`}).refused(422, "validation_failed", "request_headers.set.x_team")
	route := s.post(gateway+"/routes", `{"path": "/a", "methods": ["GET"]}`).want(201).text("route_id")
	const rule = `"request_headers": {"remove": ["X-Team"]}`
	s.post(gateway+"/routes", `{"path": "/b", "methods": ["GET"], `+rule+`}`).refused(422, "validation_failed", "request_headers.remove[0]")
	s.do(request{method: "PATCH", path: gateway + "/routes/" + route, body: `{` + rule + `}`}).refused(422, "validation_failed", "request_headers.remove[0]")
	const file = "routes:\n- {path: /a, methods: [GET], request_headers: {remove: [X-Team]}}\n"
	s.do(request{method: "PUT", path: gateway + "/config", body: file, header: map[string]string{"Content-Type": "application/yaml"}}).refused(422, "validation_failed", "routes[0].request_headers.remove[0]")
	s.post("/v1/gateways", map[string]any{"name": "next", "upstream_url": "http://127.0.0.1:9", "issuers": []string{"login"}, "config": file}).refused(422, "validation_failed", "config.routes[0].request_headers.remove[0]")
	s.post("/v1/gateways", map[string]any{"name": "next", "upstream_url": "http://127.0.0.1:9", "issuers": []string{"login"}, "response_headers": map[string]any{"remove": []string{"X-TEAM"}}}).refused(422, "validation_failed", "response_headers.remove[0]")
}
