//go:build linux

// Command accounting loads a server with requests of every kind for a while, as
// fast as the machine does it, and holds the traffic report against what the
// clients received: to the last request, in every grouping. Run it by make
// bench-accounting.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

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
	flag.StringVar(&o.binary, "keygate", "bin/keygate", "the binary to load")
	flag.DurationVar(&o.duration, "duration", time.Minute, "time of the load")
	flag.IntVar(&o.workers, "workers", 32, "connections of HTTP/1.1")
	flag.IntVar(&o.streams, "streams", 16, "streams of one connection of HTTP/2")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-accounting:", err)
		os.Exit(1)
	}
}

// run loads a server and tells w how the figures compare. Differences, and
// records that were lost, are an error.
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
	nothing, err := keygate.FreeAddresses(1)
	if err != nil {
		return err
	}
	server, err := keygate.Start(ctx, keygate.Config{Binary: o.binary, Dir: dir, Args: []string{"--log-level", "error"}})
	if err != nil {
		return err
	}
	defer server.Stop()
	scenario, err := tally.NewScenario(ctx, server.Admin, service.URL, "http://"+nothing[0])
	if err != nil {
		return err
	}
	cpu, err := server.CPU()
	if err != nil {
		return err
	}
	begun := time.Now()
	loading, cancel := context.WithTimeout(ctx, o.duration)
	defer cancel()
	result, err := tally.Run(loading, tally.Config{Address: server.Gateway, Calls: scenario.Calls, Workers: o.workers, Streams: o.streams})
	if err != nil {
		return err
	}
	took := time.Since(begun)
	used, err := server.CPU()
	if err != nil {
		return err
	}
	answers := result.Total()
	fmt.Fprintf(w, "%d answers in %s: %.0f a second, %.1f µs of the server's processor time for each; %d requests without an answer.\n",
		answers, took.Round(time.Millisecond), float64(answers)/took.Seconds(), (used-cpu).Seconds()*1e6/float64(answers), result.NoResponse)
	return compare(ctx, w, server, scenario.Calls, result, begun)
}

// compare holds the server's report against a result.
func compare(ctx context.Context, w io.Writer, server *keygate.Server, calls []tally.Call, result *tally.Result, begun time.Time) error {
	different := 0
	for _, grouping := range tally.Groupings() {
		got, err := tally.Report(ctx, server.Admin, begun.Add(-time.Minute), "1m", grouping)
		if err != nil {
			return err
		}
		name := grouping
		if name == "" {
			name = "all together"
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
		return fmt.Errorf("%d figures of the report are not what the clients received", different)
	case lost > 0:
		return fmt.Errorf("%.0f records were lost", lost)
	case len(counters) == 0:
		return errors.New("the server counts no lost records")
	}
	return nil
}
