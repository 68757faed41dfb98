package adminapi_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
)

const upstreamFields = "name targets host balance hash_on ejection retries health refresh timeout connect_timeout idle_timeout max_connection_age " +
	"max_connections headers ca client_certificate client_key"

// wantJSON fails the test unless the field of the record is the JSON text.
func (r *response) wantJSON(field, want string) {
	r.t.Helper()
	if got, _ := json.Marshal(r.json[field]); string(got) != want {
		r.t.Errorf("%s: got %s = %s, want %s", r.what, field, got, want)
	}
}

func (s *server) put(path, body string) *response {
	s.t.Helper()
	return s.do(request{method: "PUT", path: path, body: body})
}

func (s *server) patch(path, body string) *response {
	s.t.Helper()
	return s.do(request{method: "PATCH", path: path, body: body})
}

func (s *server) delete(path string) *response {
	s.t.Helper()
	return s.do(request{method: "DELETE", path: path})
}

// Guarantee: targets.md 1, an upstream is created (201), replaced (200), changed and deleted, with all of its fields; its ETag is
// that of the gateway. A gateway that needs no more has the one with the name default.
func TestUpstreamIsCreatedChangedAndDeleted(t *testing.T) {
	s := start(t)
	gatewayPath := "/v1/gateways/" + s.newGateway("")
	upstreams := gatewayPath + "/upstreams"
	only := s.get(upstreams).want(200).data()
	if len(only) != 1 || only[0]["name"] != "default" || only[0]["timeout"] != "60s" {
		t.Fatalf("got %v, want the upstream default", only)
	}
	wantFields(t, only[0], upstreamFields)

	created := s.put(upstreams+"/next", `{"targets": [{"url": "https://10.0.0.1:8443", "weight": 2}, {"url": "https://10.0.0.2:8443", "backup": true, "drain": null}],
		"headers": {"X-Token": "hush-hush"}, "balance": "hash", "hash_on": "header:X-Session", "ejection": {"base": "20s", "on": ["reset", "503"], "max": null}, "retries": {"attempts": 0}}`).want(201)
	wantFields(t, created.json, upstreamFields)
	if created.header.Get("Location") != upstreams+"/next" || created.header.Get("ETag") != s.get(gatewayPath).want(200).header.Get("ETag") {
		t.Errorf("got headers %v, want the Location of the upstream and the ETag of the gateway", created.header)
	}
	for field, want := range map[string]string{
		"name": `"next"`, "host": `"target"`, "balance": `"hash"`, "hash_on": `"header:X-Session"`, "headers": `{"X-Token":"***"}`, "timeout": "null", "ca": "null", "max_connections": "null",
		"targets":  `[{"backup":false,"drain":false,"resolve":"none","url":"https://10.0.0.1:8443","weight":2},{"backup":true,"drain":false,"resolve":"none","url":"https://10.0.0.2:8443","weight":1}]`,
		"ejection": `{"base":"20s","failures":5,"max":"300s","max_percent":50,"on":["reset","503"]}`,
		"retries":  `{"attempts":0,"budget_percent":20,"idempotency_key":false,"on":["connect","reset"]}`,
	} {
		created.wantJSON(field, want)
	}
	patched := s.patch(upstreams+"/next", `{"ejection": false, "balance": null, "timeout": "5s"}`).want(200)
	for field, want := range map[string]string{"ejection": "false", "balance": `"least_requests"`, "hash_on": "null", "timeout": `"5s"`, "headers": `{"X-Token":"***"}`} {
		patched.wantJSON(field, want)
	}
	if got := s.get(upstreams + "/next").want(200); got.raw != patched.raw || got.header.Get("ETag") != patched.header.Get("ETag") {
		t.Errorf("got %s, want %s", got.raw, patched.raw)
	}
	replaced := s.put(upstreams+"/next", `{"timeout": null}`).want(200)
	replaced.wantJSON("headers", "{}")
	replaced.wantJSON("timeout", "null")
	replaced.wantJSON("ejection", `{"base":"10s","failures":5,"max":"300s","max_percent":50,"on":["connect","reset"]}`)
	if replaced.header.Get("Location") != "" || len(replaced.json["targets"].([]any)) != 2 {
		t.Errorf("got %s, want the targets as before and no Location", replaced.raw)
	}
	if got := s.get(upstreams + "?limit=1").want(200); got.json["next_cursor"] == nil || s.get(upstreams + "?limit=1&cursor=" + got.text("next_cursor")).want(200).data()[0]["name"] != "next" {
		t.Errorf("got %s, want two pages", got.raw)
	}
	s.do(request{method: "DELETE", path: upstreams + "/next", header: map[string]string{"If-Match": created.header.Get("ETag")}}).refused(412, "precondition_failed", "")
	if deleted := s.delete(upstreams + "/next").want(200); deleted.raw != replaced.raw {
		t.Errorf("got %s, want the record as it was", deleted.raw)
	}
	s.delete(upstreams+"/next").refused(404, "not_found", "")
	s.delete(upstreams+"/default").refused(409, "conflict", "")
	s.get(upstreams+"/next").refused(404, "not_found", "")
	s.patch(upstreams+"/Next", `{}`).refused(404, "not_found", "")
	s.put(upstreams+"/Next", `{"targets": [{"url": "http://a"}]}`).refused(422, "validation_failed", "name")
}

