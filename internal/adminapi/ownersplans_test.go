package adminapi_test

import (
	"net/http"
	"strings"
	"testing"
)

// newOwner creates an owner and returns its identifier.
func (s *server) newOwner(key, externalID string) string {
	s.t.Helper()
	return s.do(request{method: "POST", path: "/v1/owners", key: key, body: map[string]any{"external_id": externalID}}).want(201).text("owner_id")
}

// newPlan creates a plan with one limit and returns its identifier.
func (s *server) newPlan(key, name string) string {
	s.t.Helper()
	return s.do(request{method: "POST", path: "/v1/plans", key: key, body: map[string]any{
		"name": name, "limits": []any{map[string]any{"name": "per-minute", "sustained": "600/min"}},
	}}).want(201).text("plan_id")
}

// Guarantee: an owner is created, read, changed, suspended and deleted with the fields of plans.md, section 2.
func TestOwnerIsCreatedChangedAndDeleted(t *testing.T) {
	s := start(t)
	plan := s.newPlan("", "free")
	const fields = "owner_id external_id name plan_id plan state metadata time_zone anchor_day created_at"
	created := s.post("/v1/owners", map[string]any{
		"external_id": "customer-42", "name": "Acme", "plan": "free", "metadata": map[string]string{"crm": "1"}, "time_zone": "Europe/Berlin", "anchor_day": 15,
	}).want(201)
	wantFields(t, created.json, fields)
	path := "/v1/owners/" + created.text("owner_id")
	if created.header.Get("Location") != path || created.text("plan_id") != plan || created.text("plan") != "free" || created.text("state") != "active" || created.json["anchor_day"] != 15.0 {
		t.Errorf("got %v\n%s\nwant the active owner with its plan and Location", created.header, created.raw)
	}
	s.post("/v1/owners", map[string]any{"external_id": "customer-42"}).refused(409, "conflict", "external_id")
	cleared := s.do(request{method: "PATCH", path: path, body: `{"name": null, "plan_id": null, "metadata": null, "time_zone": null, "anchor_day": null, "state": "suspended"}`}).want(200)
	wantFields(t, cleared.json, fields)
	for _, name := range []string{"name", "plan_id", "plan", "time_zone", "anchor_day"} {
		if cleared.json[name] != nil {
			t.Errorf("got %s = %v, want null", name, cleared.json[name])
		}
	}
	if cleared.text("state") != "suspended" || cleared.text("external_id") != "customer-42" {
		t.Errorf("got %s, want the owner suspended", cleared.raw)
	}
	s.do(request{method: "PATCH", path: path, body: `{"external_id": "b"}`}).refused(422, "validation_failed", "external_id")
	s.do(request{method: "PATCH", path: path, body: `{"state": null}`}).refused(422, "validation_failed", "state")
	key := s.newKey(map[string]any{"owner": "customer-42"})
	verified := s.post("/v1/keys/verify", map[string]any{"key": key.text("key")}).want(200)
	if verified.json["valid"] != false || verified.json["code"] != "owner_suspended" || verified.text("state") != "active" {
		t.Errorf("got %s, want the code owner_suspended of an active key", verified.raw)
	}
	s.do(request{method: "DELETE", path: path}).refused(409, "conflict", "")
	s.do(request{method: "DELETE", path: "/v1/keys/" + key.text("key_id")}).want(200)
	wantFields(t, s.do(request{method: "DELETE", path: path}).want(200).json, fields)
	s.get(path).refused(404, "not_found", "")
}

