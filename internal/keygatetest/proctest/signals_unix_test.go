//go:build unix

package proctest_test

import (
	"os/exec"
	"os/signal"
	"syscall"
	"testing"

	"github.com/keygate/keygate/internal/keygatetest/proctest"
)

// Guarantee: a process that a test starts is ended by a signal, although the tests were started with that
// signal ignored, and the tests go on ignoring it.
func TestChildrenDoNotInheritIgnoredSignals(t *testing.T) {
	signals := map[string]syscall.Signal{"HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "QUIT": syscall.SIGQUIT}
	for _, sig := range signals {
		signal.Ignore(sig)
		t.Cleanup(func() { signal.Reset(sig) })
	}
	proctest.RestoreSignals()
	for name, sig := range signals {
		if err := syscall.Kill(syscall.Getpid(), sig); err != nil {
			t.Fatal(err)
		}
		err := exec.Command("sh", "-c", "kill -"+name+" $$; echo survived").Run()
		exit, ok := err.(*exec.ExitError) //nolint:errorlint // Run wraps nothing
		if !ok || exit.Sys().(syscall.WaitStatus).Signal() != sig {
			t.Errorf("a process that receives %s ended with %v, want by the signal", name, err)
		}
	}
}
