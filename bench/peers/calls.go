//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// attachTime is how long perf gets to attach to the processes before the load begins.
const attachTime = 300 * time.Millisecond

// countCalls returns how many system calls the proxy makes for each request. It puts the proxy under
// load for as long as the warm-up. The result is NaN if perf cannot count system calls, for which
// it needs the package linux-perf and root.
func countCalls(ctx context.Context, st *stage, p *proxy, l load) (float64, error) {
	perf, err := find("perf")
	if err != nil {
		return math.NaN(), nil
	}
	ids, err := p.IDs()
	if err != nil {
		return 0, err
	}
	out := filepath.Join(st.dir, "perf.csv")
	c := exec.CommandContext(ctx, perf, "stat", "-x,", "-o", out, "-e", "raw_syscalls:sys_enter", "-p", join(ids)) //nolint:gosec // as above
	if err := c.Start(); err != nil {
		return 0, err
	}
	select {
	case <-time.After(attachTime):
	case <-ctx.Done():
	}
	seen, err := l(ctx, st, p, st.o.warmup)
	_ = c.Process.Signal(os.Interrupt) // it may have failed already
	_ = c.Wait()
	if err != nil {
		return 0, err
	}
	text, err := os.ReadFile(out)
	if err != nil {
		return math.NaN(), nil //nolint:nilerr // perf has failed: nothing was counted
	}
	n, err := readPerf(string(text))
	if err != nil {
		return math.NaN(), nil //nolint:nilerr // as above
	}
	return n / float64(seen.requests), nil
}

var errPerf = errors.New("perf counted nothing")

// readPerf returns the number in the output of perf stat -x,.
func readPerf(out string) (float64, error) {
	for line := range strings.Lines(out) {
		if fields := strings.Split(line, ","); len(fields) > 2 && fields[2] == "raw_syscalls:sys_enter" {
			n, err := strconv.ParseFloat(fields[0], 64)
			if err != nil {
				return 0, fmt.Errorf("%w: %q", errPerf, fields[0])
			}
			return n, nil
		}
	}
	return 0, errPerf
}

func join(ids []int) string {
	var b bytes.Buffer
	for i, id := range ids {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(id))
	}
	return b.String()
}
