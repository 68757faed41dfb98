//go:build linux

package main

import "testing"

// Guarantee: readPerf returns the number in the output of perf, and output without one is an error.
func TestReadPerf(t *testing.T) {
	const out = "# started on Tue Nov 24 01:50:00 2026\n\n123456,,raw_syscalls:sys_enter,4003422,100.00,,\n"
	if n, err := readPerf(out); n != 123456 || err != nil {
		t.Errorf("got %v, %v; want 123456", n, err)
	}
	for _, out := range []string{"", "<not counted>,,raw_syscalls:sys_enter,0,0.00,,\n", "1,,cycles,1,100.00,,\n"} {
		if n, err := readPerf(out); err == nil {
			t.Errorf("got %v from %q, want an error", n, out)
		}
	}
}
