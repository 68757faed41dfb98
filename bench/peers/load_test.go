//go:build linux

package main

import (
	"strings"
	"testing"
	"time"
)

// Guarantee: the quantiles are computed from the requests in h2load's log, and a failed request is
// an error.
func TestReadH2load(t *testing.T) {
	var log strings.Builder
	for i := range 100 {
		log.WriteString("1795278391" + string(rune('0'+i/10)) + string(rune('0'+i%10)) + "0000\t200\t" + strings.Repeat("1", 1+i/50) + "\n")
	}
	o, err := readH2load(log.String())
	if err != nil {
		t.Fatal(err)
	}
	want := loadResult{100, 990*time.Millisecond + 11*time.Microsecond, time.Microsecond, 11 * time.Microsecond, 11 * time.Microsecond}
	if *o != want {
		t.Errorf("got %+v, want %+v", *o, want)
	}
	for _, bad := range []string{"", "1 429 5\n", "1 -1 5\n", "x\n"} {
		if o, err := readH2load(bad); err == nil {
			t.Errorf("%q was accepted as %+v, want an error", bad, o)
		}
	}
}

// Guarantee: a ratio compares runs of the same round, and rounds with a failed run are
// omitted.
func TestRatios(t *testing.T) {
	run := func(v float64) *sample { return &sample{cpu: v} }
	own, other := series{run(10), nil, run(30), run(8)}, series{run(20), run(5), nil, run(10)}
	got := own.ratios(cpu, other)
	if len(got) != 2 || got[0] != 0.5 || got[1] != 0.8 {
		t.Errorf("ratios %v, want 0.5 and 0.8", got)
	}
	if all := own.values(cpu); len(all) != 3 {
		t.Errorf("values %v, want three of them", all)
	}
	if text(nil, 2) != "–" || text([]float64{1.234}, 1) != "1.2" {
		t.Errorf("texts %q and %q, want – and 1.2", text(nil, 2), text([]float64{1.234}, 1))
	}
}

// Guarantee: the idle connections fit into the limit of open files, of which Keygate leaves 8/17 to
// clients after what it needs itself.
func TestIdleConnectionsFitIntoTheFiles(t *testing.T) {
	for _, c := range []struct {
		files uint64
		want  int
	}{{0, 0}, {1000, 0}, {20_000, 7600}, {26_000, 10_000}, {mostFiles, 10_000}} {
		if got := idleWithin(10_000, c.files); got != c.want {
			t.Errorf("with %d files: got %d connections, want %d", c.files, got, c.want)
		}
	}
}
