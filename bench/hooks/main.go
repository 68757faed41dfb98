//go:build linux

// Command hooks measures the delivery of events: the throughput to one receiver and
// the delay, first with that receiver alone and then with a second endpoint that
// hangs on every delivery. Run it with make bench-hooks.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/keygate/keygate/bench/command"
	"github.com/keygate/keygate/bench/stats"
)

type options struct {
	binary string
	events int
	live   time.Duration
	pace   int
	rounds int
	write  string
}

func main() {
	var o options
	flag.StringVar(&o.binary, "keygate", "bin/keygate", "binary to measure")
	flag.IntVar(&o.events, "events", 20_000, "number of events that are pending when the server starts")
	flag.DurationVar(&o.live, "live", 10*time.Second, "how long to create keys after that, each of which raises an event")
	flag.IntVar(&o.pace, "pace", 200, "keys to create per second")
	flag.IntVar(&o.rounds, "rounds", 3, "number of runs; the medians are reported")
	flag.StringVar(&o.write, "write", "", "document to put the table into, such as docs/performance.md")
	flag.Parse()

	command.Main("bench-hooks", func(ctx context.Context) error { return run(ctx, o, os.Stdout, os.Stderr) })
}

// figures are the results of one run.
type figures struct {
	rate     float64       // pending events delivered per second
	backlog  time.Duration // p99 of the arrivals of pending events, from the first one on
	p50, p99 time.Duration // from an event to its arrival, for events raised while the server runs
	missing  int           // events that did not arrive
}

// run measures, reports progress to w and writes the table to out.
func run(ctx context.Context, o options, out, w io.Writer) (err error) {
	if o.rounds < 1 || o.events < 100 || o.pace < 1 {
		return errors.New("-rounds and -pace must be at least 1, and -events at least 100")
	}
	if o.binary, err = filepath.Abs(o.binary); err != nil {
		return err
	}
	all := map[bool][]figures{}
	for range o.rounds {
		for _, hanging := range []bool{false, true} { // alternating, so that a noisy minute affects both
			f, err := measure(ctx, o, hanging)
			if err != nil {
				return err
			}
			fmt.Fprintf(w, "second endpoint hangs: %v: %+v\n", hanging, f)
			all[hanging] = append(all[hanging], f)
		}
	}
	text := report(o, all[false], all[true])
	if _, err := io.WriteString(out, text); err != nil {
		return err
	}
	if o.write == "" {
		return nil
	}
	return stats.ReplaceIn(o.write, "bench-hooks", "\n"+text+"\n")
}

func report(o options, alone, hanging []figures) string {
	t := stats.Table{Columns: []string{"Measure", "Alone", "With one that hangs", "Target"}}
	middle := func(of []figures, read func(figures) float64) float64 {
		var values []float64
		for _, f := range of {
			values = append(values, read(f))
		}
		return stats.Median(values...)
	}
	add := func(name, format, target string, read func(figures) float64) {
		t.Add(name, fmt.Sprintf(format, middle(alone, read)), fmt.Sprintf(format, middle(hanging, read)), target)
	}
	milliseconds := func(d time.Duration) float64 { return d.Seconds() * 1000 }
	add(fmt.Sprintf("%d pending events: deliveries/s", o.events), "%.0f", "≥ 1500", func(f figures) float64 { return f.rate })
	add("their p99 after the first, ms", "%.0f", "≤ 2 × alone", func(f figures) float64 { return milliseconds(f.backlog) })
	add(fmt.Sprintf("%d events/s: p50 from event to arrival, ms", o.pace), "%.1f", "", func(f figures) float64 { return milliseconds(f.p50) })
	add("their p99, ms", "%.1f", "≤ 2 × alone", func(f figures) float64 { return milliseconds(f.p99) })
	add("events that did not arrive", "%.0f", "0", func(f figures) float64 { return float64(f.missing) })
	return t.String()
}
