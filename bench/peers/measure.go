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

	"github.com/keygate/keygate/bench/command"
)

// findings holds what all runs measured.
type findings struct {
	scenarios []scenario
	peers     []peer
	runs      map[string]series // by scenario and peer: see runKey
	failures  []string
	loadavg   string // before the first run
	took      time.Duration
}

func runKey(scenario, peer string) string { return scenario + " " + peer }

// measure runs all peers through all scenarios, round after round.
func (st *stage) measure(ctx context.Context, w io.Writer) (*findings, error) {
	found := &findings{
		runs:      map[string]series{},
		scenarios: slices.DeleteFunc(scenarios(), func(s scenario) bool { return !slices.Contains(st.o.scenarios, s.name) }),
		peers:     slices.DeleteFunc(peers(), func(p peer) bool { return !slices.Contains(st.o.peers, p.name) }),
		loadavg:   command.LoadAverage(),
	}
	start := time.Now()
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
	found.took = time.Since(start)
	return found, nil
}

// findPeak measures the peak rate that the fixed rates are fractions of, if there are
// fixed rates and no peak was given.
func (st *stage) findPeak(ctx context.Context, w io.Writer) error {
	fixed := slices.ContainsFunc(st.o.scenarios, func(name string) bool { return strings.HasPrefix(name, "rate") })
	if !fixed || st.o.peak > 0 {
		return nil
	}
	all := peers()
	p := &all[slices.IndexFunc(all, func(p peer) bool { return p.name == reference })]
	s, err := runLoad(ctx, st, p, mode{}, closedLoop(jsonPath+"1", manyConnections))
	if err != nil {
		return fmt.Errorf("measure the peak of %s: %w", reference, err)
	}
	st.o.peak = s[throughput]
	fmt.Fprintf(w, "peak of %s: %.0f requests/s\n", reference, st.o.peak)
	return nil
}

// run makes one run. If a peer failed in a scenario, its further runs there are skipped.
func (f *findings) run(ctx context.Context, st *stage, round int, s *scenario, p *peer, w io.Writer) {
	key := runKey(s.name, p.name)
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

// failed returns an error that lists the failed runs, or nil.
func (f *findings) failed() error {
	if len(f.failures) == 0 {
		return nil
	}
	return errors.New("these runs failed:\n" + strings.Join(f.failures, "\n"))
}
