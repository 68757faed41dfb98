package snapshot_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/keygate/keygate/internal/gateway"
)

// unknownHost returns the identifier of the gateway that a host of no gateway reaches, or "".
func (h *harness) unknownHost() string {
	if g := h.follower.Current().GatewayByHost("nobody.example"); g != nil {
		return g.ID
	}
	return ""
}

// Guarantee: contract 4.1: an unknown host reaches the default gateway and no other, however many
// gateways there are, and none if there is no default gateway.
func TestUnknownHostsReachTheDefaultGateway(t *testing.T) {
	h := newHarness(t)
	first, second := h.gateway(), h.gateway()
	put := func(g gateway.Gateway, isDefault bool) {
		g.Default = isDefault
		h.source.PutGateway(g)
	}
	for _, step := range []struct {
		name   string
		change func()
		want   string
	}{
		{"one gateway that is not the default", func() { put(first, false) }, ""},
		{"it becomes the default", func() { put(first, true) }, first.ID},
		{"a second gateway", func() { put(second, false) }, first.ID},
		{"the default moves", func() { put(first, false); put(second, true) }, second.ID},
		{"the former one is deleted", func() { h.source.DeleteGateway(first.ID) }, second.ID},
		{"no default is left", func() { put(first, false); h.source.DeleteGateway(second.ID) }, ""},
		{"a default again, after the change log was trimmed", func() { put(first, true); h.source.Trim() }, first.ID},
	} {
		step.change()
		h.catchUp()
		if got := h.unknownHost(); got != step.want {
			t.Errorf("%s: an unknown host reaches %q, want %q", step.name, got, step.want)
		}
	}
	if g := h.follower.Current().GatewayByHost(gateway.DefaultHostname(second.ID, "gw.test")); g == nil || g.ID != first.ID {
		t.Errorf("the hostname of a deleted gateway reaches %v, want the default gateway %s", g, first.ID)
	}
}

// Guarantee: while the default gateway moves, an unknown host reaches the former or the new default
// gateway at every moment, and the new one once CatchUp has returned.
func TestUnknownHostsReachAGatewayWhileTheDefaultMoves(t *testing.T) {
	h := newHarness(t)
	gateways := [2]gateway.Gateway{h.gateway(), h.gateway()}
	gateways[0].Default = true
	h.source.PutGateway(gateways[0])
	h.source.PutGateway(gateways[1])
	h.catchUp()
	var stop atomic.Bool
	var ended sync.WaitGroup
	ended.Go(func() {
		for !stop.Load() {
			if h.unknownHost() == "" {
				t.Error("an unknown host reaches no gateway")
				return
			}
		}
	})
	for i := range 200 {
		h.source.MoveDefault(gateways[(i+1)%2].ID)
		h.catchUp()
		if got := h.unknownHost(); got != gateways[(i+1)%2].ID {
			t.Fatalf("after move %d: got %s, want %s", i, got, gateways[(i+1)%2].ID)
		}
	}
	stop.Store(true)
	ended.Wait()
}

// Guarantee: if a new default gateway cannot be compiled, the former one stays in force, until the
// new one can be compiled.
func TestUnusableDefaultGatewayLeavesTheFormerOne(t *testing.T) {
	h := newHarness(t)
	first, broken := h.gateway(), h.gateway()
	first.Default = true
	h.source.PutGateway(first)
	h.catchUp()
	url := broken.Upstream.URL
	broken.Upstream.URL = "http://%"
	h.source.PutGateway(broken)
	h.source.MoveDefault(broken.ID)
	if err := h.follower.CatchUp(context.Background()); err == nil {
		t.Fatal("CatchUp accepted a gateway that cannot be compiled")
	}
	if got := h.unknownHost(); got != first.ID {
		t.Errorf("an unknown host reaches %q, want the former default gateway %s", got, first.ID)
	}
	broken.Upstream.URL, broken.Default = url, true
	h.source.PutGateway(broken)
	h.catchUp()
	if got := h.unknownHost(); got != broken.ID {
		t.Errorf("after the repair: an unknown host reaches %q, want %s", got, broken.ID)
	}
}
