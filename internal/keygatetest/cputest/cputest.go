// Package cputest measures processor time in tests and benchmarks.
package cputest

import (
	"testing"
	"time"
)

// Used returns the processor time that this process has used. Unlike the time on the clock,
// it does not depend on other processes of the machine.
func Used(t testing.TB) time.Duration {
	t.Helper()
	d, err := used()
	if err != nil {
		t.Fatal(err)
	}
	return d
}
