//go:build unix

package secret_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/keygate/keygate/internal/secret"
)

// Guarantee: a named pipe in the place of the key file is an error at once, whether somebody writes to it or not.
func TestNamedPipeIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret.key")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := secret.LoadOrCreate(path); err == nil || !strings.Contains(err.Error(), "is not a regular file") {
		t.Errorf("got %v, want an error that says that it is not a regular file", err)
	}
}
