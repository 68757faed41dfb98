//go:build linux

// Package wrk runs wrk, a closed-loop load generator: on each connection it sends a request, waits for the
// response, and sends the next.
package wrk

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

//go:embed wrk.lua
var script string

// Config describes a load.
type Config struct {
	URL         string
	Key         string // sent as a bearer key; "" sends none
	Connections int
	Duration    time.Duration // in whole seconds, at least one
	Dir         string        // for the script; the caller removes it
}

// Result is what a run measured.
type Result struct {
	Requests       int // with a response
	Failures       int // number of requests that failed: without a response, or with a status of 400 or above
	Elapsed        time.Duration
	P50, P99, P999 time.Duration
}

// Run sends the load. Requests that fail are counted and are no error.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	path := filepath.Join(cfg.Dir, "wrk.lua")
	if err := os.WriteFile(path, []byte(script), 0o600); err != nil {
		return nil, err
	}
	args := []string{"-t1", fmt.Sprintf("-c%d", cfg.Connections), fmt.Sprintf("-d%.0fs", max(1, cfg.Duration.Seconds())), "--timeout", "10s", "-s", path}
	if cfg.Key != "" {
		args = append(args, "-H", "Authorization: Bearer "+cfg.Key)
	}
	out, err := exec.CommandContext(ctx, "wrk", append(args, cfg.URL)...).CombinedOutput() //nolint:gosec // the arguments are those of a benchmark
	if err != nil {
		return nil, fmt.Errorf("wrk: %w; its output:\n%s", err, out)
	}
	return read(string(out))
}

// read parses the output of wrk.lua.
func read(out string) (*Result, error) {
	_, line, found := strings.Cut(out, "figures ")
	if !found {
		return nil, fmt.Errorf("the output of wrk has no figures:\n%s", out)
	}
	var r Result
	var elapsed, us50, us99, us999 int64
	if _, err := fmt.Sscan(line, &r.Requests, &elapsed, &r.Failures, &us50, &us99, &us999); err != nil {
		return nil, fmt.Errorf("parse the figures of wrk: %w:\n%s", err, out)
	}
	if r.Requests == 0 {
		return nil, fmt.Errorf("no request had a response:\n%s", out)
	}
	r.Elapsed = time.Duration(elapsed) * time.Microsecond
	r.P50, r.P99, r.P999 = time.Duration(us50)*time.Microsecond, time.Duration(us99)*time.Microsecond, time.Duration(us999)*time.Microsecond
	return &r, nil
}
