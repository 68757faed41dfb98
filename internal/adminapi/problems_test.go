package adminapi_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"

	"github.com/keygate/keygate/internal/adminapi"
	"github.com/keygate/keygate/internal/fault"
)

// fields returns the fields of errors in a 422.
func (r *response) fields() []string {
	r.t.Helper()
	r.want(422)
	var out []string
	for _, p := range r.json["errors"].([]any) {
		field, _ := p.(map[string]any)["field"].(string)
		out = append(out, field)
	}
	return out
}

// bodyCase is a call with a JSON body: the schema of the body, and a path at which the
// call can be made.
type bodyCase struct {
	id, method, path string
	schema           *huma.Schema
}

// required returns the fields that a body without a valid config must have.
func (c *bodyCase) required() []string {
	switch c.id {
	case "createGateway":
		return []string{"name", "upstream_url"}
	case "verifyKey": // or token
		return []string{"key"}
	}
	return c.schema.Required
}

// bodyCases returns every call with a JSON body.
func bodyCases(s *server) []bodyCase {
	gatewayID := s.newGateway("")
	owner, key := s.newQuotas()
	ids := strings.NewReplacer("{gateway_id}", gatewayID, "{upstream}", "default", "{route_id}", s.newRoute("", gatewayID, "/a"), "/v1/keys/{key_id}", key,
		"/v1/owners/{owner_id}", owner, "{plan_id}", s.newPlan("", "free"), "{issuer_id}", s.newIssuer("", "login").text("issuer_id"), "{webhook_id}", s.newWebhook(nil).text("webhook_id"))
	doc := adminapi.Document()
	var out []bodyCase
	for _, path := range slices.Sorted(maps.Keys(doc.Paths)) {
		for _, op := range []*huma.Operation{doc.Paths[path].Post, doc.Paths[path].Patch} {
			if op == nil || op.RequestBody == nil || op.RequestBody.Content[jsonType] == nil {
				continue
			}
			schema := op.RequestBody.Content[jsonType].Schema
			if schema.Ref != "" {
				schema = doc.Components.Schemas.SchemaFromRef(schema.Ref)
			}
			of := ids.Replace(path)
			for _, p := range op.Parameters {
				if p.In == "query" && p.Required {
					of += "?" + p.Name + "=x"
				}
			}
			out = append(out, bodyCase{op.OperationID, op.Method, of, schema})
		}
	}
	return out
}

// validValue returns a valid value of a required field.
func validValue(t *testing.T, id, field string) string {
	t.Helper()
	v := map[string]string{
		"name": `"a"`, "upstream_url": `"http://x"`, "path": `"/z"`, "methods": `["GET"]`, "scope": `"read"`, "key": `"x"`,
		"url": `"https://hooks.example.com"`, "events": `["key.created"]`, "since": `"2027-03-01"`, "overlap_days": "1", "plan": `"platform"`,
		"tryGateway.method": `"GET"`, "external_id": `"o"`, "updateRouteLimit.rate_limit": `{"sustained": "1/s"}`,
		"issuer": `"https://a.example"`, "jwks": edJWKS, "audiences": `["a"]`, "createOwnerGrant.limit": `"per-month"`, "createKeyGrant.limit": `"each"`, "units": "1", "createDenial.subject": `"u"`,
		"startCanary.upstream": `"default"`, "grant_type": `"urn:ietf:params:oauth:grant-type:device_code"`, "device_code": `"x"`, "user_code": `"BBBB-BBBB"`, "approve": "true",
		"code": `"` + strings.Repeat("A", 43) + `"`, "code_verifier": `"` + strings.Repeat("A", 43) + `"`, "redirect_uri": `"http://127.0.0.1:1/callback"`,
	}
	for _, name := range []string{id + "." + field, field} {
		if value, known := v[name]; known {
			return value
		}
	}
	t.Fatalf("no valid value for %s of %s: add one", field, id)
	return ""
}

