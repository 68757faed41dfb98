//go:build linux

// Command keys measures the whole process: its start and memory with a million
// keys, what a change of one key costs then, and pushes of large OpenAPI
// documents. Run it by make bench-keys.
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

	"github.com/keygate/keygate/bench/stats"
)

type options struct {
	binary string
	specs  string
	keys   int
	rounds int
	write  string
}

func main() {
	var o options
	flag.StringVar(&o.binary, "keygate", "bin/keygate", "the binary to measure")
	flag.StringVar(&o.specs, "specs", "../shared/data/specs", "directory of github.json.gz and openai.yaml.gz; empty leaves pushes out")
	flag.IntVar(&o.keys, "keys", 1_000_000, "keys in the store; 0 leaves them out")
	flag.IntVar(&o.rounds, "rounds", 3, "starts and pushes, of which the median counts")
	flag.StringVar(&o.write, "write", "", "document to put the table into, as in docs/performance.md")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o, os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-keys:", err)
		os.Exit(1)
	}
}

// run measures, tells progress to w and writes the table to out.
func run(ctx context.Context, o options, out, w io.Writer) (err error) {
	if o.rounds < 1 {
		return errors.New("give at least one round")
	}
	if o.binary, err = filepath.Abs(o.binary); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "keygate-bench-keys-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	var all []measure
	if o.keys > 0 {
		found, err := measureKeys(ctx, o, filepath.Join(dir, "keys"), w)
		if err != nil {
			return err
		}
		all = append(all, found...)
	}
	if o.specs != "" {
		found, err := measurePushes(ctx, o, dir, w)
		if err != nil {
			return err
		}
		all = append(all, found...)
	}
	text := report(all)
	if _, err := io.WriteString(out, text); err != nil {
		return err
	}
	if o.write == "" {
		return nil
	}
	return stats.ReplaceIn(o.write, "bench-keys", "\n"+text+"\n")
}

// measure is one figure and the bar that it must stay below.
type measure struct {
	name  string
	value float64
	bar   float64 // 0 if there is none
	unit  string
}

func report(all []measure) string {
	t := stats.Table{Columns: []string{"Measure", "Figure", "Bar", "Figure ÷ bar"}}
	number := func(v float64, unit string) string {
		digits := 0
		if v < 100 {
			digits = 2
		}
		return fmt.Sprintf("%.*f %s", digits, v, unit)
	}
	for _, m := range all {
		if m.bar == 0 {
			t.Add(m.name, number(m.value, m.unit))
			continue
		}
		t.Add(m.name, number(m.value, m.unit), fmt.Sprintf("%g %s", m.bar, m.unit), fmt.Sprintf("%.2f", m.value/m.bar))
	}
	return t.String()
}