// Guarantee: targets.md 1, targets are added (201), changed and removed, by their URL.
func TestTargetsAreAddedChangedAndRemoved(t *testing.T) {
	s := start(t)
	gatewayPath := "/v1/gateways/" + s.newGateway("")
	targets := gatewayPath + "/upstreams/default/targets"
	first := s.get(gatewayPath).want(200).text("upstream_url")
	added := s.post(targets, map[string]any{"url": "http://b/x", "weight": 7}).want(201)
	if added.header.Get("Location") != targets+"?url=http%3A%2F%2Fb%2Fx" || added.text("name") != "default" {
		t.Errorf("got %v and %s, want the Location of the target and the record of the upstream", added.header, added.raw)
	}
	at := func(u string) string { return targets + "?url=" + url.QueryEscape(u) }
	s.post(targets, map[string]any{"url": "http://B:80/x/"}).refused(409, "conflict", "")
	s.post(targets, map[string]any{"url": "https://c"}).refused(422, "validation_failed", "url")
	s.post(targets, map[string]any{"url": "http://c", "resolve": "aaaa"}).refused(422, "validation_failed", "resolve")
	s.post(targets, map[string]any{"url": "http://c:80", "resolve": "srv"}).refused(422, "validation_failed", "url")
	s.post(targets, map[string]any{"url": "http://10.0.0.1", "resolve": "srv"}).refused(422, "validation_failed", "url")
	s.post(targets, map[string]any{"url": "https://c", "weight": 0}).refused(422, "validation_failed", "weight")
	drained := s.patch(at("http://b/x"), `{"drain": true, "weight": null}`).want(200)
	drained.wantJSON("targets", `[{"backup":false,"drain":false,"resolve":"none","url":"`+first+`","weight":1},{"backup":false,"drain":true,"resolve":"none","url":"http://b/x","weight":1}]`)
	s.patch(at("http://b/x"), `{"resolve": "srv"}`).want(200).wantJSON("targets", `[{"backup":false,"drain":false,"resolve":"none","url":"`+first+`","weight":1},{"backup":false,"drain":true,"resolve":"srv","url":"http://b/x","weight":1}]`)
	s.patch(at("http://b/x"), `{"resolve": null}`).want(200).wantJSON("targets", `[{"backup":false,"drain":false,"resolve":"none","url":"`+first+`","weight":1},{"backup":false,"drain":true,"resolve":"none","url":"http://b/x","weight":1}]`)
	s.patch(at("http://b/x"), `{"resolve": "none "}`).refused(422, "validation_failed", "resolve")
	s.patch(gatewayPath+"/upstreams/default", `{"refresh": "61m"}`).refused(422, "validation_failed", "refresh")
	s.patch(gatewayPath+"/upstreams/default", `{"refresh": "5s"}`).want(200).wantJSON("refresh", `"5s"`)
	s.patch(gatewayPath+"/upstreams/default", `{"refresh": null}`).want(200).wantJSON("refresh", `"10s"`)
	s.patch(targets, `{"drain": true}`).refused(422, "validation_failed", "url")
	s.patch(at("https://c"), `{"drain": true}`).refused(404, "not_found", "")
	s.patch(at("http://b/x"), `{"weight": 1001}`).refused(422, "validation_failed", "weight")
	for _, wrong := range []string{"", "30", "10m1s", "999ms", "-5s", "forever"} {
		s.patch(at("http://b/x")+"&drain="+wrong, `{}`).refused(422, "validation_failed", "drain")
		s.delete(at("http://b/x")+"&drain="+wrong).refused(422, "validation_failed", "drain")
	}

	s.patch(gatewayPath, `{"upstream_url": "https://c"}`).refused(409, "conflict", "upstream_url")
	s.delete(at(first)).want(200).wantJSON("targets", `[{"backup":false,"drain":true,"resolve":"none","url":"http://b/x","weight":1}]`)
	if got := s.get(gatewayPath).want(200); got.text("upstream_url") != "http://b/x" {
		t.Errorf("got %s, want the target that is left", got.raw)
	}
	s.delete(at("http://b/x")).refused(409, "conflict", "")
	s.delete(targets).refused(422, "validation_failed", "url")

	key := map[string]string{"Idempotency-Key": "once"}
	body := map[string]any{"url": "http://d"}
	once := s.do(request{method: "POST", path: targets, body: body, header: key}).want(201)
	if again := s.do(request{method: "POST", path: targets, body: body, header: key}).want(201); again.raw != once.raw || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("got %s, want the stored response", again.raw)
	}
}

