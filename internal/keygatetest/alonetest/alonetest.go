// Package alonetest runs a test in a process of its own: one that changes or counts what
// belongs to the whole process, such as a resource limit or the open files.
package alonetest

import (
	"os"
	"os/exec"
	"regexp"
	"testing"
)

// environment names the test that this process runs alone.
const environment = "KEYGATE_ALONETEST"

// Alone reports whether this process runs only this test. If not, Alone runs the test in a
// process of its own, for which it returns true, and fails this one with it.
func Alone(t testing.TB) bool {
	t.Helper()
	if Is(t) {
		return true
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run=^"+regexp.QuoteMeta(t.Name())+"$")
	cmd.Env = append(os.Environ(), environment+"="+t.Name())
	if out, err := cmd.CombinedOutput(); err != nil { // a pipe, which has no size limit
		t.Errorf("the test in a process of its own: %v\n%s", err, out)
	}
	return false
}

// Is reports whether this process runs only this test.
func Is(t testing.TB) bool { return os.Getenv(environment) == t.Name() }
