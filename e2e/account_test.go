package e2e

import (
	"net/http"
	"os/exec"
	"regexp"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/keygatetest/awaittest"
)

var keyForm = regexp.MustCompile(`kga_[0-9A-Za-z]{36}`)

// offline runs keygate with the given arguments and returns the account-level
// key that it prints.
func (s *server) offline(args ...string) string {
	s.t.Helper()
	out, err := exec.Command(binary, append(args, "--data-dir", s.dataDir)...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("keygate %v: %v\n%s", args, err, out)
	}
	key := keyForm.FindString(string(out))
	if key == "" {
		s.t.Fatalf("keygate %v printed no key:\n%s", args, out)
	}
	return key
}

// Guarantee: a change by an offline command beside a running server takes effect
// within a second, and accounts see nothing of each other.
func TestAccountsAreIsolated(t *testing.T) {
	up := newRecordingUpstream(t)
	s := startServer(t, "--upstream-allow-network", "127.0.0.0/8")
	mine := s.newGateway(up.URL, map[string]any{"hostname": "mine.example"})
	myKeyID, myKey := s.newKey(map[string]any{"gateway_id": mine})

	other := s.offline("account", "create", "--name", "other", "--plan", "starter", "--host", "*.other.example")
	started := time.Now()
	s.awaitKey(other, "/v1/account")
	t.Logf("the account's key was accepted after %v", time.Since(started))
	s.awaitKey(s.offline("account", "key", "--account", "other", "--name", "second"), "/v1/keys")

	checkRecordsAreHidden(t, s, other, mine, myKeyID)
	s.callAs(other, http.StatusForbidden, "GET", "/v1/settings", nil)
	gw := func(host string) map[string]any {
		return map[string]any{"name": "theirs", "upstream_url": up.URL, "hostname": host}
	}
	s.callAs(other, http.StatusUnprocessableEntity, "POST", "/v1/gateways", gw("foreign.example"))
	s.callAs(other, http.StatusUnprocessableEntity, "POST", "/v1/gateways", gw("other.example"))
	theirs := s.callAs(other, http.StatusCreated, "POST", "/v1/gateways", gw("api.other.example")).field(t, "gateway_id")
	s.callAs(other, http.StatusCreated, "POST", "/v1/gateways/"+theirs+"/routes", map[string]any{"path": "/*", "methods": []string{"GET"}})
	theirKey := s.callAs(other, http.StatusCreated, "POST", "/v1/keys", map[string]any{"name": "k", "scope": "read"}).field(t, "key")

	s.mustSend(http.StatusOK, "GET", "/x", theirKey, "Host: API.Other.example.:80")
	for _, c := range []struct{ key, host string }{{myKey, "api.other.example"}, {theirKey, "mine.example"}} {
		if a := s.mustSend(http.StatusUnauthorized, "GET", "/x", c.key, "Host: "+c.host); a.json(t)["code"] != "key_invalid" {
			t.Errorf("a key of another account: got %s, want code key_invalid", a.body)
		}
	}
}

// awaitKey waits until a GET of path with the key of an account succeeds.
func (s *server) awaitKey(key, path string) {
	s.t.Helper()
	if !awaittest.Holds(func() bool {
		a, err := s.try(key, "GET", path, nil)
		return err == nil && a.status == http.StatusOK
	}) {
		s.t.Fatalf("GET %s: a new key of the account is refused, want it to be accepted", path)
	}
}

// callAs makes a management call with key and fails the test unless the status is want.
func (s *server) callAs(key string, want int, method, path string, body any) response {
	s.t.Helper()
	a, err := s.try(key, method, path, body)
	if err != nil || a.status != want {
		s.t.Fatalf("%s %s: error %v, got status %d, want %d\n%s", method, path, err, a.status, want, a.body)
	}
	return a
}

// checkRecordsAreHidden checks that a key of another account, which has two keys and no
// gateway, can neither read nor change a gateway and a key, and does not list them.
func checkRecordsAreHidden(t *testing.T, s *server, other, gatewayID, keyID string) {
	t.Helper()
	for _, c := range []struct {
		method, path string
		body         any
	}{
		{"GET", "/v1/gateways/" + gatewayID, nil},
		{"PATCH", "/v1/gateways/" + gatewayID, map[string]any{"name": "taken"}},
		{"DELETE", "/v1/gateways/" + gatewayID, nil},
		{"GET", "/v1/gateways/" + gatewayID + "/routes", nil},
		{"GET", "/v1/gateways/" + gatewayID + "/spec", nil},
		{"GET", "/v1/gateways/" + gatewayID + "/config", nil},
		{"GET", "/v1/gateways/" + gatewayID + "/revisions", nil},
		{"GET", "/v1/keys/" + keyID, nil},
		{"PATCH", "/v1/keys/" + keyID, map[string]any{"name": "taken"}},
		{"DELETE", "/v1/keys/" + keyID, nil},
		{"POST", "/v1/keys/" + keyID + "/rotate", map[string]any{"overlap_days": 0}},
	} {
		if a := s.callAs(other, http.StatusNotFound, c.method, c.path, c.body); a.json(t)["error"] != "not_found" {
			t.Errorf("%s %s: got %s, want error not_found", c.method, c.path, a.body)
		}
	}
	if n := len(s.callAs(other, http.StatusOK, "GET", "/v1/keys", nil).json(t)["data"].([]any)); n != 2 {
		t.Errorf("the account sees %d keys, want only its own 2", n)
	}
	if n := len(s.callAs(other, http.StatusOK, "GET", "/v1/gateways", nil).json(t)["data"].([]any)); n != 0 {
		t.Errorf("the account sees %d gateways, want none", n)
	}
}
