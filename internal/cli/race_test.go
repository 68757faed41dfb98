//go:build race && unix

package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/keygate/keygate/internal/keygatetest/binarytest"
)

// concurrent are words of the commands that run as the test binary: servers, and commands that follow something or open
// the files or the database of a server.
const concurrent = "serve demo listen --follow doctor backup restore store --data-dir --database-url"

// scriptPrograms returns a directory with a program keygate, which runs the test binary for concurrent commands, and the
// program that is released for the others: most of the thousand commands of the scripts make one call of the API. They
// have no goroutines, and the race detector would take a quarter of a second of processor time for each.
func scriptPrograms(t *testing.T) string {
	t.Helper()
	checked, err := exec.LookPath("keygate") // the test binary
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	released := filepath.Join(dir, "released")
	if err := binarytest.Build(released); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\nfor word in %s; do\n\tcase \" $* \" in *\" $word \"*) exec %s \"$@\" ;; esac\ndone\nexec %s \"$@\"\n", concurrent, checked, released)
	programs := filepath.Join(dir, "programs")
	if err := os.Mkdir(programs, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(programs, "keygate"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return programs
}
