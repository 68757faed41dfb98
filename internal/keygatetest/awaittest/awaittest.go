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

// True calls holds until it returns true. If it has not after Timeout, the test ends: it waited for what,
// which names the condition ("32 requests wait").
func True(t TB, what string, holds func() bool) {
	t.Helper()
	if !Holds(holds) {
		t.Fatalf("waited %v for this: %s", Timeout, what)
	}
}

// Holds calls holds until it returns true, and reports whether it did within Timeout. It is for a test that
// has more to say of its failure than True does. The calls are 1 ms apart at first and 10 ms later.
func Holds(holds func() bool) bool {
	deadline := time.Now().Add(Timeout)
	for pause := time.Millisecond; !holds(); pause = min(pause*5/4, 10*time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
		<-time.After(pause)
	}
	return true
}
