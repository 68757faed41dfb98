package e2e

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/keygatetest/porttest"
)

// Guarantee: a first start that is killed as soon as one of its files appears is completed by
// the next start, with an admin.key that works.
func TestKilledFirstStartIsCompleted(t *testing.T) {
	for _, file := range []string{"keygate.lock", "admin.key.pending", "secret.key", "keygate.db", "keygate.db-wal", "admin.key"} {
		t.Run(file, func(t *testing.T) {
			s := &server{
				t: t, dataDir: filepath.Join(t.TempDir(), "data"),
				gateway: porttest.Reserve(t), admin: porttest.Reserve(t), ops: porttest.Reserve(t),
			}
			first := exec.Command(binary, "serve", "--data-dir", s.dataDir, "--gateway-addr", s.gateway, "--admin-addr", s.admin, "--ops-addr", s.ops)
			if err := first.Start(); err != nil {
				t.Fatal(err)
			}
			appeared := awaittest.Holds(func() bool {
				_, err := os.Stat(filepath.Join(s.dataDir, file))
				_, endErr := os.Stat(filepath.Join(s.dataDir, "admin.key")) // the marker is gone soon after
				return err == nil || endErr == nil
			})
			_ = first.Process.Signal(syscall.SIGKILL)
			_ = first.Wait() // it was killed
			if !appeared {
				t.Fatalf("%s did not appear", file)
			}
			s.start()
			t.Cleanup(func() { s.end(syscall.SIGKILL) })
			key, err := os.ReadFile(filepath.Join(s.dataDir, "admin.key"))
			if err != nil {
				t.Fatal(err)
			}
			if a, err := s.try(strings.TrimSpace(string(key)), "GET", "/v1/account", nil); err != nil || a.status != http.StatusOK {
				t.Errorf("the key in admin.key got status %d and the error %v, want 200", a.status, err)
			}
		})
	}
}
