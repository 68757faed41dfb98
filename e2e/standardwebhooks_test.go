package e2e

import (
	"bufio"
	"encoding/base64"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/keygatetest/awaittest"
)

// Guarantee: a receiver that uses only a Standard Webhooks library, here the one for
// Node.js, verifies the deliveries of Keygate, both with a secret in the form of that
// standard and with any other secret.
func TestStandardWebhooksLibraryVerifiesDeliveries(t *testing.T) {
	s := startServer(t, webhookFlags()...)
	const own, other = "a key of thirty-two bytes, right", "sixteen bytes, é and more"
	for secret, standard := range map[string]string{
		"whsec_" + base64.StdEncoding.EncodeToString([]byte(own)): "",
		other: "whsec_" + base64.StdEncoding.EncodeToString([]byte(other)),
	} {
		known := standard
		if known == "" {
			known = secret
		}
		lines := nodeReceiver(t, known)
		address := strings.TrimPrefix(lines(), "listening ")
		created := s.call(http.StatusCreated, "POST", "/v1/webhooks", map[string]any{"url": address, "events": []string{"key.created"}, "signing_secret": secret, "allow_duplicate": true}).json(t)
		if got, _ := created["standard_webhooks_secret"].(string); got != standard {
			t.Errorf("got standard_webhooks_secret %q, want %q", got, standard)
		}
		id, _ := s.newKey(map[string]any{"name": "é <b> & \U0001f511 \"q\""})
		if line := lines(); !strings.HasPrefix(line, "verified key.created evt_") || !strings.Contains(line, id) {
			t.Errorf("got %q from the receiver, want a verified event of key %s", line, id)
		}
		s.call(http.StatusOK, "DELETE", "/v1/webhooks/"+created["webhook_id"].(string), nil)
	}
}

// nodeReceiver starts the receiver and returns a function that returns the next line
// of its output.
func nodeReceiver(t *testing.T, secret string) func() string {
	t.Helper()
	modules, err := filepath.Abs("../tools/node_modules")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", "testdata/receiver.cjs")
	cmd.Env = append(os.Environ(), "NODE_PATH="+modules, "SIGNING_SECRET="+secret)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("the test needs Node.js, which make deps installs: %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := make(chan string, 16)
	go func() {
		defer close(lines)
		for scan := bufio.NewScanner(out); scan.Scan(); {
			lines <- scan.Text()
		}
	}()
	return func() string {
		t.Helper()
		select {
		case line := <-lines:
			return line
		case <-time.After(awaittest.Timeout):
			t.Fatal("no output from the receiver: make deps installs the library that it needs")
			return ""
		}
	}
}