// invalidValues returns values of a field: a value of the wrong type and, if there is one, a value
// that fits the schema but is still invalid.
func invalidValues(id, field string, s *huma.Schema) []string {
	wrongType := "true"
	if s.Type == huma.TypeBoolean {
		wrongType = "1"
	}
	v := map[string]string{
		"name": `"a\nb"`, "upstream_url": `"nonsense"`, "spec": `"nonsense"`, "hostname": `"localhost"`, "timeout": `"1ms"`,
		"global_rate_limit": `{"sustained": "1/year"}`, "cors": `{"origins": ["https://a.example", "nonsense"]}`,
		"upstream_headers": `{"Host": "x"}`, "upstream_ca": `"x"`, "upstream_client_certificate": `"x"`, "upstream_client_key": `"x"`,
		"upstream_connect_timeout": `"1h"`, "upstream_idle_timeout": `"1ms"`, "upstream_max_connection_age": `"1ms"`, "key_headers": `["Host"]`, "issuers": `["x", "x"]`, "path": `"x"`, "methods": `["get"]`,
		"rate_limit": `{"sustained": "x"}`, "createKey.rate_limit": `"x"`, "updateKey.rate_limit": `"x"`,
		"scope": `"root"`, "beginDevice.scope": "7", "expires_at": `"yesterday"`, "gateway_id": `"gw_x"`, "owner": `" a"`, "metadata": `{"": "x"}`,
		"external_id": `" a"`, "plan_id": `"plan_x"`, "createGateway.default_plan": `"none"`, "updateGateway.default_plan": `"none"`, "default_plan_id": `"plan_x"`,
		"limits": `[{"name": "a", "sustained": "1/s", "gateway_id": "gw_x"}]`, "title": `"a\nb"`, "time_zone": `"Mars"`, "simulateLimit.plan": `{"limits": [{"name": "a", "sustained": "x"}]}`,
		"method": `"get"`, "verifyKey.path": `"x"`, "headers": `{"Host": "x"}`, "tryGateway.key": `"a b"`, "url": `"ftp://x"`, "signing_secret": `"short"`, "since": `"yesterday"`,
		"limit": `"none"`, "subject": `""`, "jti": `""`, "issued_before": `"yesterday"`, "until": `"yesterday"`, "reason": `"a\nb"`, "targets": `[{"url": "x"}]`, "hash_on": `"x"`, "host": `"a b"`, "ca": `"x"`, "client_certificate": `"x"`, "client_key": `"x"`,
		"connect_timeout": `"1h"`, "idle_timeout": `"1ms"`, "max_connection_age": `"1ms"`, "ejection": `{"base": "1h"}`, "issuer": `"http://x"`, "jwks": `{"keys": []}`, "audiences": `["a", "a"]`, "algorithms": `["HS256"]`, "leeway": `"1h"`,
		"max_lifetime": `"1ms"`, "typ": `"dpop+jwt"`, "required": `{"a": null}`, "claims": `{"scope": "a\nb"}`, "scope_map": `{"a": "x"}`, "default_scopes": `["x"]`, "owner_prefix": `" "`, "claim_headers": `{"Host": "a"}`, "upstream": `"gone"`, "upstreams": `[{"name": "A"}]`,
	}
	for _, name := range []string{id + "." + field, field} {
		if value, known := v[name]; known {
			return []string{wrongType, value}
		}
	}
	return []string{wrongType}
}

// Guarantee: whichever two fields of whichever call are invalid, the response names both, and nothing
// else, in the order of the body, even if one of them fits the schema and the other does not.
func TestBothOfTwoInvalidFieldsAreReported(t *testing.T) {
	s := start(t)
	for _, c := range bodyCases(s) {
		names := slices.Sorted(maps.Keys(c.schema.Properties))
		for i, a := range names {
			for _, b := range names[i+1:] {
				var rest []string
				for _, name := range c.required() {
					if name != a && name != b {
						rest = append(rest, fmt.Sprintf("%q: %s", name, validValue(t, c.id, name)))
					}
				}
				for _, va := range invalidValues(c.id, a, c.schema.Properties[a]) {
					for _, vb := range invalidValues(c.id, b, c.schema.Properties[b]) {
						body := "{" + strings.Join(append(rest, fmt.Sprintf("%q: %s, %q: %s", b, vb, a, va)), ", ") + "}"
						s.clock.move(1e9)
						got := s.do(request{method: c.method, path: c.path, body: body}).fields()
						if len(got) != 2 || !strings.HasPrefix(got[0], b) || !strings.HasPrefix(got[1], a) {
							t.Errorf("%s with %s: got errors for %q, want %s and %s", c.id, body, got, b, a)
						}
					}
				}
			}
		}
	}
}

