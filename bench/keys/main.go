//go:build linux

// Command keys measures the whole process: start-up and memory with a million keys,
// the cost of changing one key, and pushes of large OpenAPI documents. Run it with
// make bench-keys.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/keygate/keygate/bench/command"
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
	flag.StringVar(&o.binary, "keygate", "bin/keygate", "binary to measure")
	flag.StringVar(&o.specs, "specs", "", "directory with github.json.gz and openai.yaml.gz; empty omits pushes")
	flag.IntVar(&o.keys, "keys", 1_000_000, "number of keys in the store; 0 omits them")
	flag.IntVar(&o.rounds, "rounds", 3, "number of starts and pushes; the medians are reported")
	flag.StringVar(&o.write, "write", "", "document to put the table into, such as docs/performance.md")
	flag.Parse()

	command.Main("bench-keys", func(ctx context.Context) error { return run(ctx, o, os.Stdout, os.Stderr) })
}

// run measures, reports progress to w and writes the table to out.
func run(ctx context.Context, o options, out, w io.Writer) (err error) {
	if o.rounds < 1 {
		return errors.New("-rounds must be at least 1")
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

// measure is one figure with the target that it must not exceed.
type measure struct {
	name   string
	value  float64
	target float64 // 0 if there is none
	unit   string
}

func report(all []measure) string {
	t := stats.Table{Columns: []string{"Measure", "Figure", "Target", "Figure ÷ target"}}
	number := func(v float64, unit string) string {
		digits := 0
		if v < 100 {
			digits = 2
		}
		return fmt.Sprintf("%.*f %s", digits, v, unit)
	}
	for _, m := range all {
		if m.target == 0 {
			t.Add(m.name, number(m.value, m.unit))
			continue
		}
		t.Add(m.name, number(m.value, m.unit), fmt.Sprintf("%g %s", m.target, m.unit), fmt.Sprintf("%.2f", m.value/m.target))
	}
	return t.String()
}
