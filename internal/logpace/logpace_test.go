package logpace

import (
	"testing"
	"time"
)

// Guarantee: four lines may follow each other at once, and then one in each 20 s, forever; after a quiet time there
// may be four again. Pass returns how long to wait.
func TestGate(t *testing.T) {
	for _, start := range []time.Duration{0, time.Second, time.Hour} {
		var g Gate
		lines := 0
		for now := start; now < start+10*time.Minute; now += 100 * time.Millisecond {
			ok, wait := g.Pass(now)
			if ok {
				lines++
			}
			if ok != (wait == 0) || wait > Every {
				t.Fatalf("at %v: ok %v, wait %v", now, ok, wait)
			}
		}
		if lines != Burst+int(10*time.Minute/Every)-1 {
			t.Errorf("%d lines in ten minutes, want 33", lines)
		}
		for i := range Burst + 1 {
			if ok, _ := g.Pass(start + time.Hour); ok != (i < Burst) {
				t.Errorf("line %d after a quiet time: %v", i+1, ok)
			}
		}
	}
}
