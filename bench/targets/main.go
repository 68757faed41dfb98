//go:build linux

// Command targets measures an upstream with three targets under load from 64 connections: what fails, and what the
// targets get, while one is killed, refuses, comes back, flaps, is slow, vanishes or is drained, and the CPU of a request
// beside one target. Each row has the bar of targets.md, section 10. Run it with make bench-targets.
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

// connections is the number of connections of the clients.
const connections = 64

// budgetWindow is the time that the budget of retries is for.
const budgetWindow = 10 * time.Second

type options struct {
	binary   string
	run      string
	rounds   int
	duration time.Duration
	kill     time.Duration
	refused  time.Duration
	dead     time.Duration
	flapping time.Duration
	slow     time.Duration
	drain    time.Duration
	write    string
}

// scenario measures one or more rows of the table, with servers of its own below dir.
type scenario = command.Scenario[func(ctx context.Context, o options, dir string) ([]row, error)]

// scenarios returns every scenario, in the order of the table.
func scenarios() []scenario {
	return []scenario{
		{Name: "kill", About: "one target is killed (SIGKILL), for requests of 1 route and of 600", Run: kill},
		{Name: "vanished", About: "packets to the host of one target are lost; needs root, for a network namespace", Run: vanished},
		{Name: "refused", About: "two targets refuse connections, 1,000 requests a second", Run: refused},
		{Name: "back", About: "a killed target is started again, without checks and with them; half a minute", Run: comesBack},
		{Name: "dead", About: "all targets are killed, 1,000 requests a second", Run: allDead},
		{Name: "flapping", About: "one target serves for a second and refuses for the next one, 1,000 requests a second", Run: flapping},
		{Name: "slow", About: "one target takes 100 times as long as the others", Run: slowTarget},
		{Name: "drain", About: "one target is drained while it has 500 streams, 1,000 requests a second", Run: drained},
		{Name: "cpu", About: "CPU of a request with three targets beside one, in alternating rounds", Run: cost},
	}
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == targetCommand {
		command.Main("bench-targets "+targetCommand, func(ctx context.Context) error { return serveTarget(ctx, os.Args[2:]) })
		return
	}
	var o options
	flag.StringVar(&o.binary, "keygate", "bin/keygate", "binary to measure")
	flag.StringVar(&o.run, "run", "", "names of the scenarios to run, separated by commas; empty runs all")
	flag.IntVar(&o.rounds, "rounds", 7, "number of rounds of runs for the CPU; the median of their differences is reported")
	flag.DurationVar(&o.duration, "duration", time.Second, "how long each run for the CPU lasts")
	flag.DurationVar(&o.kill, "kill", 12*time.Second, "how long requests go on after a target was killed or has vanished")
	flag.DurationVar(&o.refused, "refused", 20*time.Second, "how long failures are counted while two targets refuse")
	flag.DurationVar(&o.dead, "dead", 10*time.Second, "how long requests go on while all targets are dead, at least 10s")
	flag.DurationVar(&o.flapping, "flapping", time.Minute, "how long one target flaps")
	flag.DurationVar(&o.slow, "slow", 8*time.Second, "how long requests are sent with the slow target, and as long without it")
	flag.DurationVar(&o.drain, "drain", 5*time.Second, "drain_timeout of the gateways whose target is drained")
	flag.StringVar(&o.write, "write", "", "document to put the table into, such as docs/performance.md")
	flag.Usage = func() { command.PrintUsage(scenarios()) }
	flag.Parse()

	command.Main("bench-targets", func(ctx context.Context) error { return run(ctx, o, os.Stdout, os.Stderr) })
}

// run runs the scenarios, reports progress to w and writes the table to out.
func run(ctx context.Context, o options, out, w io.Writer) (err error) {
	chosen, err := command.Choose(scenarios(), o.run)
	if err != nil {
		return err
	}
	if o.rounds < 1 || min(o.duration, o.kill, o.refused, o.dead, o.flapping, o.slow, o.drain) < time.Second {
		return errors.New("-rounds must be at least 1, and every duration at least 1s")
	}
	if o.dead < budgetWindow {
		return fmt.Errorf("-dead must be at least %v, the time that the budget of retries is for", budgetWindow)
	}
	if o.binary, err = filepath.Abs(o.binary); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "keygate-bench-targets-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	load, start := command.LoadAverage(), time.Now()
	var rows []row
	for _, s := range chosen {
		fmt.Fprintf(w, "%s: %s\n", s.Name, s.About)
		own := filepath.Join(dir, s.Name)
		if err := os.Mkdir(own, 0o700); err != nil {
			return err
		}
		measured, err := s.Run(ctx, o, own)
		if err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
		rows = append(rows, measured...)
	}
	text := fmt.Sprintf("Three targets, %d connections, in %v. Load average before: %s.\n\n%s",
		connections, time.Since(start).Round(time.Second), load, report(rows))
	if _, err := io.WriteString(out, text); err != nil || o.write == "" {
		return err
	}
	return stats.ReplaceIn(o.write, "bench-targets", "\n"+text+"\n")
}
