package targetreport_test

import (
	"testing"
	"time"

	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/targetreport"
)

// Guarantee: targets.md, 3 and 6. An only target that was replaced with requests in flight, and is back, is shown and reported once: as
// it is now, with all that is in flight there.
func TestOnlyTargetThatIsBack(t *testing.T) {
	n := balance.Name{Account: "a", Gateway: "g", Upstream: "u"}
	f := balance.NewFleet(nil)
	alone := func(was *balance.Lone, host string, drain bool) *balance.Lone {
		return f.Alone(0, n, was, "http://"+host, host+":80", drain, time.Minute)
	}
	before := alone(nil, "one", false)
	before.Begin()
	now := alone(alone(before, "two", false), "one", false)
	now.Begin()
	view := targetreport.NewView(targetreport.ViewConfig{
		Node: "node-1", Fleet: f, Serves: true, Lone: func(balance.Name) *balance.Lone { return now },
		Clock: targetreport.Clock{Mono: func() time.Duration { return 1 }, Wall: func() time.Time { return time.Unix(1, 0) }},
	})
	for _, drain := range []bool{false, true} {
		now = alone(now, "one", drain)
		list, _, err := view.Status(t.Context(), n)
		if err != nil || len(list) != 1 || list[0].Draining != drain || list[0].InFlight != 2 {
			t.Errorf("drain %t: got %+v, %v; want the target with 2 in flight", drain, list, err)
		}
	}
}
