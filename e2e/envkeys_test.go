package e2e

import (
	"crypto/rand"
	"encoding/base64"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/keygatetest/porttest"
)

// envKeys are the two keys that the environment may hold.
type envKeys struct{ secret, admin string }

func newEnvKeys(t *testing.T) envKeys {
	t.Helper()
	random := make([]byte, 32)
	if _, err := rand.Read(random); err != nil {
		t.Fatal(err)
	}
	admin, err := apikey.Generate(apikey.AccountLevel, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return envKeys{base64.StdEncoding.EncodeToString(random), admin}
}

func (k envKeys) variables() []string {
	return []string{"KEYGATE_SECRET_KEY=" + k.secret, "KEYGATE_ADMIN_KEY=" + k.admin}
}

// refuses runs a start with the environment and returns its output. It must fail with status 1.
func (s *server) refuses(env []string) string {
	s.t.Helper()
	cmd := exec.Command(binary, "serve", "--data-dir", s.dataDir, "--gateway-addr", s.gateway, "--admin-addr", s.admin, "--ops-addr", s.ops)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err == nil || cmd.ProcessState.ExitCode() != 1 {
		s.t.Fatalf("the start ended with %v, want status 1:\n%s", err, out)
	}
	return string(out)
}

// Guarantee: with KEYGATE_SECRET_KEY and KEYGATE_ADMIN_KEY no key is in a file or in the output, the
// first key works, secrets survive a restart, and later starts need the same secret key and no
// first key (contract, section 1).
func TestKeysFromTheEnvironment(t *testing.T) {
	keys, other := newEnvKeys(t), newEnvKeys(t)
	s := &server{
		t: t, dataDir: filepath.Join(t.TempDir(), "data"), env: keys.variables(), key: keys.admin,
		gateway: porttest.Reserve(t), admin: porttest.Reserve(t), ops: porttest.Reserve(t),
	}
	s.start()
	t.Cleanup(func() { s.end(syscall.SIGKILL) })
	gateway := s.newGateway("http://127.0.0.1:1", map[string]any{"upstream_headers": map[string]string{"X-Token": "t0ken"}})
	output := s.output.String()
	s.env = []string{"KEYGATE_SECRET_KEY=" + keys.secret, "KEYGATE_ADMIN_KEY=" + other.admin} // ignored by now
	s.restart(syscall.SIGTERM)
	s.call(http.StatusOK, "GET", "/v1/gateways/"+gateway, nil)
	if a, err := s.try(other.admin, "GET", "/v1/account", nil); err != nil || a.status != http.StatusUnauthorized {
		t.Errorf("another KEYGATE_ADMIN_KEY at a later start got status %d (%v), want 401", a.status, err)
	}
	settings := s.call(http.StatusOK, "GET", "/v1/settings", nil)
	output += s.output.String() + string(settings.body)
	s.end(syscall.SIGTERM)
	for _, name := range []string{"admin.key", "secret.key"} {
		if _, err := os.Stat(filepath.Join(s.dataDir, name)); err == nil {
			t.Errorf("%s exists, want no file with a key", name)
		}
	}
	for _, one := range []envKeys{keys, other} {
		if strings.Contains(output, one.secret[:12]) || strings.Contains(output, one.admin[:12]) {
			t.Errorf("a key is in the output:\n%s", output)
		}
	}
	t.Run("another secret key is refused", func(t *testing.T) {
		out := s.refuses([]string{"KEYGATE_SECRET_KEY=" + other.secret})
		if !strings.Contains(out, "not the one that this installation uses") || strings.Contains(out, other.secret) {
			t.Errorf("got\n%s\nwant that it is another key, without the key", out)
		}
	})
	t.Run("no secret key is refused", func(t *testing.T) {
		if out := s.refuses(nil); !strings.Contains(out, "KEYGATE_SECRET_KEY") {
			t.Errorf("got\n%s\nwant KEYGATE_SECRET_KEY in it", out)
		}
	})
	t.Run("a missing database is refused", func(t *testing.T) {
		for _, name := range []string{"keygate.db", "keygate.db-wal", "keygate.db-shm"} {
			if err := os.Rename(filepath.Join(s.dataDir, name), filepath.Join(t.TempDir(), name)); err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
		}
		if out := s.refuses(keys.variables()); !strings.Contains(out, "not a first start") {
			t.Errorf("got\n%s\nwant that this is not a first start", out)
		}
	})
}
