// Package awaittest makes a test wait for a condition, with a bound: if it does not come true, the
// test fails and says what it waited for, instead of hanging until the test process is ended.
package awaittest

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// Timeout is how long a test waits for something that must happen. It is long enough for a machine that
// is busy with other tests, since only a failing test waits that long.
const Timeout = 2 * time.Minute

// TB is the part of testing.TB that this package needs. rapid.TB has no more.
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

// Left waits until the current period of UTC, such as an hour or a day, has at least least left. A test
// that takes less than that sees one period.
func Left(period, least time.Duration) {
	now := time.Now()
	if left := now.Truncate(period).Add(period).Sub(now); left < least {
		<-time.After(left)
	}
}

// LateFile is the environment variable with the path of the file to which Late adds lines.
const LateFile = "KEYGATE_LATE_FILE"

// Late says that a test proves less than its name says, because something came late: the machine is busy,
// or a day ended. It does not fail the test. make test prints how many tests did this.
func Late(t testing.TB, format string, args ...any) {
	t.Helper()
	line := t.Name() + " proves less: " + fmt.Sprintf(format, args...) + "\n"
	t.Log(line)
	path := os.Getenv(LateFile)
	if path == "" {
		return
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Error(err)
		return
	}
	defer f.Close()
	if _, err := f.WriteString(line); err != nil {
		t.Error(err)
	}
}
