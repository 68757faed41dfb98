package e2e

import (
	"net/http"
	"os/exec"
	"regexp"
	"testing"
	"time"
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
	begun := time.Now()
	if !eventually(testTimeout, func() bool {
		a, err := s.try(other, "GET", "/v1/account", nil)
		return err == nil && a.status == http.StatusOK
	}) {
		t.Fatal("the key of the new account is refused, want it to be accepted")
	}
	t.Logf("the account's key was accepted after %v", time.Since(begun))
	second := s.offline("account", "key", "--account", "other", "--name", "second")
	if !eventually(testTimeout, func() bool {
		a, err := s.try(second, "GET", "/v1/keys", nil)
		return err == nil && a.status == http.StatusOK
	}) {
		t.Fatal("the second key of the account is refused, want it to be accepted")
	}
	expect := func(want int, method, path string, body any) response {
		t.Helper()
		a, err := s.try(other, method, path, body)
		if err != nil || a.status != want {
			t.Fatalf("%s %s: error %v, got status %d, want %d\n%s", method, path, err, a.status, want, a.body)
		}
		return a
	}
	for _, c := range []struct {
		method, path string
		body         any
	}{
		{"GET", "/v1/gateways/" + mine, nil},
		{"PATCH", "/v1/gateways/" + mine, map[string]any{"name": "taken"}},
		{"DELETE", "/v1/gateways/" + mine, nil},
		{"GET", "/v1/gateways/" + mine + "/routes", nil},
		{"GET", "/v1/gateways/" + mine + "/spec", nil},
		{"GET", "/v1/gateways/" + mine + "/config", nil},
		{"GET", "/v1/gateways/" + mine + "/revisions", nil},
		{"GET", "/v1/keys/" + myKeyID, nil},
		{"PATCH", "/v1/keys/" + myKeyID, map[string]any{"name": "taken"}},
		{"DELETE", "/v1/keys/" + myKeyID, nil},
		{"POST", "/v1/keys/" + myKeyID + "/rotate", map[string]any{"overlap_days": 0}},
	} {
		if a := expect(http.StatusNotFound, c.method, c.path, c.body); a.json(t)["error"] != "not_found" {
			t.Errorf("%s %s: got %s, want error not_found", c.method, c.path, a.body)
		}
	}
	if n := len(expect(http.StatusOK, "GET", "/v1/keys", nil).json(t)["data"].([]any)); n != 2 {
		t.Errorf("the account sees %d keys, want only its own 2", n)
	}
	if n := len(expect(http.StatusOK, "GET", "/v1/gateways", nil).json(t)["data"].([]any)); n != 0 {
		t.Errorf("the account sees %d gateways, want none", n)
	}
	expect(http.StatusForbidden, "GET", "/v1/settings", nil)
	gw := func(host string) map[string]any {
		return map[string]any{"name": "theirs", "upstream_url": up.URL, "hostname": host}
	}
	expect(http.StatusUnprocessableEntity, "POST", "/v1/gateways", gw("foreign.example"))
	expect(http.StatusUnprocessableEntity, "POST", "/v1/gateways", gw("other.example"))
	theirs := expect(http.StatusCreated, "POST", "/v1/gateways", gw("api.other.example")).field(t, "gateway_id")
	expect(http.StatusCreated, "POST", "/v1/gateways/"+theirs+"/routes", map[string]any{"path": "/*", "methods": []string{"GET"}})
	theirKey := expect(http.StatusCreated, "POST", "/v1/keys", map[string]any{"name": "k", "scope": "read"}).field(t, "key")

	s.mustSend(http.StatusOK, "GET", "/x", theirKey, "Host: API.Other.example.:80")
	for _, c := range []struct{ key, host string }{{myKey, "api.other.example"}, {theirKey, "mine.example"}} {
		if a := s.mustSend(http.StatusUnauthorized, "GET", "/x", c.key, "Host: "+c.host); a.json(t)["code"] != "key_invalid" {
			t.Errorf("a key of another account: got %s, want code key_invalid", a.body)
		}
	}
}