// Guarantee: targets.md 1, a call that would send the secrets of an upstream to another origin gives them again, or is 422
// headers; PUT without headers removes them.
func TestSecretsOfUpstreamsAreGivenAgain(t *testing.T) {
	s := start(t)
	upstream := "/v1/gateways/" + s.newGateway("") + "/upstreams/next"
	s.put(upstream, `{"targets": [{"url": "https://a"}], "headers": {"X-Token": "hush-hush"}}`).want(201)
	s.post(upstream+"/targets", map[string]any{"url": "https://b"}).refused(422, "validation_failed", "headers")
	s.patch(upstream, `{"host": "a.example"}`).refused(422, "validation_failed", "headers")
	s.patch(upstream, `{"targets": [{"url": "http://a"}]}`).refused(422, "validation_failed", "headers")
	s.post(upstream+"/targets", map[string]any{"url": "https://b", "headers": map[string]string{"X-Token": "***"}}).refused(422, "validation_failed", "headers.X-Token")
	s.post(upstream+"/targets", map[string]any{"url": "https://b", "headers": map[string]string{"X-Token": "again"}}).want(201).wantJSON("headers", `{"X-Token":"***"}`)
	s.patch(upstream, `{"host": "a.example", "headers": {"X-Token": "again"}}`).want(200)
	s.post(upstream+"/targets", map[string]any{"url": "https://c"}).want(201).wantJSON("headers", `{"X-Token":"***"}`)
	s.put(upstream, `{"targets": [{"url": "https://d"}]}`).want(200).wantJSON("headers", "{}")
	if log := s.get("/v1/audit-log?kind=management").want(200).raw; strings.Contains(log, "hush-hush") || strings.Contains(log, "again\"") || !strings.Contains(log, `"target.add"`) {
		t.Errorf("got the audit log %s, want target.add and no secret", log)
	}
}

