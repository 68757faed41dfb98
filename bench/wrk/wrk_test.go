//go:build linux

package wrk

import (
	"testing"
	"time"
)

// Guarantee: the figures of wrk.lua are parsed, failed requests are counted, and a run without any
// response is an error.
func TestRead(t *testing.T) {
	r, err := read("Running 1s test @ http://127.0.0.1:1/\n  1 threads and 64 connections\nfigures 6880 1000123 3 900 6870 8940\n")
	if err != nil {
		t.Fatal(err)
	}
	want := Result{6880, 3, 1000123 * time.Microsecond, 900 * time.Microsecond, 6870 * time.Microsecond, 8940 * time.Microsecond}
	if *r != want {
		t.Errorf("got %+v, want %+v", *r, want)
	}
	for _, bad := range []string{"", "figures 1 2", "figures 0 1000000 0 0 0 0\n"} {
		if r, err := read(bad); err == nil {
			t.Errorf("%q was accepted as %+v, want an error", bad, r)
		}
	}
}
