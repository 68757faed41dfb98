package adminapi_test

import (
	"strings"
	"testing"
)

// newQuotas creates a plan with three quotas, and an owner and a key that have it. It returns their paths.
func (s *server) newQuotas() (owner, key string) {
	s.t.Helper()
	limits := []any{
		map[string]any{"name": "per-month", "quota": "100/month", "per": "owner"},
		map[string]any{"name": "ever", "quota": "9007199254740991/total", "per": "owner", "overage": "allow", "warn_at": []int{200, 1}},
		map[string]any{"name": "each", "quota": "5/day", "meter": "requests", "warn_at": []int{}},
	}
	s.post("/v1/plans", map[string]any{"name": "pro", "limits": limits}).want(201)
	made := s.post("/v1/owners", map[string]any{"external_id": "customer-42", "plan": "pro"}).want(201)
	k := s.newKey(map[string]any{"owner": "customer-42"})
	return "/v1/owners/" + made.text("owner_id"), "/v1/keys/" + k.text("key_id")
}

// Guarantee: quotas of plans are shown with their defaults, and what is wrong with one is said at its field.
func TestQuotasOfPlans(t *testing.T) {
	s := start(t)
	s.newQuotas()
	shown := s.get("/v1/plans?name=pro").want(200).data()[0]["limits"]
	want := `[{"burst":null,"concurrency":null,"gateway_id":null,"meter":"requests","name":"per-month","overage":"refuse","per":"owner","quota":"100/month","routes":[],"sustained":null,"warn_at":[80,100]},` +
		`{"burst":null,"concurrency":null,"gateway_id":null,"meter":"requests","name":"ever","overage":"allow","per":"owner","quota":"9007199254740991/total","routes":[],"sustained":null,"warn_at":[1,200]},` +
		`{"burst":null,"concurrency":null,"gateway_id":null,"meter":"requests","name":"each","overage":"refuse","per":"key","quota":"5/day","routes":[],"sustained":null,"warn_at":[]}]`
	if got := compact(t, shown); got != want {
		t.Errorf("got the limits %s, want %s", got, want)
	}
	for field, limit := range map[string]map[string]any{
		"sustained": {}, "quota": {"quota": "5/hour"}, "burst": {"quota": "5/day", "burst": "5/s"}, "overage": {"sustained": "1/s", "overage": "allow"},
		"warn_at": {"quota": "5/day", "warn_at": []int{1, 2, 3, 4, 5, 6}}, "warn_at[1]": {"quota": "5/day", "warn_at": []int{1, 201}}, "meter": {"quota": "5/day", "meter": "Bytes"},
		"concurrency": {"quota": "5/day", "concurrency": 5},
	} {
		limit["name"] = "a"
		s.post("/v1/plans", map[string]any{"name": "bad", "limits": []any{limit}}).refused(422, "validation_failed", "limits[0]."+field)
	}
	s.post("/v1/plans", map[string]any{"name": "bad", "limits": []any{map[string]any{"name": "a", "quota": "5/day", "sustained": "5/s"}}}).refused(422, "validation_failed", "limits[0].quota")
}

// Guarantee: usage has the fields of plans.md, section 4, of the quotas that count the owner or the key.
func TestUsage(t *testing.T) {
	s := start(t)
	owner, key := s.newQuotas()
	const fields = "limit plan meter per count grants used reserved remaining window_start window_end overage"
	usage := s.get(owner + "/usage").want(200)
	wantFields(t, usage.json, "data")
	list := usage.data()
	if len(list) != 2 {
		t.Fatalf("got %s, want two quotas", usage.raw)
	}
	for _, u := range list {
		wantFields(t, u, fields)
	}
	if month := list[0]; month["limit"] != "per-month" || month["plan"] != "pro" || month["count"] != 100.0 || month["remaining"] != 100.0 || month["per"] != "owner" || month["window_end"] == nil {
		t.Errorf("got %v", month)
	}
	if ever := list[1]; ever["window_start"] != "1970-01-01T00:00:00Z" || ever["window_end"] != nil || ever["overage"] != "allow" || ever["count"] != 9007199254740991.0 {
		t.Errorf("got %v, want a window without end", ever)
	}
	if list := s.get(key + "/usage").want(200).data(); len(list) != 1 || list[0]["limit"] != "each" || list[0]["per"] != "key" {
		t.Errorf("got %v, want the quota that counts each key", list)
	}
	s.get("/v1/owners/own_x/usage").refused(404, "not_found", "")
	tightest := s.get("/v1/owners?usage=true&external_id=customer-42").want(200)
	if all := tightest.data(); len(all) != 1 || compact(t, all[0]["tightest_quota"]) != compact(t, list[0]) {
		t.Errorf("got %s, want the owner with its first quota", tightest.raw)
	}
	if r := s.get("/v1/owners?usage=false").want(200); strings.Contains(r.raw, "tightest_quota") {
		t.Errorf("got %s without usage=true", r.raw)
	}
	s.get("/v1/owners?usage=1").refused(422, "validation_failed", "usage")
}

