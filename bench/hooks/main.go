//go:build linux

// Command hooks measures the delivery of events: how many a second reach one
// receiver, and how late, alone and while a second endpoint hangs on every
// delivery. Run it by make bench-hooks.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

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
	flag.StringVar(&o.binary, "keygate", "bin/keygate", "the binary to measure")
	flag.IntVar(&o.events, "events", 20_000, "events that wait when the server starts")
	flag.DurationVar(&o.live, "live", 10*time.Second, "how long keys are made after that, each with its event")
	flag.IntVar(&o.pace, "pace", 200, "keys a second")
	flag.IntVar(&o.rounds, "rounds", 3, "runs, of which the median counts")
	flag.StringVar(&o.write, "write", "", "document to put the table into, as in docs/performance.md")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o, os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-hooks:", err)
		os.Exit(1)
	}
}

// figures are of one run.
type figures struct {
	rate       float64       // deliveries a second of those that waited
	backlog    time.Duration // p99 from the first arrival of those that waited
	p50, p99   time.Duration // from an event to its arrival, of those made while the server runs
	incomplete int           // events that did not arrive
}

// run measures, tells progress to w and writes the table to out.
func run(ctx context.Context, o options, out, w io.Writer) (err error) {
	if o.rounds < 1 || o.events < 100 || o.pace < 1 {
		return errors.New("give at least one round, 100 events and one key a second")
	}
	if o.binary, err = filepath.Abs(o.binary); err != nil {
		return err
	}
	all := map[bool][]figures{}
	for range o.rounds {
		for _, hanging := range []bool{false, true} { // in turn, so that a noisy minute hits both
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

func report(o options, alone, beside []figures) string {
	t := stats.Table{Columns: []string{"Measure", "Alone", "Beside one that hangs", "Bar"}}
	middle := func(of []figures, read func(figures) float64) float64 {
		var values []float64
		for _, f := range of {
			values = append(values, read(f))
		}
		return stats.Median(values...)
	}
	add := func(name, format, bar string, read func(figures) float64) {
		t.Add(name, fmt.Sprintf(format, middle(alone, read)), fmt.Sprintf(format, middle(beside, read)), bar)
	}
	milliseconds := func(d time.Duration) float64 { return d.Seconds() * 1000 }
	add(fmt.Sprintf("%d that wait: deliveries a second", o.events), "%.0f", "≥ 1500", func(f figures) float64 { return f.rate })
	add("the same: p99 after the first, ms", "%.0f", "≤ 2 × alone", func(f figures) float64 { return milliseconds(f.backlog) })
	add(fmt.Sprintf("%d a second: p50 from event to arrival, ms", o.pace), "%.1f", "", func(f figures) float64 { return milliseconds(f.p50) })
	add("the same: p99, ms", "%.1f", "≤ 2 × alone", func(f figures) float64 { return milliseconds(f.p99) })
	add("events that did not arrive", "%.0f", "0", func(f figures) float64 { return float64(f.incomplete) })
	return t.String()
}