// Guarantee: an unknown field and a missing one are reported together with every other problem.
func TestUnknownAndMissingFieldsAreReportedWithTheOthers(t *testing.T) {
	s := start(t)
	for _, c := range bodyCases(s) {
		for name, p := range c.schema.Properties {
			for _, v := range invalidValues(c.id, name, p) {
				want := []string{"colour", name}
				for _, required := range c.required() {
					if required != name {
						want = append(want, required)
					}
				}
				s.clock.move(1e9)
				body := fmt.Sprintf(`{"colour": {"a": [1]}, %q: %s}`, name, v)
				got := s.do(request{method: c.method, path: c.path, body: body}).fields()
				ok := len(got) == len(want)
				for i := range want {
					ok = ok && strings.HasPrefix(got[i], want[i])
				}
				if !ok {
					t.Errorf("%s with %s: got errors for %q, want %q", c.id, body, got, want)
				}
			}
		}
	}
}

// Guarantee: every problem within a body, at any depth, is named by its path.
func TestEveryInvalidFieldHasItsPath(t *testing.T) {
	s := start(t)
	gatewayID := s.newGateway("")
	for _, row := range []struct {
		method, path, body string
		want               []string
	}{
		{
			"POST", "/v1/gateways", `{"name": "", "upstream_url": "nonsense", "timeout": "x", "cors": {"origins": ["https://a.example", 5, "b"], "max_age": -1}}`,
			[]string{"name", "upstream_url", "timeout", "cors.origins[1]", "cors.max_age", "cors.origins[2]"},
		},
		{
			"POST", "/v1/gateways", `{"global_rate_limit": {"burst": "x", "daily": "1/day"}, "upstream_headers": {"Via": "a", "Host": "b", "X-A": 1}}`,
			[]string{
				"global_rate_limit.daily", "global_rate_limit.sustained", "global_rate_limit.burst",
				"upstream_headers.X-A", "upstream_headers.Host", "upstream_headers.Via", "name", "upstream_url",
			},
		},
		{
			"POST", "/v1/gateways/" + gatewayID + "/routes", `{"path": "x", "methods": ["get", "CONNECT"], "rate_limit": {"sustained": "x", "burst": "y", "daily": "1/h"}}`,
			[]string{"path", "methods", "rate_limit.sustained", "rate_limit.burst", "rate_limit.daily"},
		},
		{"POST", "/v1/keys", `{"level": "account", "scope": "root", "gateway_id": "gw_x", "rate_limit": "1/s", "name": "a"}`, []string{"scope", "gateway_id", "gateway_id", "rate_limit"}},
		{
			"POST", "/v1/plans", `{"limits": [{"name": "A", "sustained": "x", "width": 5}, {"name": "b", "gateway_id": "gw_x", "routes": ["a", "/b", "/b"]}], "anchor_day": 29}`,
			[]string{
				"limits[0].width", "limits[0].name", "limits[1].routes[0]", "limits[1].routes[2]", "limits[0].sustained", "limits[1].sustained", "limits[1].gateway_id",
				"anchor_day", "name",
			},
		},
		{"POST", "/v1/webhooks", `{"url": "x", "events": ["a", "key.created", "b"]}`, []string{"url", "events[0]", "events[2]"}},
		{"POST", "/v1/keys?a=1", `{"b": 1, "name": "a", "scope": "read"}`, []string{"b", "a"}},
		{"POST", "/v1/webhooks/wh_x/test?a=1", `{"c": 1, "b": 1}`, []string{"a", "b", "c"}},
		{"GET", "/v1/keys?limit=0&cursor=x&state=gone&a=b", ``, []string{"a", "limit", "cursor", "state"}},
		{"GET", "/v1/events?limit=0&since=2027-03-02&until=2027-03-01", ``, []string{"limit", "since"}},
		{"GET", "/v1/events?since=x&until=y", ``, []string{"since", "until"}},
	} {
		got := s.do(request{method: row.method, path: row.path, body: row.body}).fields()
		if !slices.Equal(got, row.want) {
			t.Errorf("%s %s %s: got errors for %q, want %q", row.method, row.path, row.body, got, row.want)
		}
	}
}

