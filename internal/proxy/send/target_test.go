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

// Guarantee: a client's connection keeps the connection that it used last to each of several targets, and forgets them when it rests.
func TestAffinityKeepsAConnectionToEachTarget(t *testing.T) {
	var affinity Affinity
	var used [keptTargets]upstream.H1Conn
	at := func(i int) *Target { return &Target{of: &snapshot.Target{Index: i}} }
	for i := range used {
		affinity.lastOf(at(i)).Store(&used[i])
	}
	for i := range used {
		if affinity.lastOf(at(i)).Load() != &used[i] {
			t.Errorf("the connection to target %d was not kept", i)
		}
	}
	affinity.Rest()
	for i := range used {
		if affinity.lastOf(at(i)).Load() != nil {
			t.Errorf("the connection to target %d was not forgotten", i)
		}
	}
}
