package adminapi_test

import "testing"

// Guarantee: contract 3.3: every gateway record has default; moving the default gateway changes the
// ETags of the former and of the new default gateway and of no other gateway; a refused value names the
// field and the remedy.
func TestDefaultGateway(t *testing.T) {
	s := start(t)
	first, second, third := s.newGateway(""), s.newGateway(""), s.newGateway("")
	state := func(gatewayID string, isDefault bool) string {
		t.Helper()
		r := s.get("/v1/gateways/" + gatewayID).want(200)
		if got, ok := r.json["default"].(bool); !ok || got != isDefault {
			t.Errorf("gateway %s has default %v, want %t", gatewayID, r.json["default"], isDefault)
		}
		return r.header.Get("ETag")
	}
	patch := func(gatewayID, body, match string) *response {
		q := request{method: "PATCH", path: "/v1/gateways/" + gatewayID, body: body}
		if match != "" {
			q.header = map[string]string{"If-Match": match}
		}
		return s.do(q)
	}
	tags := []string{state(first, true), state(second, false), state(third, false)}
	patch(second, `{"default": true}`, `"stale"`).refused(412, "precondition_failed", "")
	patch(second, `{"default": true}`, tags[1]).want(200)
	moved := []string{state(first, false), state(second, true), state(third, false)}
	for i, changed := range []bool{true, true, false} {
		if (moved[i] != tags[i]) != changed {
			t.Errorf("gateway %d: ETag %s before and %s after, want a change: %t", i, tags[i], moved[i], changed)
		}
	}
	patch(second, `{"default": false}`, "").refused(422, "validation_failed", "default")
	for _, bad := range []string{`null`, `"true"`, `1`, `{}`} {
		patch(second, `{"default": `+bad+`}`, "").refused(422, "validation_failed", "default")
	}
	patch(third, `{"default": false}`, "").want(200)
	if got := state(third, false); got != moved[2] {
		t.Errorf("a call that changed nothing changed the ETag from %s to %s", moved[2], got)
	}
}