// Guarantee: a plan is created, read, changed and deleted with the fields of plans.md, section 3; what later versions add
// to limits is an unknown field.
func TestPlanIsCreatedChangedAndDeleted(t *testing.T) {
	s := start(t)
	gatewayID := s.newGateway("")
	s.newRoute("", gatewayID, "/orders/{id}")
	const fields = "plan_id name title limits time_zone anchor_day created_at"
	created := s.post("/v1/plans", map[string]any{"name": "free", "title": "Free", "limits": []any{
		map[string]any{"name": "per-minute", "sustained": "600/min", "burst": "50/s", "per": "owner"},
		map[string]any{"name": "orders", "sustained": "1/s", "gateway_id": gatewayID, "routes": []string{"/orders/{id}", "/reports/*"}},
	}}).want(201)
	wantFields(t, created.json, fields+" warnings")
	path := "/v1/plans/" + created.text("plan_id")
	if got, want := compact(t, created.json["limits"]), `[{"burst":"50/s","concurrency":null,"gateway_id":null,"meter":"requests","name":"per-minute","overage":null,"per":"owner","quota":null,"routes":[],"sustained":"600/min","warn_at":null},`+
		`{"burst":null,"concurrency":null,"gateway_id":"`+gatewayID+`","meter":"requests","name":"orders","overage":null,"per":"key","quota":null,"routes":["/orders/{id}","/reports/*"],"sustained":"1/s","warn_at":null}]`; got != want {
		t.Errorf("got the limits %s, want %s", got, want)
	}
	if w := compact(t, created.json["warnings"]); !strings.Contains(w, "/reports/*") || strings.Contains(w, "/orders") {
		t.Errorf("got the warnings %s, want one of /reports/*", w)
	}
	if created.header.Get("Location") != path || created.text("time_zone") != "UTC" || created.json["anchor_day"] != 1.0 {
		t.Errorf("got %v\n%s\nwant the defaults and Location", created.header, created.raw)
	}
	wantFields(t, s.get(path).want(200).json, fields)
	s.post("/v1/plans", map[string]any{"name": "free"}).refused(409, "conflict", "name")
	for _, field := range []string{"quota", "concurrency", "meter", "overage", "warn_at"} {
		s.do(request{method: "PATCH", path: path, body: map[string]any{"limits": []any{map[string]any{"name": "a", "sustained": "1/s", field: 5}}}}).
			refused(422, "validation_failed", "limits[0]."+field)
	}
	parallel := s.do(request{method: "PATCH", path: path, body: `{"limits": [{"name": "a", "concurrency": 5}]}`}).want(200)
	const ofParallel = `[{"burst":null,"concurrency":5,"gateway_id":null,"meter":"requests","name":"a","overage":null,"per":"key","quota":null,"routes":[],"sustained":null,"warn_at":null}]`
	if got := compact(t, parallel.json["limits"]); got != ofParallel {
		t.Errorf("got the limits %s, want %s", got, ofParallel)
	}
	s.do(request{method: "PATCH", path: path, body: map[string]any{"limits": parallel.json["limits"]}}).want(200)
	for _, count := range []any{0, 1_000_001, 1.5, "5"} {
		s.do(request{method: "PATCH", path: path, body: map[string]any{"limits": []any{map[string]any{"name": "a", "concurrency": count}}}}).
			refused(422, "validation_failed", "limits[0].concurrency")
	}
	changed := s.do(request{method: "PATCH", path: path, body: `{"name": "starter", "title": null, "limits": null, "time_zone": "Europe/Berlin", "anchor_day": 28}`}).want(200)
	if changed.text("name") != "starter" || changed.json["title"] != nil || compact(t, changed.json["limits"]) != "[]" || changed.text("time_zone") != "Europe/Berlin" {
		t.Errorf("got %s, want the changes", changed.raw)
	}
	s.newKey(map[string]any{"plan": "starter"})
	s.do(request{method: "DELETE", path: path}).refused(409, "conflict", "")
	unused := "/v1/plans/" + s.newPlan("", "unused")
	wantFields(t, s.do(request{method: "DELETE", path: unused}).want(200).json, fields)
	s.get(unused).refused(404, "not_found", "")
}