// Guarantee: of a rate, a quota or a number of requests in flight in a limit that has the wrong type or range, or is named in
// another case, that alone is said, and not that the limit has none of them, together with what else is wrong with the limit.
func TestWhatALimitCountsIsReportedOnce(t *testing.T) {
	s := start(t)
	simulate, planPath := "/v1/gateways/"+s.newGateway("")+"/limits/simulate", "/v1/plans/"+s.newPlan("", "free")
	for _, row := range []struct {
		limit string
		want  []string
	}{
		{`{"name": "a", "concurrency": 0}`, []string{"concurrency"}},
		{`{"name": "a", "concurrency": "5"}`, []string{"concurrency"}},
		{`{"name": "a", "quota": 5}`, []string{"quota"}},
		{`{"name": "a", "quota": ""}`, []string{"quota"}},
		{`{"name": "a", "quota": 5, "overage": "allow", "warn_at": [50]}`, []string{"quota"}},
		{`{"name": "a", "Quota": "5/month"}`, []string{"Quota"}},
		{`{"name": "a", "sustained": 5, "burst": "1/s"}`, []string{"sustained"}},
		{`{"name": "a", "quota": 5, "burst": "1/s"}`, []string{"quota", "burst"}},
		{`{"name": "A", "quota": 5, "concurrency": 0}`, []string{"quota", "concurrency", "name"}},
		{`{"name": "a", "concurrency": 0, "meter": "tokens", "overage": "deny"}`, []string{"concurrency", "overage", "meter"}},
		{`{"name": "a"}`, []string{"sustained"}},
		{`{"name": "a", "quota": null}`, []string{"sustained"}},
	} {
		for _, call := range []struct{ method, path, body, at string }{
			{"POST", "/v1/plans", `{"name": "pro", "limits": [%s]}`, "limits[0]."},
			{"PATCH", planPath, `{"limits": [%s]}`, "limits[0]."},
			{"POST", simulate, `{"plan": {"limits": [%s]}}`, "plan.limits[0]."},
		} {
			s.clock.move(1e9)
			var want []string
			for _, field := range row.want {
				want = append(want, call.at+field)
			}
			if got := s.do(request{method: call.method, path: call.path, body: fmt.Sprintf(call.body, row.limit)}).fields(); !slices.Equal(got, want) {
				t.Errorf("%s %s with %s: got errors for %q, want %q", call.method, call.path, row.limit, got, want)
			}
		}
	}
}

// Guarantee: a response lists at most 50 problems, and no name in it is long, whatever the
// size of the body.
func TestListOfProblemsIsBounded(t *testing.T) {
	s := start(t)
	unknown := map[string]any{"name": 1}
	for i := range 3000 {
		unknown[strings.Repeat("x", 300)+fmt.Sprint(i)] = i
	}
	r := s.post("/v1/keys", unknown)
	if got := r.fields(); len(got) != fault.MaxProblems || len(r.raw) > 100<<10 {
		t.Errorf("got %d problems in %d bytes, want %d in at most 100 KiB", len(got), len(r.raw), fault.MaxProblems)
	}
	events := strings.Repeat(`"x",`, 200_000) + `"x"`
	if got := s.post("/v1/webhooks", `{"url": "x", "events": [`+events+`]}`).fields(); len(got) != fault.MaxProblems {
		t.Errorf("got %d problems, want %d", len(got), fault.MaxProblems)
	}
	query := make([]string, 3000)
	for i := range query {
		query[i] = fmt.Sprintf("a%d=1", i)
	}
	if got := s.get("/v1/account?" + strings.Join(query, "&")).fields(); len(got) != fault.MaxProblems {
		t.Errorf("got %d problems, want %d", len(got), fault.MaxProblems)
	}
}