// Guarantee: targets.md 1, a gateway is created with upstreams, and its routes name them.
func TestGatewayWithUpstreams(t *testing.T) {
	s := start(t)
	create := func(fields string) *response {
		return s.post("/v1/gateways", json.RawMessage(`{"name": "a", `+fields+`}`))
	}
	create(`"upstreams": []`).refused(422, "validation_failed", "upstream_url")
	create(`"upstreams": null`).refused(422, "validation_failed", "upstream_url")
	create(`"upstream_url": "http://a", "upstreams": [{"name": "default", "targets": [{"url": "http://a"}]}]`).refused(422, "validation_failed", "upstreams")
	create(`"upstream_url": "http://a", "upstreams": [{"name": "next"}]`).refused(422, "validation_failed", "upstreams[0].targets")
	create(`"upstream_url": "http://a", "upstreams": [{"targets": [{"url": "http://a"}]}]`).refused(422, "validation_failed", "upstreams[0].name")
	create(`"upstream_url": "http://a", "upstreams": [{"name": "next", "targets": [{"url": "http://a", "health": 1}]}]`).refused(422, "validation_failed", "upstreams[0].targets[0].health")
	create(`"upstream_url": "http://a", "upstreams": [{"name": "next", "mirror": null, "targets": []}]`).refused(422, "validation_failed", "upstreams[0].mirror")
	create(`"upstream_url": "http://a", "upstreams": [{"name": "next", "ejection": true, "targets": [{"url": "http://a"}]}]`).refused(422, "validation_failed", "upstreams[0].ejection")
	made := create(`"upstreams": [{"name": "next", "targets": [{"url": "https://n"}]}, {"name": "default", "targets": [{"url": "http://a"}, {"url": "http://b"}], "timeout": "5s", "host": "preserve"}]`).want(201)
	wantFields(t, made.json, gatewayFields()+" target_count")
	for field, want := range map[string]string{"target_count": "3", "upstream_url": `"http://a"`, "timeout": `"5s"`, "upstream_host": `"preserve"`} {
		made.wantJSON(field, want)
	}
	path := "/v1/gateways/" + made.text("gateway_id")
	s.patch(path, `{"upstreams": []}`).refused(422, "validation_failed", "upstreams")
	routes := path + "/routes"
	s.post(routes, map[string]any{"path": "/a", "methods": []string{"GET"}, "upstream": "gone"}).refused(422, "validation_failed", "upstream")
	route := s.post(routes, map[string]any{"path": "/a", "methods": []string{"GET"}, "upstream": "next"}).want(201)
	route.wantJSON("upstream", `"next"`)
	if refused := s.delete(path+"/upstreams/next").refused(409, "conflict", ""); !strings.Contains(refused.raw, "/a") {
		t.Errorf("got %s, want the route that names the upstream", refused.raw)
	}
	s.patch(routes+"/"+route.text("route_id"), `{"upstream": null}`).want(200).wantJSON("upstream", `"default"`)
	s.delete(path + "/upstreams/next").want(200)
	s.get(path).want(200).wantJSON("target_count", "2")
	s.delete(path + "/upstreams/default/targets?url=http://b").want(200)
	wantFields(t, s.get("/v1/gateways").want(200).data()[0], gatewayFields()) // nothing new of one with a single target
}

