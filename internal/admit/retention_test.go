package admit

import (
	"runtime"
	"testing"
	"weak"
)

// Guarantee: what a request keeps to its end does not keep the routes of its gateway, which may be replaced many times
// while a stream or a tunnel lasts.
func TestVerdictKeepsNoRoutes(t *testing.T) {
	h := newHarness(t)
	g := h.gateway(nil, public(route("/open", "GET")))
	former := weak.Make(h.follower.Current().GatewayByID(g.ID))
	v := h.decide(Request{Method: "GET", Target: "/open", Host: "a.example"})
	checkVerdict(t, "a public route", v, "", "")
	h.source.PutGateway(g, public(route("/other", "GET")))
	h.catchUp()
	for range 3 { // a weak pointer is cleared by the cycle that finds its target gone
		runtime.GC()
	}
	if former.Value() != nil {
		t.Error("the former gateway with its routes is still in memory")
	}
	if v.Gateway.ID != g.ID {
		t.Errorf("the verdict has gateway %s, want %s", v.Gateway.ID, g.ID)
	}
}
