// Package binarytest builds the keygate binary for tests that run it as a process.
package binarytest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	// Imported so that a change of the binary's code invalidates cached test results.
	_ "github.com/keygate/keygate/internal/cli"
	"github.com/keygate/keygate/internal/keygatetest/proctest"
)

// Run builds keygate in a temporary directory, stores its path in binary, runs the tests of m and returns
// the status with which their TestMain must exit. If keygate cannot be built, it says why and returns 1.
func Run(m *testing.M, binary *string) int {
	proctest.RestoreSignals()
	dir, err := os.MkdirTemp("", "keygate-binary-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	*binary = filepath.Join(dir, "keygate")
	if err := Build(*binary); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// Build builds keygate as the file binary, as it is released: static, without tables for debuggers and without
// the race detector.
func Build(binary string) error {
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-w", "-o", binary, "github.com/keygate/keygate/cmd/keygate")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build keygate: %w\n%s", err, out)
	}
	return nil
}