// Guarantee: units are granted once for each Idempotency-Key, to a quota that counts the owner or the key, and listed page by page.
func TestGrants(t *testing.T) {
	s := start(t)
	owner, key := s.newQuotas()
	const fields = "grant_id limit plan meter units reason window_start window_end created_at"
	q := request{method: "POST", path: owner + "/grants", body: `{"limit": "per-month", "units": 50, "reason": "outage"}`, header: map[string]string{"Idempotency-Key": "once"}}
	first, again := s.do(q).want(201), s.do(q).want(201)
	wantFields(t, first.json, fields)
	if again.raw != first.raw || first.text("limit") != "per-month" || first.text("reason") != "outage" || first.json["units"] != 50.0 || first.json["window_end"] == nil {
		t.Errorf("got %s, and then %s", first.raw, again.raw)
	}
	last := s.post(owner+"/grants", map[string]any{"limit": "ever", "units": 1}).want(201)
	if last.json["reason"] != nil || last.json["window_end"] != nil {
		t.Errorf("got %s, want neither a reason nor an end", last.raw)
	}
	page := s.get(owner + "/grants?limit=1").want(200)
	next := s.get(owner + "/grants?limit=1&cursor=" + page.text("next_cursor")).want(200)
	if page.data()[0]["grant_id"] != last.text("grant_id") || next.data()[0]["grant_id"] != first.text("grant_id") || next.json["next_cursor"] != nil {
		t.Errorf("got the pages %s and %s", page.raw, next.raw)
	}
	if u := s.get(owner + "/usage").want(200).data()[0]; u["grants"] != 50.0 || u["remaining"] != 150.0 {
		t.Errorf("got %v, want 50 granted once", u)
	}
	s.get(key+"/grants?cursor="+page.text("next_cursor")).refused(422, "validation_failed", "cursor")
	for field, body := range map[string]string{
		"limit": `{"limit": "each", "units": 1}`, "units": `{"limit": "per-month", "units": 0}`, "reason": `{"limit": "per-month", "units": 1, "reason": ""}`,
		"plan": `{"limit": "per-month", "units": 1, "plan": "pro"}`,
	} {
		s.do(request{method: "POST", path: owner + "/grants", body: body}).refused(422, "validation_failed", field)
	}
	s.post(key+"/grants", map[string]any{"limit": "each", "units": 3}).want(201)
	entry := s.get("/v1/audit-log?kind=management&limit=1").want(200).data()[0]
	if entry["action"] != "grant.create" || entry["target"] == nil {
		t.Errorf("got %v, want the grant", entry)
	}
}

// Guarantee: usage and grants need the scopes of the records that they belong to.
func TestScopesOfUsageAndGrants(t *testing.T) {
	s := start(t)
	owner, key := s.newQuotas()
	for scope, may := range map[string]map[string]bool{
		"read:owners": {owner: false}, "write:owners": {owner: true}, "read:keys": {key: false}, "write:keys": {key: true},
	} {
		caller := s.accountKey(scope)
		for path, limit := range map[string]string{owner: "per-month", key: "each"} {
			grants, here := may[path]
			want := map[bool]int{true: 200, false: 403}[here]
			s.do(request{method: "GET", path: path + "/usage", key: caller}).want(want)
			s.do(request{method: "GET", path: path + "/grants", key: caller}).want(want)
			want = map[bool]int{true: 201, false: 403}[grants]
			s.do(request{method: "POST", path: path + "/grants", key: caller, body: `{"limit": "` + limit + `", "units": 1}`}).want(want)
		}
	}
}
