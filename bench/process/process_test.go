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

// start runs a shell script that makes the file ready when it is.
func start(t *testing.T, script string) *process.Process {
	t.Helper()
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	p, err := process.Start(process.Config{Path: shell, Args: []string{"-c", script}, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := p.Await(ctx, func(context.Context) error {
		_, err := os.Stat(filepath.Join(dir, "ready"))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return p
}

// Guarantee: the figures of a program are those of its children, too.
func TestTree(t *testing.T) {
	stay := `mkfifo wait; touch ready; read line < wait`
	busy := `i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; ` + stay
	alone, parent := start(t, stay), start(t, `trap 'kill $child' TERM; (`+busy+`) & child=$!; wait`)
	idle, err := alone.CPU()
	if err != nil {
		t.Fatal(err)
	}
	used, err := parent.CPU()
	if err != nil {
		t.Fatal(err)
	}
	if used < 10*time.Millisecond || used < 2*idle {
		t.Errorf("the program whose child counts used %v, the one that waits %v", used, idle)
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
		t.Errorf("two processes have %d bytes, one %d", two, one)
	}
	if peak, err := parent.PeakMemory(); err != nil || peak < two {
		t.Errorf("peak %d, %v; now %d", peak, err, two)
	}
}

// Guarantee: a program that ends before it is ready gives its exit status and
// what it wrote.
func TestEndsEarly(t *testing.T) {
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
		t.Errorf("error %v", err)
	}
	p.Stop()
}
