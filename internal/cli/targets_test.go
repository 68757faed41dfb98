package cli

import (
	"testing"
	"time"

	"github.com/keygate/keygate/client"
)

// Guarantee: the state of an ejected target says since when and until when, once for all nodes if they agree.
func TestStateOfAnEjectedTarget(t *testing.T) {
	at := time.Date(2026, 7, 1, 12, 0, 3, 0, time.UTC)
	ejected := client.TargetStatus{Node: "node-1", State: client.TargetStatusStateEjected, Reason: new("connect"), Since: at, Until: new(at.Add(10 * time.Second))}
	healthy := client.TargetStatus{Node: "node-2", State: client.TargetStatusStateHealthy, Since: at}
	const words = "ejected (connect) since 2026-07-01T12:00:03Z until 2026-07-01T12:00:13Z"
	for want, list := range map[string][]client.TargetStatus{
		words: {ejected, ejected}, "healthy": {healthy}, "node-1 " + words + "; node-2 healthy": {ejected, healthy},
	} {
		if got := statesText(list); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
