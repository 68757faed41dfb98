//go:build linux

package main

import (
	"context"
	"debug/buildinfo"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/keygate/keygate/bench/stats"
)

// report formats the findings in Markdown.
func (f *findings) report(ctx context.Context, st *stage) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s; load average before the runs: %s.\n", time.Now().UTC().Format("2 January 2006"), machine(), f.loadavg)
	fmt.Fprintf(&b, "%s.\n", strings.Join(versions(ctx, st), ", "))
	fmt.Fprintf(&b, "Medians of %d rounds of %s, after a warm-up of %s; total time %s.\n\n", st.o.rounds, st.o.duration, st.o.warmup, f.took.Round(time.Second))
	b.WriteString(f.targetTable().String() + "\n")
	for _, s := range f.scenarios {
		fmt.Fprintf(&b, "**%s**%s\n\n%s\n", s.title, f.remark(st, s.name), f.table(&s))
	}
	return b.String()
}

// remark returns the figures that complete the title of a scenario.
func (f *findings) remark(st *stage, scenario string) string {
	switch scenario {
	case "rate30":
		return fmt.Sprintf(" (%.0f/s)", 0.3*st.o.peak)
	case "rate60":
		return fmt.Sprintf(" (%.0f/s)", 0.6*st.o.peak)
	case "idle", "idletls", "idleh2":
		return fmt.Sprintf(" (%d connections; MB for each %d)", st.idle, idleUnit)
	case "bulk":
		return fmt.Sprintf(" (%d bytes)", st.o.bytes)
	default:
		return ""
	}
}

func (f *findings) table(s *scenario) *stats.Table {
	t := &stats.Table{Columns: []string{"Proxy"}}
	for _, c := range s.columns {
		t.Columns = append(t.Columns, c.heading)
		if c.ratio {
			t.Columns = append(t.Columns, "÷ "+reference)
		}
	}
	base := f.runs[runKey(s.name, reference)]
	for _, p := range f.peers {
		cells := []string{p.name}
		own := f.runs[runKey(s.name, p.name)]
		for _, c := range s.columns {
			cells = append(cells, text(own.values(c.figure), c.digits))
			if c.ratio {
				cells = append(cells, text(own.ratios(c.figure, base), 2))
			}
		}
		t.Add(cells...)
	}
	return t
}

// target is a performance target of Keygate.
type target struct {
	what     string
	scenario string
	figure   figure
	to       string // the peer to compare with; "" for the figure itself
	bound    float64
	least    bool   // bound is a minimum, not a maximum
	beyond   string // the scenario whose figure is subtracted, or ""
}

func targets() []target {
	return []target{
		{"CPU for each request, ÷ nginx", "c64", cpu, reference, 0.95, false, ""},
		{"p99, ÷ nginx", "c64", p99, reference, 1, false, ""},
		{"CPU for each request, ÷ Caddy", "c64", cpu, "caddy", 0.25, false, ""},
		{"CPU for each request over TLS, ÷ nginx", "tls", cpu, reference, 0.85, false, ""},
		{"CPU, HTTP/2, 8 × 8, ÷ nginx", "h2", cpu, reference, 0.75, false, ""},
		{"CPU, HTTP/2, 64 × 1, ÷ nginx", "h2c64", cpu, reference, 0.9, false, ""},
		{"CPU, gRPC, 8 × 8, ÷ nginx", "h2grpc", cpu, reference, 0.25, false, ""},
		{"CPU, gRPC, 64 × 1, ÷ nginx", "h2grpc64", cpu, reference, 0.5, false, ""},
		{"system calls for each request, HTTP/2, 8 × 8", "h2", calls, "", 3, false, ""},
		{"system calls for each request, HTTP/2, 64 × 1", "h2c64", calls, "", 5, false, ""},
		{"memory that idle connections add, MB", "idle", growth, "", 80, false, ""},
		{"memory that they add over TLS with HTTP/2, beyond that, MB", "idleh2", growth, "", 80, false, "idle"},
		{"download, ÷ nginx", "bulk", download, reference, 0.8, true, ""},
		{"upload, ÷ nginx", "bulk", upload, reference, 0.8, true, ""},
		{"memory that a large body adds, MB", "bulk", growth, "", 16, false, ""},
	}
}

// targetTable compares Keygate with its targets.
func (f *findings) targetTable() *stats.Table {
	t := &stats.Table{Columns: []string{"Keygate", "Median", "Target", "Met", "Each round"}}
	for _, target := range targets() {
		own := f.runs[runKey(target.scenario, keygateName)]
		rounds := own.values(target.figure)
		if target.to != "" {
			rounds = own.ratios(target.figure, f.runs[runKey(target.scenario, target.to)])
		}
		if target.beyond != "" {
			rounds = own.differences(target.figure, f.runs[runKey(target.beyond, keygateName)])
		}
		if len(rounds) == 0 {
			continue
		}
		median, sign := stats.Median(rounds...), "≤"
		met := median <= target.bound
		if target.least {
			sign, met = "≥", median >= target.bound
		}
		var each []string
		for _, v := range rounds {
			each = append(each, text([]float64{v}, 2))
		}
		t.Add(target.what, text(rounds, 2), fmt.Sprintf("%s %g", sign, target.bound), map[bool]string{true: "yes", false: "no"}[met], strings.Join(each, " "))
	}
	return t
}

// machine describes the machine.
func machine() string {
	model := runtime.GOARCH
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if _, rest, found := strings.Cut(string(b), "model name\t: "); found {
			model, _, _ = strings.Cut(rest, "\n")
		}
	}
	kernel := "Linux"
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		kernel += " " + strings.TrimSpace(string(b))
	}
	return fmt.Sprintf("%d cores of %s, %s", runtime.NumCPU(), model, kernel)
}

// versions returns the names and versions of the programs.
func versions(ctx context.Context, st *stage) (all []string) {
	revision := ""
	if info, err := buildinfo.ReadFile(st.o.binary); err == nil {
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				revision += " " + s.Value[:min(len(s.Value), 12)]
			case s.Key == "vcs.modified" && s.Value == "true":
				revision += ", modified"
			}
		}
		revision += " (" + info.GoVersion + ")"
	}
	all = append(all, "Keygate"+revision)
	number := regexp.MustCompile(`\d+\.\d+\S*`)
	for _, c := range [][]string{{"nginx", "-v"}, {"haproxy", "-v"}, {"caddy", "version"}} {
		if out, err := tool(ctx, c[0], c[1:]...); err == nil {
			all = append(all, c[0]+" "+number.FindString(out))
		}
	}
	return all
}
