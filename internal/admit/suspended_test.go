package admit

import (
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// Guarantee: the 404 of a suspended account's host does not advise to use another host or a default gateway.
// The 404 of an unknown host does.
func TestHostOfASuspendedAccount(t *testing.T) {
	h := newHarness(t)
	h.gateway(func(g *gateway.Gateway) { g.Hostname, g.HostGiven = "a.example", true }, route("/", "GET"))
	h.account.State = account.Suspended
	h.source.PutAccount(h.account)
	h.catchUp()
	for host, advises := range map[string]bool{"nobody.example": true, "A.example.:8080": false} {
		v := h.decide(Request{Method: "GET", Host: host, Target: "/"})
		if v.Code != fault.GatewayNotFound || strings.Contains(v.Fault().Message, "default gateway") != advises {
			t.Errorf("%s: got %s, %q, want gateway_not_found, advice: %v", host, v.Code, v.Fault().Message, advises)
		}
	}
}
