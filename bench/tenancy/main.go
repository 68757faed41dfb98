//go:build linux

// Command tenancy measures what one account can do to another: each scenario runs the built server,
// once with the other accounts at rest and once with them at work, and measures the same calls of
// one account. Run it with make bench-tenancy.
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
	binary   string
	run      string
	duration time.Duration // of each measurement
	write    string
}

// scenario is one kind of work that must not hurt other accounts. It measures with servers of its own below dir, reports progress
// to w, and returns the table in Markdown, which stands in the document as bench-tenancy-NAME. A broken guarantee is an error.
type scenario = command.Scenario[func(ctx context.Context, o options, dir string, w io.Writer) (table string, err error)]

// scenarios returns every scenario.
func scenarios() []scenario {
	return []scenario{
		{Name: "pushes", About: "accounts push 99,000 operations without pause; the operator revokes keys", Run: pushes},
		{Name: "hooks", About: "10,000 endpoints of 10 accounts hang on every delivery; the endpoint of another account works", Run: hooks},
		{Name: "documents", About: "an account pushes 20 documents of 12 MB at once, all of them wrong", Run: documents},
		{Name: "searches", About: "four clients of an account with 1,000,000 keys search them without pause; others list keys and call a gateway", Run: searches},
		{Name: "repositories", About: "1,000 gateways follow a repository in which nothing changes; then commits with push hooks", Run: repositories},
		{Name: "tokens", About: "10,000 requests a second with tokens that nobody has signed; others call with a key and a token", Run: tokens},
		{Name: "scrape", About: "five accounts have 100,000 routes in use; /metrics is read", Run: scrapeRoutes},
	}
}

func main() {
	var o options
	flag.StringVar(&o.binary, "keygate", "bin/keygate", "binary to measure")
	flag.StringVar(&o.run, "run", "", "names of the scenarios to run, separated by commas; empty runs all")
	flag.DurationVar(&o.duration, "duration", 30*time.Second, "duration of each measurement")
	flag.StringVar(&o.write, "write", "", "document to put the tables into, such as docs/performance.md")
	flag.Usage = func() { command.PrintUsage(scenarios()) }
	flag.Parse()

	command.Main("bench-tenancy", func(ctx context.Context) error { return run(ctx, o, os.Stdout, os.Stderr) })
}

// run runs the scenarios, reports progress to w and writes the tables to out.
func run(ctx context.Context, o options, out, w io.Writer) (err error) {
	chosen, err := command.Choose(scenarios(), o.run)
	if err != nil {
		return err
	}
	if o.duration < time.Second {
		return errors.New("-duration must be at least 1s")
	}
	if o.binary, err = filepath.Abs(o.binary); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "keygate-bench-tenancy-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	for _, s := range chosen {
		own := filepath.Join(dir, s.Name)
		if err := os.Mkdir(own, 0o700); err != nil {
			return err
		}
		table, err := s.Run(ctx, o, own, w)
		if err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
		if _, err := fmt.Fprintf(out, "%s\n%s\n", s.Name, table); err != nil {
			return err
		}
		if o.write == "" {
			continue
		}
		if err := stats.ReplaceIn(o.write, "bench-tenancy-"+s.Name, "\n"+table+"\n"); err != nil {
			return err
		}
	}
	return nil
}

// milliseconds formats a duration for a table.
func milliseconds(d time.Duration) string { return fmt.Sprintf("%.1f", d.Seconds()*1000) }
