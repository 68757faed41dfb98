//go:build linux

// Command cluster measures several nodes: the CPU of a request on a node that shares PostgreSQL and Redis
// with others, beside the same binary alone, its round trips to the limit store, and how long the
// revocation of a key takes with three nodes under load. Run it with make bench-cluster.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/keygate/keygate/bench/command"
	"github.com/keygate/keygate/bench/stats"
)

type options struct {
	binary      string
	rounds      int
	duration    time.Duration
	revocations int
	stops       int
	leaseTTL    time.Duration
	slow        time.Duration
	profile     string
	write       string
}

func main() {
	var o options
	flag.StringVar(&o.binary, "keygate", "bin/keygate", "binary to measure")
	flag.IntVar(&o.rounds, "rounds", 21, "number of rounds for the CPU; the median of their ratios is reported")
	flag.DurationVar(&o.duration, "duration", time.Second, "how long each run of a round lasts")
	flag.IntVar(&o.revocations, "revocations", 300, "number of keys to revoke, one after another")
	flag.IntVar(&o.stops, "stops", 3, "how many times a node is stopped (SIGSTOP)")
	flag.DurationVar(&o.leaseTTL, "lease-ttl", 10*time.Second, "--lease-ttl of the nodes")
	flag.DurationVar(&o.slow, "slow", 200*time.Millisecond, "round trip of one node to the database, for the changes a second of the others")
	flag.StringVar(&o.profile, "profile", "", "file for a CPU profile of the node under load, of 5 s after the rounds")
	flag.StringVar(&o.write, "write", "", "document to put the tables into, such as docs/performance.md")
	flag.Parse()

	command.Main("bench-cluster", func(ctx context.Context) error { return run(ctx, o, os.Stdout, os.Stderr) })
}

// figures are what a run measured.
type figures struct {
	load  string // average before the run
	took  time.Duration
	costs costs
	quiet []time.Duration // revocations without other load
	busy  []time.Duration // revocations under load
	cut   []time.Duration // for each time that a node was stopped, the longest revocation
	slow  slowFigures
}

// run measures, reports progress to w and writes the tables to out.
func run(ctx context.Context, o options, out, w io.Writer) (err error) {
	if o.rounds < 1 || o.revocations < 1 || o.stops < 1 || o.duration < time.Second {
		return errors.New("-rounds, -revocations and -stops must be at least 1, and -duration at least 1s")
	}
	if o.binary, err = filepath.Abs(o.binary); err != nil {
		return err
	}
	f := figures{load: command.LoadAverage()}
	start := time.Now()
	st, err := openStage(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	if err := st.measureCosts(ctx, &f.costs, w); err != nil {
		return err
	}
	if err := st.measureRevocations(ctx, &f, w); err != nil {
		return err
	}
	if err := st.measureSlow(ctx, &f.slow, w); err != nil {
		return err
	}
	f.took = time.Since(start)
	text := f.report(o)
	if _, err := io.WriteString(out, text); err != nil || o.write == "" {
		return err
	}
	return stats.ReplaceIn(o.write, "bench-cluster", "\n"+text+"\n")
}

func (f *figures) report(o options) string {
	t := stats.Table{Columns: []string{"Measure", "Figure", "Target", "Met"}}
	add := func(name, format string, value, most float64) {
		t.Add(name, fmt.Sprintf(format, value), "≤ "+fmt.Sprintf(format, most), map[bool]string{true: "yes", false: "no"}[value <= most])
	}
	milliseconds := func(d time.Duration) float64 { return d.Seconds() * 1e3 }
	ratio := stats.Median(f.costs.ratios...)
	add("CPU for each request on a node, ÷ alone", "%.2f", ratio, 1.08)
	add("round trips/s to the limit store for a busy bucket, far below its limit", "%.1f", f.costs.below.perBucket, 50)
	add("the same, of a key that is over its limit", "%.1f", f.costs.over.perBucket, 50)
	t.Add("revocation without other load: p50, ms", fmt.Sprintf("%.1f", milliseconds(stats.Quantile(0.5, f.quiet...))))
	t.Add("its p99, ms", fmt.Sprintf("%.1f", milliseconds(stats.Quantile(0.99, f.quiet...))))
	t.Add("revocation under full load: p50, ms", fmt.Sprintf("%.1f", milliseconds(stats.Quantile(0.5, f.busy...))))
	add("its p99, ms", "%.1f", milliseconds(stats.Quantile(0.99, f.busy...)), 50)
	add("longest revocation after a node was stopped, ms", "%.0f", milliseconds(stats.Quantile(1, f.cut...)), milliseconds(o.leaseTTL)+500)
	t.Add(fmt.Sprintf("changes/s of two nodes, the third %v from the database", o.slow), fmt.Sprintf("%.0f", f.slow.alone))
	t.Add(fmt.Sprintf("the same, while the third makes %.1f/s", f.slow.slow), fmt.Sprintf("%.0f", f.slow.beside))
	var b strings.Builder
	fmt.Fprintf(&b, "%d rounds of %v, %d revocations, %d stops of a node, in %v. Load average before: %s.\n\n",
		o.rounds, o.duration, o.revocations, o.stops, f.took.Round(time.Second), f.load)
	b.WriteString(t.String())
	fmt.Fprintf(&b, "\nThe ratios of the rounds: %.2f. CPU µs for each request: alone %.1f, on a node %.1f (medians); "+
		"requests/s: %.0f and %.0f. The limit store got %.0f questions a second for %d buckets, and %.0f for the key over its limit.\n",
		f.costs.ratios, stats.Median(f.costs.alone...), stats.Median(f.costs.node...), stats.Median(f.costs.aloneRate...), stats.Median(f.costs.nodeRate...),
		f.costs.below.all, busyBuckets, f.costs.over.all)
	return b.String()
}
