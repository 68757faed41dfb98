//go:build linux

// Command peers compares Keygate with nginx, HAProxy and Caddy on the same work. Run it
// with make bench-peers; docs/performance.md describes the method.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/keygate/keygate/bench/command"
	"github.com/keygate/keygate/bench/stats"
)

type options struct {
	binary    string
	peers     []string
	scenarios []string
	duration  time.Duration
	warmup    time.Duration
	rounds    int
	peak      float64
	bytes     int64
	idle      int
	install   bool
	write     string
}

func parse() (o options, err error) {
	flag.StringVar(&o.binary, "keygate", "bin/keygate", "binary to measure")
	peers := flag.String("peers", strings.Join(peerNames(), ","), "proxies to run; nginx always runs, since the others are compared with it")
	scenarios := flag.String("scenarios", strings.Join(scenarioNames(), ","), "scenarios to run")
	flag.DurationVar(&o.duration, "duration", 4*time.Second, "duration of each run, after the warm-up")
	flag.DurationVar(&o.warmup, "warmup", time.Second, "duration of the load before each run, which is not measured")
	flag.IntVar(&o.rounds, "rounds", 3, "number of runs of each peer in each scenario; the medians are reported")
	flag.Float64Var(&o.peak, "peak", 0, "requests per second that the fixed rates are fractions of; 0 measures the peak of nginx first")
	flag.Int64Var(&o.bytes, "bytes", 1<<30, "size of the large body in each direction")
	flag.IntVar(&o.idle, "idle", 10_000, "number of idle connections")
	flag.BoolVar(&o.install, "install", true, "install missing programs with apt-get")
	flag.StringVar(&o.write, "write", "", "document to put the tables into, such as docs/performance.md")
	flag.Parse()
	if o.peers, err = choose(*peers, peerNames()); err != nil {
		return o, err
	}
	if o.scenarios, err = choose(*scenarios, scenarioNames()); err != nil {
		return o, err
	}
	if flag.NArg() > 0 || o.rounds < 1 || o.duration < time.Second || o.warmup <= 0 || o.bytes < 1 || o.idle < 1 {
		return o, errors.New("-rounds, -bytes and -idle must be at least 1, -duration at least 1s and -warmup positive, and there must be no arguments")
	}
	if !slices.Contains(o.peers, reference) {
		o.peers = append(o.peers, reference)
	}
	o.binary, err = filepath.Abs(o.binary)
	return o, err
}

// choose parses a list of names separated by commas. It returns them in the order of
// all.
func choose(list string, all []string) ([]string, error) {
	given := strings.Split(list, ",")
	for _, name := range given {
		if !slices.Contains(all, name) {
			return nil, fmt.Errorf("%q is not one of %s", name, strings.Join(all, ", "))
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(name string) bool { return !slices.Contains(given, name) }), nil
}

func main() {
	command.Main("bench-peers", func(ctx context.Context) error {
		o, err := parse()
		if err != nil {
			return err
		}
		return run(ctx, &o, os.Stdout, os.Stderr)
	})
}

// run measures, reports progress to w and writes the tables to out.
func run(ctx context.Context, o *options, out, w io.Writer) (err error) {
	if err := needPrograms(ctx, o, w); err != nil {
		return err
	}
	st, err := openStage(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	if st.idle < o.idle {
		fmt.Fprintf(w, "the limit of %d open files allows %d idle connections, not %d; raise it with ulimit -n, or lower -idle\n", st.files, st.idle, o.idle)
	}

	found, err := st.measure(ctx, w)
	if err != nil {
		return err
	}
	text := found.report(ctx, st)
	if _, err := io.WriteString(out, text); err != nil {
		return err
	}
	if o.write != "" {
		if err := stats.ReplaceIn(o.write, "bench-peers", "\n"+text); err != nil {
			return err
		}
	}
	return found.failed()
}
