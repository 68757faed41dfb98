//go:build linux

// Command accounting loads a server with requests of every kind, as fast as the
// machine allows, and compares its traffic report with what the clients received, to
// the last request and in every grouping. Run it with make bench-accounting.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"time"

	"github.com/keygate/keygate/bench/command"
	"github.com/keygate/keygate/bench/keygate"
	"github.com/keygate/keygate/e2e/tally"
)

type options struct {
	binary           string
	duration         time.Duration
	workers, streams int
}

func main() {
	var o options
	flag.StringVar(&o.binary, "keygate", "bin/keygate", "binary to measure")
	flag.DurationVar(&o.duration, "duration", time.Minute, "duration of the load")
	flag.IntVar(&o.workers, "workers", 32, "number of HTTP/1.1 connections")
	flag.IntVar(&o.streams, "streams", 16, "number of streams on one HTTP/2 connection")
	flag.Parse()

	command.Main("bench-accounting", func(ctx context.Context) error { return run(ctx, o, os.Stdout) })
}

// run loads a server and writes the comparison to w. Differences and lost records
// are errors.
func run(ctx context.Context, o options, w io.Writer) (err error) {
	if o.binary, err = filepath.Abs(o.binary); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "keygate-bench-accounting-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	service := httptest.NewServer(tally.Service())
	defer service.Close()
	unused, err := keygate.FreeAddresses(1)
	if err != nil {
		return err
	}
	server, err := keygate.Start(ctx, keygate.Config{Binary: o.binary, Dir: dir, Args: []string{"--log-level", "error"}})
	if err != nil {
		return err
	}
	defer server.Stop()
	scenario, err := tally.NewScenario(ctx, server.Admin, service.URL, "http://"+unused[0])
	if err != nil {
		return err
	}
	cpu, err := server.CPU()
	if err != nil {
		return err
	}
	start := time.Now()
	loading, cancel := context.WithTimeout(ctx, o.duration)
	defer cancel()
	result, err := tally.Run(loading, tally.Config{Address: server.Gateway, Calls: scenario.Calls, Workers: o.workers, Streams: o.streams})
	if err != nil {
		return err
	}
	took := time.Since(start)
	used, err := server.CPU()
	if err != nil {
		return err
	}
	responses := result.Total()
	fmt.Fprintf(w, "%d responses in %s: %.0f/s, %.1f µs of server CPU for each; %d requests without a response.\n",
		responses, took.Round(time.Millisecond), float64(responses)/took.Seconds(), (used-cpu).Seconds()*1e6/float64(responses), result.NoResponse)
	return compare(ctx, w, server, scenario.Calls, result, start)
}

// compare compares the server's report with a result.
func compare(ctx context.Context, w io.Writer, server *keygate.Server, calls []tally.Call, result *tally.Result, start time.Time) error {
	different := 0
	for _, grouping := range tally.Groupings() {
		got, err := tally.Report(ctx, server.Admin, start.Add(-time.Minute), "1m", grouping)
		if err != nil {
			return err
		}
		name := grouping
		if name == "" {
			name = "all"
		}
		lines := got.Differences(result.Expected(calls, grouping))
		fmt.Fprintf(w, "%-12s  %3d groups, %d differences\n", name, len(got), len(lines))
		for _, line := range lines {
			fmt.Fprintln(w, "  "+line)
		}
		different += len(lines)
	}
	metrics, err := server.Metrics(ctx)
	if err != nil {
		return err
	}
	lost, counters := 0.0, tally.Lost(metrics)
	for name, n := range counters {
		fmt.Fprintf(w, "%s %.0f\n", name, n)
		lost += n
	}
	switch {
	case different > 0:
		return fmt.Errorf("%d figures of the report differ from what the clients received", different)
	case lost > 0:
		return fmt.Errorf("%.0f records were lost", lost)
	case len(counters) == 0:
		return errors.New("/metrics has no counters of lost records")
	}
	return nil
}
