package adminapi_test

import (
	"strings"
	"testing"
)

// Guarantee: only a dry run has an effect; without dry_run=true, effect is a 422 that names it. The
// response has an effect only if the call requests it.
func TestEffectNeedsDryRun(t *testing.T) {
	s := start(t)
	g := s.newGateway("")
	for _, query := range []string{"?effect=true", "?effect=true&dry_run=false", "?dry_run=true&effect=maybe"} {
		s.putSpec(g, petSpec, query).refused(422, "validation_failed", "effect")
	}
	for _, query := range []string{"?dry_run=true&effect=false", "?effect=false", ""} {
		if r := s.putSpec(g, petSpec, query).want(200); strings.Contains(r.raw, "effect") {
			t.Errorf("%q: got %s, want no effect", query, r.raw)
		}
	}
	s.post("/v1/gateways/"+g+"/revisions/1/rollback?effect=true", nil).refused(422, "validation_failed", "effect")
}

// Guarantee: a dry run of a plan's update returns the plan as it would be, with its effect if the call asks for that, and
// changes nothing. It has the errors of the update.
func TestDryRunOfAPlan(t *testing.T) {
	s := start(t)
	s.newPlan("", "free")
	path := "/v1/plans/" + s.newPlan("", "pro")
	before := s.get(path).want(200)
	patch := func(query, body string) *response {
		return s.do(request{method: "PATCH", path: path + query, body: body})
	}
	r := patch("?dry_run=true&effect=true", `{"title": "T", "limits": [{"name": "a", "sustained": "1/s"}]}`).want(200)
	if e := compact(t, r.json["effect"]); r.text("title") != "T" || !strings.Contains(e, `{"change":"added","limit":"a","refused":0,"refused_before":0,"unknown":0}`) || r.header.Get("ETag") != before.header.Get("ETag") {
		t.Errorf("got %s, want the changed plan, its effect, and the ETag of the plan in force", r.raw)
	}
	if r := patch("?dry_run=true", `{"title": "T"}`).want(200); r.json["effect"] != nil {
		t.Errorf("got %s, want no effect", r.raw)
	}
	patch("?dry_run=true", `{"name": "free"}`).refused(409, "conflict", "name")
	patch("?dry_run=true", `{"limits": [{"name": "a", "sustained": "x"}]}`).refused(422, "validation_failed", "limits[0].sustained")
	patch("?effect=true", `{"title": "T"}`).refused(422, "validation_failed", "effect")
	if after := s.get(path).want(200); after.raw != before.raw {
		t.Errorf("got %s after the dry runs, want %s", after.raw, before.raw)
	}
}

// Guarantee: a key may see the effect of a push if it may read traffic, or may simulate limits of the
// gateway, which reveals as much. Any other key that may push is refused with 403. That of a plan's change needs the right to
// read traffic.
func TestEffectNeedsScopeForTraffic(t *testing.T) {
	s := start(t)
	g := s.newGateway("")
	plan := s.newPlan("", "pro")
	for scope, allowed := range map[string]bool{"write": true, "write:plans": false, "write:plans read:reports/traffic": true, "write:plans write:gateways": false} {
		try := func(query string) *response {
			return s.do(request{method: "PATCH", path: "/v1/plans/" + plan + query, key: s.accountKey(scope), body: `{"title": "Professional"}`})
		}
		try("?dry_run=true").want(200)
		if r := try("?dry_run=true&effect=true"); !allowed && r.status != 403 || allowed && r.status == 403 {
			t.Errorf("%s: got %d %s, want allowed %t", scope, r.status, r.raw, allowed)
		}
	}
	for scope, allowed := range map[string]bool{
		"write": true, "write:gateways": true, "write:gateways/" + g + "/spec": false, "write:gateways/" + g + "/spec read:reports": true,
		"write:gateways/" + g + "/spec read:reports/traffic": true, "write:gateways/" + g + "/spec read:gateways": false,
	} {
		push := func(query string) *response {
			return s.do(request{method: "PUT", path: "/v1/gateways/" + g + "/spec" + query, key: s.accountKey(scope), body: petSpec, header: map[string]string{"Content-Type": "application/yaml"}})
		}
		push("?dry_run=true").want(200)
		if r := push("?dry_run=true&effect=true"); !allowed && r.status != 403 || allowed && r.status == 403 {
			t.Errorf("%s: got %d %s, want allowed %t", scope, r.status, r.raw, allowed)
		}
	}
}
