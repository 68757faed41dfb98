package proctest

import (
	"testing"
	"time"
)

// CPUTime returns the processor time that this process has used. Unlike the time on the clock,
// it does not depend on other processes of the machine.
func CPUTime(t testing.TB) time.Duration {
	t.Helper()
	d, err := cpuTime()
	if err != nil {
		t.Fatal(err)
	}
	return d
}
