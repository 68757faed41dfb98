//go:build unix

package server_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/keygate/keygate/internal/server"
)

// Guarantee: a start that finds a named pipe in the place of a file of the first start ends at once with an error, and
// does not wait for somebody to write to it.
func TestNamedPipesAreRefused(t *testing.T) {
	dir := t.TempDir()
	s, err := server.Start(t.Context(), server.Config{Settings: settings(t, dir)})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"admin.key", "secret.key", "secret.fingerprint"} {
		path := filepath.Join(dir, name)
		kept := filepath.Join(t.TempDir(), name)
		if err := os.Rename(path, kept); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		if got := startErrorWith(t, settings(t, dir)); !strings.Contains(got, path) || !strings.Contains(got, "not a regular file") {
			t.Errorf("%s: got %q, want an error that names it", name, got)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(kept, path); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
}