// Guarantee: of an object with very many fields no more than 1,000 are checked, so that a body of 1 MiB costs little before it is
// refused.
func TestObjectsWithVeryManyFieldsAreNotChecked(t *testing.T) {
	s := start(t)
	for n, want := range map[int][]string{17: {"metadata", "name"}, 1000: {"metadata", "name"}, 1001: {"metadata"}} {
		entries := make([]string, n)
		for i := range entries {
			entries[i] = fmt.Sprintf(`"k%d":"v"`, i)
		}
		if got := s.post("/v1/keys", `{"metadata": {`+strings.Join(entries, ",")+`}, "name": 5}`).fields(); !slices.Equal(got[:min(len(got), len(want))], want) || n > 1000 && len(got) > 1 {
			t.Errorf("%d entries: got errors for %q, want %q", n, got, want)
		}
	}
}

// Guarantee: a call that is refused changes nothing, stores no response for its Idempotency-Key, and
// leaves no audit record of a change.
func TestRefusedCallsChangeNothing(t *testing.T) {
	s := start(t)
	gatewayID := s.newGateway("")
	before := s.get("/v1/gateways/" + gatewayID).want(200).raw
	key := map[string]string{"Idempotency-Key": "once"}
	for _, body := range []string{
		`{"name": "b", "max_body_bytes": true}`, `{"name": "b", "colour": 1}`, `{"timeout": "30s", "global_rate_limit": {"sustained": "x"}}`,
	} {
		s.do(request{method: "PATCH", path: "/v1/gateways/" + gatewayID, body: body}).want(422)
	}
	s.do(request{method: "PATCH", path: "/v1/gateways/" + gatewayID + "?a=b", body: `{"name": "b"}`}).want(422)
	if after := s.get("/v1/gateways/" + gatewayID).want(200).raw; after != before {
		t.Errorf("got %s after refused calls, want %s", after, before)
	}
	s.do(request{method: "POST", path: "/v1/keys", body: `{"name": "a", "scope": "read", "colour": 1}`, header: key}).want(422)
	if r := s.do(request{method: "POST", path: "/v1/keys", body: `{"name": "a", "scope": "read"}`, header: key}).want(201); r.header.Get("Idempotent-Replayed") != "" {
		t.Error("the response to a refused call was stored")
	}
	var log struct {
		Data []struct{ Action, Target string }
	}
	if err := json.Unmarshal([]byte(s.get("/v1/audit-log?kind=management").want(http.StatusOK).raw), &log); err != nil {
		t.Fatal(err)
	}
	for _, r := range log.Data {
		if r.Action == "gateway.update" {
			t.Errorf("got an audit record %v of a refused call", r)
		}
	}
}

// Guarantee: contract 3.1: an error that quotes what the caller sent shows no key, wherever the
// caller put one, and quotes only a part of a long value.
func TestErrorsQuoteNoKeyAndNoLongValue(t *testing.T) {
	s := start(t)
	key := s.newKey(nil).text("key")
	gatewayID := s.newGateway("")
	long := strings.Repeat("x ", 100_000)
	for _, r := range []request{
		{method: "POST", path: "/v1/keys/verify", body: map[string]any{key: 1}},
		{method: "POST", path: "/v1/keys", body: map[string]any{"name": "k", "scope": key, "rate_limit": key}},
		{method: "GET", path: "/v1/keys?" + key + "=1"},
		{method: "POST", path: "/v1/gateways/" + gatewayID + "/routes", body: map[string]any{"path": "/" + key + "}", "methods": []string{"GET"}}},
		{method: "POST", path: "/v1/accounts", body: map[string]any{"name": "k", "plan": "starter", "hosts": []string{key + " ", long}}},
	} {
		got := s.do(r).want(422)
		if strings.Contains(got.raw, key) {
			t.Errorf("%s %s: the error shows the key: %s", r.method, r.path, got.raw)
		}
		if len(got.raw) > 4096 {
			t.Errorf("%s %s: got an error of %d bytes, want at most 4096", r.method, r.path, len(got.raw))
		}
	}
}
