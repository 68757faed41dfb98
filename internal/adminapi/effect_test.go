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

// Guarantee: a key may see the effect of a push if it may read traffic, or may simulate limits of the
// gateway, which reveals as much. Any other key that may push is refused with 403.
func TestEffectNeedsScopeForTraffic(t *testing.T) {
	s := start(t)
	g := s.newGateway("")
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
