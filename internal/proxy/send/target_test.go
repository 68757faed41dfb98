package send

import (
	"net/url"
	"testing"

	"github.com/keygate/keygate/internal/netguard"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/upstream"
)

// Guarantee: a client's connection goes on with its target for as long as the upstream has it, and
// uses the connections of another origin from the first request on after any setting of it has changed.
func TestAffinityFollowsTheTarget(t *testing.T) {
	pools, err := upstream.NewPools(upstream.Config{Guard: netguard.New()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pools.Close)
	var affinity Affinity
	pick := func(of *snapshot.Target) *Target {
		t.Helper()
		target, err := affinity.targetOf(pools, of)
		if err != nil {
			t.Fatal(err)
		}
		return target
	}
	private := &snapshot.Target{ID: "gw_1", Base: &url.URL{Scheme: "http", Host: "a.test"}}
	first := pick(private)
	if again := pick(private); again != first {
		t.Error("the target was made again although nothing has changed")
	}
	public := *private
	public.PublicOnly = true
	if restricted := pick(&public); restricted.pool == first.pool {
		t.Error("a target that may reach only public addresses has the connections of one that may reach any")
	}
}
