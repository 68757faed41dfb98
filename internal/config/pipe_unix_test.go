//go:build unix

package config_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/pflag"

	"github.com/keygate/keygate/internal/config"
)

// Guarantee: a named pipe in the place of the configuration file is an error at once.
func TestNamedPipeIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keygate.yaml")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	loader := config.Register(flags)
	if err := flags.Parse([]string{"--config", path}); err != nil {
		t.Fatal(err)
	}
	_, err := loader.Load(func(string) (string, bool) { return "", false })
	if err == nil || !strings.Contains(err.Error(), "is not a regular file") {
		t.Errorf("got %v, want an error that says that it is not a regular file", err)
	}
}
