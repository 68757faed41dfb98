// Package needtest is for tests that need something which a machine may lack: a program or a document.
package needtest

import (
	"os"
	"os/exec"
)

// Test is the part of testing.TB that this package needs.
type Test interface {
	Helper()
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
}

// Missing ends a test that cannot run on this machine. In CI, where the environment variable CI is "true",
// nothing may be missing, so there it fails. Elsewhere it is skipped. The message says what is missing, and
// what to do.
func Missing(t Test, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// Program ends the test as Missing does unless there is a program of this name.
// debianPackage is the Debian package that has it.
func Program(t Test, name, debianPackage string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		Missing(t, "%s is not installed (Debian: apt-get install %s)", name, debianPackage)
	}
}