// Guarantee: lists of owners, plans and keys have the filters of plans.md.
func TestListsOfOwnersAndPlans(t *testing.T) {
	s := start(t)
	free, gold := s.newPlan("", "free"), s.newPlan("", "gold")
	a := s.post("/v1/owners", map[string]any{"external_id": "a", "name": "Acme", "plan_id": free}).want(201).text("owner_id")
	b := s.post("/v1/owners", map[string]any{"external_id": "b", "plan_id": gold}).want(201).text("owner_id")
	s.do(request{method: "PATCH", path: "/v1/owners/" + b, body: `{"state": "suspended"}`}).want(200)
	key := s.newKey(map[string]any{"plan_id": gold, "owner": "a"}).text("key_id")
	for path, want := range map[string]string{
		"/v1/owners": b + " " + a, "/v1/owners?external_id=a": a, "/v1/owners?state=suspended": b, "/v1/owners?plan_id=" + free: a, "/v1/owners?q=acm": a,
		"/v1/owners?state=active&plan_id=" + gold: "", "/v1/plans": gold + " " + free, "/v1/plans?name=gold": gold, "/v1/plans?q=fre": free,
		"/v1/plans/" + gold + "/owners": b, "/v1/plans/" + free + "/owners": a, "/v1/plans/" + gold + "/keys": key, "/v1/plans/" + free + "/keys": "",
		"/v1/keys?plan_id=" + gold: key, "/v1/keys?plan_id=" + free: "", "/v1/keys?owner=a": key,
	} {
		var got []string
		for _, r := range s.get(path).want(200).data() {
			for _, name := range []string{"key_id", "owner_id", "plan_id"} {
				if id, ok := r[name].(string); ok {
					got = append(got, id)
					break
				}
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
	s.get("/v1/owners?state=gone").refused(422, "validation_failed", "state")
	s.get("/v1/owners?name=a").refused(422, "validation_failed", "name")
	first := s.get("/v1/owners?limit=1").want(200)
	if next := s.get("/v1/owners?limit=1&cursor=" + first.text("next_cursor")).want(200).data(); len(next) != 1 || next[0]["owner_id"] != a {
		t.Errorf("got the second page %v, want the owner a", next)
	}
	s.get("/v1/plans?cursor="+first.text("next_cursor")).refused(422, "validation_failed", "cursor")
}

// Guarantee: the account's default plan is that of owners that keys create, and its ETag changes with each change.
func TestDefaultPlanOfTheAccount(t *testing.T) {
	s := start(t)
	plan := s.newPlan("", "free")
	first := s.get("/v1/account").want(200)
	patch := func(body, match string) *response {
		return s.do(request{method: "PATCH", path: "/v1/account", body: body, header: map[string]string{"If-Match": match}})
	}
	changed := patch(`{"default_plan": "free"}`, first.header.Get("ETag")).want(200)
	if changed.text("default_plan_id") != plan || changed.text("default_plan") != "free" || changed.header.Get("ETag") == first.header.Get("ETag") {
		t.Errorf("got %v\n%s\nwant the plan and another ETag", changed.header, changed.raw)
	}
	patch(`{"default_plan_id": null}`, first.header.Get("ETag")).refused(412, "precondition_failed", "")
	patch(`{"default_plan_id": "`+plan+`", "default_plan": "free"}`, "").refused(422, "validation_failed", "default_plan")
	patch(`{"name": "x"}`, "").refused(422, "validation_failed", "name")
	owner := s.newKey(map[string]any{"owner": "a"}).text("owner_id")
	if o := s.get("/v1/owners/" + owner).want(200); o.text("plan") != "free" {
		t.Errorf("got %s, want the default plan", o.raw)
	}
	if none := patch(`{"default_plan": null}`, "").want(200); none.json["default_plan_id"] != nil {
		t.Errorf("got %s, want no default plan", none.raw)
	}
	read := s.do(request{method: "PATCH", path: "/v1/account", key: s.accountKey("write:keys"), body: `{}`})
	if read.status != http.StatusForbidden {
		t.Errorf("got status %d for a key with write:keys, want 403", read.status)
	}
}

// Guarantee: a creation that is repeated with its Idempotency-Key creates nothing again.
func TestOwnersAndPlansAreCreatedOnce(t *testing.T) {
	s := start(t)
	for path, body := range map[string]string{"/v1/owners": `{"external_id": "a"}`, "/v1/plans": `{"name": "free"}`} {
		q := request{method: "POST", path: path, body: body, header: map[string]string{"Idempotency-Key": path}}
		first, again := s.do(q).want(201), s.do(q).want(201)
		if again.header.Get("Idempotent-Replayed") != "true" || again.raw != first.raw || again.header.Get("Location") != first.header.Get("Location") {
			t.Errorf("%s: got %v %s, want the first response again", path, again.header, again.raw)
		}
	}
}

// Guarantee: a gateway names its default plan, and shows the identifier too.
func TestGatewayShowsItsDefaultPlan(t *testing.T) {
	s := start(t)
	plan := s.newPlan("", "free")
	path := "/v1/gateways/" + s.newGateway("")
	if r := s.get(path).want(200); strings.Contains(r.raw, "default_plan") {
		t.Errorf("got %s, want no default plan", r.raw)
	}
	changed := s.do(request{method: "PATCH", path: path, body: `{"default_plan": "free"}`}).want(200)
	if changed.text("default_plan") != "free" || changed.text("default_plan_id") != plan {
		t.Errorf("got %s, want the plan's name and identifier", changed.raw)
	}
	if listed := s.get("/v1/gateways").want(200); listed.data()[0]["default_plan"] != "free" {
		t.Errorf("got %s, want the plan's name", listed.raw)
	}
	s.do(request{method: "PATCH", path: path, body: `{"default_plan": "none", "timeout": "1ms"}`}).refused(422, "validation_failed", "default_plan")

	// The identifier may stand for the name.
	patch := func(body string) *response { return s.do(request{method: "PATCH", path: path, body: body}) }
	if r := patch(`{"default_plan_id": null}`).want(200); strings.Contains(r.raw, "default_plan") {
		t.Errorf("got %s, want no default plan", r.raw)
	}
	if r := patch(`{"default_plan_id": "` + plan + `"}`).want(200); r.text("default_plan") != "free" {
		t.Errorf("got %s, want the plan", r.raw)
	}
	patch(`{"default_plan_id": "`+plan+`", "default_plan": "free"}`).refused(422, "validation_failed", "default_plan")
	patch(`{"default_plan_id": "plan_01jz8y5c3te9b8r2m6q4v7x0bb", "name": ""}`).refused(422, "validation_failed", "default_plan_id")
	made := s.do(request{method: "POST", path: "/v1/gateways", body: `{"name": "second", "upstream_url": "http://127.0.0.1:9", "default_plan_id": "` + plan + `"}`}).want(201)
	if made.text("default_plan") != "free" {
		t.Errorf("got %s, want the plan", made.raw)
	}
}
