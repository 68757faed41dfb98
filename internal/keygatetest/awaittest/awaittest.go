// Package awaittest waits in a test for what must happen, with a bound: if it does not happen, the
// test fails and says what it waited for, instead of hanging until the test process is ended.
package awaittest

import "time"

// Timeout is how long a test waits for something that must happen. It is long enough for a machine that
// is busy with other tests, since only a test that fails waits that long.
const Timeout = 2 * time.Minute

// TB is the part of testing.TB that this package needs. Rapid's has no more.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
}

// True calls holds every millisecond until it returns true. If it has not after Timeout, the test ends:
// it waited for what, which names the condition ("32 requests wait").
func True(t TB, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(Timeout); !holds(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for this: %s", Timeout, what)
		}
	}
}
