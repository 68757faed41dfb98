// Package proctest is about the process of a test: its processor time, descriptors, limits and signals, and tests
// that need a process of their own for what they count or change.
package proctest

import (
	"os"
	"os/exec"
	"regexp"
	"testing"
)

// environment names the test that this process runs alone.
const environment = "KEYGATE_ALONE"

// Alone reports whether this process runs only this test. If not, Alone runs the test in a
// process of its own, for which it returns true, and fails this one with it.
func Alone(t testing.TB) bool {
	t.Helper()
	if IsAlone(t) {
		return true
	}
	if out, err := aloneCommand(t).CombinedOutput(); err != nil { // a pipe, which has no size limit
		t.Errorf("the test in a process of its own: %v\n%s", err, out)
	}
	return false
}

// aloneCommand is the process that runs only this test.
func aloneCommand(t testing.TB) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run=^"+regexp.QuoteMeta(t.Name())+"$")
	cmd.Env = append(os.Environ(), environment+"="+t.Name())
	return cmd
}

// IsAlone reports whether this process runs only this test.
func IsAlone(t testing.TB) bool { return os.Getenv(environment) == t.Name() }
