//go:build linux

// Command dashboard measures the dashboard in a real browser, in front of a large installation: how
// soon each list is painted, how much the layout shifts or scripts block, and what an open overview
// costs. Run it with make bench-dashboard.
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
	"github.com/keygate/keygate/bench/keygate"
	"github.com/keygate/keygate/bench/stats"
)

type options struct {
	binary  string
	web     string
	keys    int
	routes  int
	records int
	rounds  int
	stay    time.Duration
	write   string
}

func main() {
	var o options
	flag.StringVar(&o.binary, "keygate", "bin/keygate", "binary to measure")
	flag.StringVar(&o.web, "web", "web", "directory of the dashboard's source, with its packages installed")
	flag.IntVar(&o.keys, "keys", 100_000, "number of keys in the store")
	flag.IntVar(&o.routes, "routes", 1000, "number of routes of the gateway, from 1 to 5000")
	flag.IntVar(&o.records, "audit", 50_000_000, "number of records in the audit log")
	flag.IntVar(&o.rounds, "rounds", 10, "how often each screen is opened; the medians are reported")
	flag.DurationVar(&o.stay, "stay", 0, "how long the overview stays open, such as 1h; 0 omits it")
	flag.StringVar(&o.write, "write", "", "document to put the tables into, such as docs/performance.md")
	flag.Parse()

	command.Main("bench-dashboard", func(ctx context.Context) error { return run(ctx, o, os.Stdout, os.Stderr) })
}

// run measures, reports progress to w and writes the tables to out.
func run(ctx context.Context, o options, out, w io.Writer) (err error) {
	if o.rounds < 1 {
		return errors.New("-rounds must be at least 1")
	}
	if o.routes < 1 || o.routes > 5000 {
		return errors.New("-routes must be from 1 to 5000")
	}
	if o.binary, err = filepath.Abs(o.binary); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "keygate-bench-dashboard-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	start := time.Now()
	if err := fillStore(ctx, o, dir); err != nil {
		return fmt.Errorf("fill the store: %w", err)
	}
	s, err := keygate.Start(ctx, serverConfig(o, dir))
	if err != nil {
		return err
	}
	defer s.Stop()
	receiver, gatewayID, err := fillServer(ctx, o, s)
	if err != nil {
		return fmt.Errorf("fill the server: %w", err)
	}
	defer receiver.Close()
	fmt.Fprintf(w, "filled in %.0f s\n", time.Since(start).Seconds())

	text, err := measure(ctx, o, s, gatewayID, w)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(out, text); err != nil || o.write == "" {
		return err
	}
	return stats.ReplaceIn(o.write, "bench-dashboard", "\n"+text+"\n")
}
