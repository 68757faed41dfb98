package snapshot_test

import (
	"testing"
	"time"

	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/snapshot"
)

// healthOf returns checks by a path.
func healthOf(change func(*gateway.Health)) *gateway.Health {
	h := gateway.DefaultHealth()
	h.Path, h.Statuses, h.Sealed = "/healthz", "200-299,304", map[string][]byte{"X-Probe": []byte("sealed")}
	if change != nil {
		change(&h)
	}
	return &h
}

// Guarantee: targets.md 1 and 3, an upstream with checks has a balance, with one target too, which ends with them only for the next start;
// checks are equal if all that they depend on is, the values of headers, host, ca and client certificate included.
func TestChecksAreCompiled(t *testing.T) {
	h := newHarness(t)
	one, two := h.gateway(), h.gateway()
	put := func(g gateway.Gateway, health *gateway.Health, more func(*gateway.Upstream)) {
		g.Upstream.URL, g.Upstream.Health = "https://a.internal", health
		if more != nil {
			more(&g.Upstream)
		}
		h.source.PutGateway(g)
		h.catchUp()
	}
	healths := func() (all []*snapshot.Check) {
		h.fleet.Healths(func(_ *balance.Health, c balance.Check) bool {
			all = append(all, c.Use.(*snapshot.Check))
			return true
		})
		return all
	}
	upstream := func() *snapshot.Upstream { return h.follower.Current().GatewayByID(one.ID).Upstream }
	put(one, nil, nil)
	put(two, nil, nil)
	if len(healths()) > 0 || upstream().Balance != nil {
		t.Fatal("an upstream without checks is checked")
	}
	put(one, healthOf(nil), nil)
	put(two, healthOf(nil), func(u *gateway.Upstream) { u.URL += "/base"; u.MaxConnections = 7 })
	all := healths()
	if len(all) != 1 || upstream().Balance == nil {
		t.Fatalf("got %d checks, want one for both gateways", len(all))
	}
	c := all[0]
	if c.Path != "/healthz" || c.Interval != 10*time.Second || c.Timeout != 2*time.Second || len(c.Headers) != 1 || c.Headers[0] != (snapshot.Header{Name: "X-Probe", Value: "SEALED"}) ||
		!c.IsGood(200) || !c.IsGood(299) || !c.IsGood(304) || c.IsGood(300) || c.IsGood(404) {
		t.Errorf("got the check %+v", c)
	}
	for name, change := range map[string]struct {
		health func(*gateway.Health)
		of     func(*gateway.Upstream)
	}{
		"path":      {func(h *gateway.Health) { h.Path = "/" }, nil},
		"kind":      {func(h *gateway.Health) { h.Path, h.Statuses, h.TCP = "", "", true }, nil},
		"service":   {func(h *gateway.Health) { h.Path, h.Statuses, h.GRPC = "", "", new("") }, nil},
		"interval":  {func(h *gateway.Health) { h.Interval = "11s" }, nil},
		"timeout":   {func(h *gateway.Health) { h.Timeout = "3s" }, nil},
		"unhealthy": {func(h *gateway.Health) { h.Unhealthy = 3 }, nil},
		"healthy":   {func(h *gateway.Health) { h.Healthy = 3 }, nil},
		"statuses":  {func(h *gateway.Health) { h.Statuses = "200" }, nil},
		"headers":   {func(h *gateway.Health) { h.Sealed = map[string][]byte{"X-Probe": []byte("other")} }, nil},
		"host":      {nil, func(u *gateway.Upstream) { u.Host = "b.internal" }},
		"ca":        {nil, func(u *gateway.Upstream) { u.TLS.CA = "pem" }},
		"client": {nil, func(u *gateway.Upstream) {
			u.TLS.ClientCertificate, u.TLS.ClientKey = "pem", []byte("sealed")
		}},
	} {
		if put(two, healthOf(change.health), change.of); len(healths()) != 2 {
			t.Errorf("%s: got %d checks, want one more for other settings", name, len(healths()))
		}
	}
	put(two, nil, nil)
	if put(one, nil, nil); len(healths()) > 0 || upstream().Balance == nil {
		t.Errorf("got %d checks, want none, and the balance kept", len(healths()))
	}
}
