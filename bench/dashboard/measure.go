//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/keygate/keygate/bench/keygate"
	"github.com/keygate/keygate/bench/stats"
)

// figure is a line of web/bench/measure.mjs.
type figure struct {
	Kind string `json:"kind"` // screen, search, stay
	Name string `json:"name"`

	Painted  float64 `json:"painted"`  // ms since the navigation
	Shift    float64 `json:"shift"`    // cumulative layout shift
	Blocking float64 `json:"blocking"` // ms
	Rows     int     `json:"rows"`

	Longest float64 `json:"longest"` // ms, of one task

	At        float64 `json:"at"` // seconds
	Heap      float64 `json:"heap"`
	Nodes     float64 `json:"nodes"`
	Listeners float64 `json:"listeners"`
}

// A screen of the dashboard and its path.
type screen struct {
	name, path string
	list       bool
	search     bool
}

func screens(gatewayID string) []screen {
	return []screen{
		{"Overview", "", false, false},
		{"Gateways", "gateways", true, false},
		{"Gateway", "gateways/" + gatewayID, false, false},
		{"Routes", "routes?gateway_id=" + gatewayID, true, true},
		{"Keys", "keys", true, true},
		{"Keys of an owner", "keys?owner=owner-7", true, false},
		{"Requests", "requests", true, false},
		{"Webhooks", "webhooks", true, false},
		{"Deliveries", "deliveries", true, false},
		{"Events", "events", true, false},
		{"Audit log", "audit", true, false},
		{"Audit log, one outcome", "audit?outcome=key_expired", true, false},
		{"Settings", "settings", false, false},
	}
}

// measure drives the browser and returns the tables.
func measure(ctx context.Context, o options, s *keygate.Server, gatewayID string, w io.Writer) (string, error) {
	all := screens(gatewayID)
	found := map[string][]figure{}
	var before, after time.Duration // CPU time of the server
	var sizes []figure
	err := browse(ctx, o, s, all, w, func(f figure) (err error) {
		if f.Kind != "stay" {
			found[f.Kind+f.Name] = append(found[f.Kind+f.Name], f)
			return nil
		}
		if len(sizes) == 0 {
			before, err = s.CPU()
		} else {
			after, err = s.CPU()
		}
		sizes = append(sizes, f)
		return err
	})
	if err != nil {
		return "", err
	}
	// After the page has loaded, when the work that the start left is done.
	idle, err := idleCost(ctx, o, s)
	if err != nil {
		return "", err
	}
	t := stats.Table{Columns: []string{"Screen", "Painted, ms (median)", "The slowest", "Layout shift", "Blocking, ms", "Longest task while typing, ms"}}
	for _, sc := range all {
		var painted, shift, blocking []float64
		for _, f := range found["screen"+sc.name] {
			if sc.list && f.Rows == 0 {
				return "", fmt.Errorf("the list %q has no rows", sc.name)
			}
			painted, shift, blocking = append(painted, f.Painted), append(shift, f.Shift), append(blocking, f.Blocking)
		}
		if len(painted) == 0 {
			return "", fmt.Errorf("no figures of %q", sc.name)
		}
		typing := ""
		if f := found["search"+sc.name]; len(f) > 0 {
			typing = fmt.Sprintf("%.0f", f[0].Longest)
			if f[0].Longest == 0 {
				typing = "under 50"
			}
		}
		t.Add(sc.name, fmt.Sprintf("%.0f", stats.Median(painted...)), fmt.Sprintf("%.0f", stats.Quantile(1, painted...)),
			fmt.Sprintf("%.3f", stats.Quantile(1, shift...)), fmt.Sprintf("%.0f", stats.Median(blocking...)), typing)
	}
	text := t.String()
	if len(sizes) > 1 {
		text += "\n" + stayed(o, idle, after-before, sizes)
	}
	return text, nil
}

// idleCost returns the share of a core that the server uses while nobody looks, measured over a
// tenth of the time that the overview stayed open.
func idleCost(ctx context.Context, o options, s *keygate.Server) (float64, error) {
	if o.stay == 0 {
		return 0, nil
	}
	from, err := s.CPU()
	if err != nil {
		return 0, err
	}
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(o.stay / 10):
	}
	to, err := s.CPU()
	return (to - from).Seconds() / (o.stay / 10).Seconds(), err
}

// stayed returns the table of an overview that stayed open.
func stayed(o options, idle float64, work time.Duration, sizes []figure) string {
	t := stats.Table{Columns: []string{"The overview, open for " + o.stay.String(), "At the start", "Half way", "At the end"}}
	row := func(name string, of func(figure) string) {
		t.Add(name, of(sizes[0]), of(sizes[len(sizes)/2]), of(sizes[len(sizes)-1]))
	}
	row("Heap of the page after a collection, MB", func(f figure) string { return fmt.Sprintf("%.2f", f.Heap/1e6) })
	row("Nodes of the document", func(f figure) string { return fmt.Sprintf("%.0f", f.Nodes) })
	row("Listeners of the page", func(f figure) string { return fmt.Sprintf("%.0f", f.Listeners) })
	open := work.Seconds() / o.stay.Seconds()
	t.Add("CPU of the server, % of a core: without a page, with it, difference", fmt.Sprintf("%.2f", 100*idle), fmt.Sprintf("%.2f", 100*open), fmt.Sprintf("%.2f", 100*(open-idle)))
	return t.String()
}

// browse runs the browser and calls each with every figure as it comes.
func browse(ctx context.Context, o options, s *keygate.Server, all []screen, w io.Writer, each func(figure) error) (err error) {
	task := map[string]any{"url": s.AdminURL() + "/", "key": s.AdminKey(), "rounds": o.rounds, "stay": o.stay.Seconds()}
	open, search := map[string]string{}, map[string]string{}
	for _, sc := range all {
		open[sc.name] = sc.path
		if sc.search {
			search[sc.name] = sc.path
		}
	}
	task["screens"], task["search"] = open, search
	input, err := json.Marshal(task)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "node", "bench/measure.mjs")
	cmd.Dir, cmd.Stdin, cmd.Stderr = o.web, bytes.NewReader(input), os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it ends the browser
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cmd.Wait()) }()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var f figure
		if err := json.Unmarshal(lines.Bytes(), &f); err != nil {
			return fmt.Errorf("read a line of the browser: %w", err)
		}
		fmt.Fprintf(w, "%s\n", lines.Bytes())
		if err := each(f); err != nil {
			return err
		}
	}
	return nil
}
