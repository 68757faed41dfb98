package admit

import (
	"testing"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// Guarantee: edge.md, 1: a route that responds itself does so after all checks and limits, and is charged. A path whose rest would begin
// with an encoded slash is refused, after the checks of the key and uncharged.
func TestHandlingComesAfterTheChecks(t *testing.T) {
	h := newHarness(t)
	responds := limited(route("/gone", "POST"), config(t, "1/day", "", "", ""))
	responds.Handling = &gateway.Handling{Respond: &gateway.Respond{Status: 410}}
	strips := limited(route("/api/*", "POST"), config(t, "1/day", "", "", ""))
	strips.Handling = &gateway.Handling{StripPrefix: "/api"}
	h.gateway(func(g *gateway.Gateway) { g.Requests.AllowEncodedSlashes = true }, responds, strips)
	reader, writer := "Bearer "+h.scoped("read"), "Bearer "+h.scoped("write")
	for _, c := range []struct {
		name, method, target, key string
		action                    Action
		code                      fault.Code
	}{
		{"no key", "POST", "/gone", "", Refuse, fault.Unauthorized},
		{"no scope", "POST", "/gone", reader, Refuse, fault.Forbidden},
		{"no method", "GET", "/gone", writer, Refuse, fault.MethodNotAllowed},
		{"it responds", "POST", "/gone", writer, Respond, ""},
		{"it was charged", "POST", "/gone", writer, Refuse, fault.RateLimitExceeded},
		{"no key, encoded slash", "POST", "/api/%2Fx", "", Refuse, fault.Unauthorized},
		{"no scope, encoded slash", "POST", "/api/%2Fx", reader, Refuse, fault.Forbidden},
		{"encoded slash", "POST", "/api/%2Fx", writer, Refuse, fault.InvalidRequest},
		{"encoded backslash", "POST", "/api/%5cx", writer, Refuse, fault.InvalidRequest},
		{"it was not charged", "POST", "/api/a%2Fx", writer, Forward, ""},
		{"encoded slash, no units", "POST", "/api/a", writer, Refuse, fault.RateLimitExceeded},
	} {
		v := h.decide(Request{Method: c.method, Target: c.target, Authorization: c.key})
		if v.Action != c.action || v.Code != c.code {
			t.Errorf("%s: got action %d, code %q, want %d and %q", c.name, v.Action, v.Code, c.action, c.code)
		}
		if v.Action == Respond && (v.Response.Status != 410 || v.Charge.Worst() == nil || v.Charge.Worst().Remaining != 0) {
			t.Errorf("%s: got %+v, want the response and nothing left", c.name, v)
		}
	}
}