// Guarantee: targets.md 1, checks are set with their defaults, shown without the values of their headers, and kept, replaced or removed;
// an error names the field. A target of another origin needs the headers of checks again.
func TestHealthOfAnUpstream(t *testing.T) {
	s := start(t)
	upstream := "/v1/gateways/" + s.newGateway("") + "/upstreams/next"
	s.put(upstream, `{"targets": [{"url": "https://a"}], "health": null}`).want(201).wantJSON("health", "null")
	s.patch(upstream, `{"health": {"path": "/healthz", "statuses": "200-299,304", "headers": {"X-Probe": "hush-hush"}}}`).want(200).
		wantJSON("health", `{"grpc":null,"headers":{"X-Probe":"***"},"healthy":2,"interval":"10s","path":"/healthz","statuses":"200-299,304","tcp":false,"timeout":"2s","unhealthy":2}`)
	s.patch(upstream, `{"health": {"grpc": "", "tcp": false, "path": null, "interval": "1h", "unhealthy": 3}}`).want(200).
		wantJSON("health", `{"grpc":"","headers":{"X-Probe":"***"},"healthy":2,"interval":"1h","path":null,"statuses":null,"tcp":false,"timeout":"2s","unhealthy":3}`)
	for body, field := range map[string]string{
		`{}`: "health", `{"tcp": false}`: "health", `{"path": "/", "tcp": true}`: "health", `{"path": "x"}`: "health.path", `{"path": ""}`: "health.path",
		`{"grpc": "a b"}`: "health.grpc", `{"tcp": true, "interval": "1ms"}`: "health.interval", `{"tcp": true, "timeout": "1h"}`: "health.timeout",
		`{"tcp": true, "healthy": 0}`: "health.healthy", `{"tcp": true, "unhealthy": 101}`: "health.unhealthy", `{"path": "/", "statuses": "100-199"}`: "health.statuses",
		`{"tcp": true, "headers": {"X-A": "b"}}`: "health.headers", `{"path": "/", "headers": {"X-Probe": "***"}}`: "health.headers.X-Probe",
		`{"path": "/", "headers": {"user-agent": "b"}}`: "health.headers.user-agent", `{"path": "/", "other": 1}`: "health.other", `true`: "health",
	} {
		s.patch(upstream, `{"health": `+body+`}`).refused(422, "validation_failed", field)
	}
	s.patch(upstream, `{"targets": [{"url": "https://a"}, {"url": "https://b"}]}`).refused(422, "validation_failed", "health.headers")
	s.patch(upstream, `{"targets": [{"url": "https://a"}, {"url": "https://b"}], "health": {"path": "/"}}`).refused(422, "validation_failed", "health.headers")
	s.post(upstream+"/targets", map[string]any{"url": "https://b"}).refused(422, "validation_failed", "health.headers")
	s.post(upstream+"/targets", map[string]any{"url": "https://b", "health": map[string]any{"headers": map[string]string{"X-Probe": "***"}}}).refused(422, "validation_failed", "health.headers.X-Probe")
	s.post(upstream+"/targets", map[string]any{"url": "https://b", "health": map[string]any{"headers": map[string]string{"X-Probe": "again"}}}).want(201)
	s.post(upstream+"/targets", map[string]any{"url": "https://c", "health": map[string]any{"headers": nil}}).want(201)
	if h, _ := json.Marshal(s.get(upstream).want(200).json["health"]); !strings.Contains(string(h), `"headers":{}`) {
		t.Errorf("got the checks %s, want no headers", h)
	}
	s.patch(upstream, `{"health": {"tcp": true, "headers": null}}`).want(200)
	s.post(upstream+"/targets", map[string]any{"url": "https://d", "health": map[string]any{"headers": map[string]string{"X-Probe": "x"}}}).refused(422, "validation_failed", "health.headers")
	s.put(upstream, `{"targets": [{"url": "http://a"}], "health": {"grpc": "x"}}`).refused(422, "validation_failed", "health.grpc")
	s.put(upstream, `{"targets": [{"url": "h2c://a"}], "health": {"grpc": "x"}}`).want(200)
	s.put(upstream, `{"targets": [{"url": "h2c://a"}]}`).want(200).wantJSON("health", "null")
	if log := s.get("/v1/audit-log?kind=management").want(200).raw; strings.Contains(log, "hush-hush") || strings.Contains(log, "again\"") || !strings.Contains(log, `upstreams.next.health`) {
		t.Errorf("got the audit log %s, want the checks and no secret", log)
	}
}
