//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// findings is what all runs measured.
type findings struct {
	scenarios []scenario
	peers     []peer
	runs      map[string]series // by scenario and peer, see at
	failures  []string
	loadavg   string // before the first run
	took      time.Duration
}

func at(scenario, peer string) string { return scenario + " " + peer }

// measure runs the peers in turn through the scenarios, round after round.
func (st *stage) measure(ctx context.Context, w io.Writer) (*findings, error) {
	found := &findings{
		runs:      map[string]series{},
		scenarios: slices.DeleteFunc(scenarios(), func(s scenario) bool { return !slices.Contains(st.o.scenarios, s.name) }),
		peers:     slices.DeleteFunc(peers(), func(p peer) bool { return !slices.Contains(st.o.peers, p.name) }),
		loadavg:   loadAverage(),
	}
	begun := time.Now()
	if err := st.findPeak(ctx, w); err != nil {
		return nil, err
	}
	for round := range st.o.rounds {
		for _, s := range found.scenarios {
			for _, p := range found.peers {
				if err := ctx.Err(); err != nil {
					return nil, err
				}
				found.run(ctx, st, round, &s, &p, w)
			}
		}
	}
	found.took = time.Since(begun)
	return found, nil
}

// findPeak measures the peak that the fixed rates are parts of, if there are
// any and none was given.
func (st *stage) findPeak(ctx context.Context, w io.Writer) error {
	fixed := slices.ContainsFunc(st.o.scenarios, func(name string) bool { return strings.HasPrefix(name, "rate") })
	if !fixed || st.o.peak > 0 {
		return nil
	}
	all := peers()
	p := &all[slices.IndexFunc(all, func(p peer) bool { return p.name == reference })]
	s, err := runLoad(ctx, st, p, false, wrk(jsonPath, crowd))
	if err != nil {
		return fmt.Errorf("measure the peak of %s: %w", reference, err)
	}
	st.o.peak = s[throughput]
	fmt.Fprintf(w, "the peak of %s: %.0f requests/s\n", reference, st.o.peak)
	return nil
}

// run makes one run. A peer that failed in a scenario is not tried there again.
func (f *findings) run(ctx context.Context, st *stage, round int, s *scenario, p *peer, w io.Writer) {
	key := at(s.name, p.name)
	if slices.Contains(f.runs[key], nil) {
		f.runs[key] = append(f.runs[key], nil)
		return
	}
	found, err := s.run(ctx, st, p)
	if err != nil {
		found = nil
		f.failures = append(f.failures, fmt.Sprintf("%s, %s: %v", p.name, s.name, err))
	}
	f.runs[key] = append(f.runs[key], found)
	fmt.Fprintf(w, "round %d, %-6s %-7s", round+1, s.name, p.name)
	if err != nil {
		fmt.Fprintf(w, "  failed: %v\n", err)
		return
	}
	for _, c := range s.columns {
		fmt.Fprintf(w, "  %s %s", text([]float64{found[c.figure]}, c.digits), c.heading)
	}
	fmt.Fprintln(w)
}

// failed returns the runs that failed, as one error.
func (f *findings) failed() error {
	if len(f.failures) == 0 {
		return nil
	}
	return errors.New("these runs failed:\n" + strings.Join(f.failures, "\n"))
}
