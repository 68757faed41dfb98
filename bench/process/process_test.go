//go:build linux

package process_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/bench/process"
)

// start runs a shell script in dir and waits until it has created the file "ready".
func start(t *testing.T, dir, script string) *process.Process {
	t.Helper()
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	p, err := process.Start(process.Config{Path: shell, Args: []string{"-c", script}, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := p.Await(ctx, func(context.Context) error {
		_, err := os.Stat(filepath.Join(dir, "ready"))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return p
}

// childTime returns the sum of the user and system times that the shell builtin times
// wrote to file, such as 0m0.250s 0m0.010s.
func childTime(t *testing.T, file string) (sum time.Duration) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	own, _, _ := strings.Cut(string(content), "\n")
	for _, one := range strings.Fields(own) {
		d, err := time.ParseDuration(one)
		if err != nil {
			t.Fatal(err)
		}
		sum += d
	}
	return sum
}

// Guarantee: the figures of a program include its child processes.
func TestFiguresIncludeChildren(t *testing.T) {
	stay := `mkfifo wait; : > ready; read line < wait` // the shell itself creates ready, so that no other process runs
	busy := `i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; times > used; ` + stay
	dir := t.TempDir()
	alone, parent := start(t, t.TempDir(), stay), start(t, dir, `trap 'kill $child' TERM; (`+busy+`) & child=$!; wait`)
	used, err := parent.CPU()
	if err != nil {
		t.Fatal(err)
	}
	if child := childTime(t, filepath.Join(dir, "used")); used < child || child < 10*time.Millisecond {
		t.Errorf("the program used %v, want at least its child's %v", used, child)
	}
	one, err := alone.Memory()
	if err != nil {
		t.Fatal(err)
	}
	two, err := parent.Memory()
	if err != nil {
		t.Fatal(err)
	}
	if one == 0 || two < one {
		t.Errorf("two processes have %d bytes, want at least those of one, %d", two, one)
	}
	if peak, err := parent.PeakMemory(); err != nil || peak < two {
		t.Errorf("peak %d, error %v; want at least the current %d", peak, err, two)
	}
}

// Guarantee: if a program exits before it is ready, the error has its exit status and
// its output.
func TestEarlyExitIsReported(t *testing.T) {
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	p, err := process.Start(process.Config{Path: shell, Args: []string{"-c", "echo no such thing; exit 3"}, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	err = p.Await(t.Context(), func(context.Context) error { return errors.New("not yet") })
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "no such thing") {
		t.Errorf("got error %v, want the exit status 3 and the output", err)
	}
	p.Stop()
}
