package cli_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/cli"
	"github.com/keygate/keygate/internal/keygatetest"
)

// runAt runs a command that calls a server.
func runAt(s *keygatetest.Server, args ...string) (status int, stdout, stderr string) {
	var out, said bytes.Buffer
	env := map[string]string{
		"KEYGATE_URL": s.AdminURL(), "KEYGATE_API_KEY": s.AdminKey,
		"DECK_PAYMENTS_HOST": "payments.internal", "DECK_TOKEN": "secret-of-the-service",
	}
	status = cli.Run(context.Background(), &cli.System{
		In: strings.NewReader(""), Out: &out, Err: &said, Version: "test",
		Env: func(name string) (string, bool) { v, ok := env[name]; return v, ok },
	}, args)
	return status, out.String(), said.String()
}

// Guarantee: edge.md, section 5: what keygate import writes of each shape of file is what a server takes, and what it then has.
func TestImportsAreApplied(t *testing.T) {
	names, err := filepath.Glob("../moving/testdata/kong/*.[yj][as][mo][ln]")
	if err != nil || len(names) < 10 {
		t.Fatalf("got the files %v, %v, want at least ten", names, err)
	}
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			s := keygatetest.Start(t)
			dir := filepath.Join(t.TempDir(), "moving")
			if status, _, stderr := runAt(s, "import", "kong", name, "--dir", dir, "--apply"); status != 0 {
				t.Fatalf("keygate import kong %s --apply: got the status %d, want 0:\n%s", name, status, stderr)
			}
			files, err := os.ReadDir(filepath.Join(dir, "gateways"))
			if err != nil {
				t.Fatal(err)
			}
			if len(files) == 0 {
				return
			}
			if status, stdout, stderr := runAt(s, "config", "diff", filepath.Join(dir, "gateways")); status != 0 {
				t.Errorf("keygate config diff: got the status %d, want 0:\n%s%s", status, stdout, stderr)
			}
		})
	}
}

// Guarantee: edge.md, section 5: a request that a route of Kong took reaches the service with the path that it had; one whose
// credential is not carried reaches nothing, whatever its method, also with a key. A caller's old key works in its old header.
func TestImportedRoutesServe(t *testing.T) {
	s := keygatetest.Start(t)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Method+" "+r.URL.Path)
	}))
	t.Cleanup(service.Close)
	const oldKey = "caller-4d3e2f1a0b9c8d7e"
	dir := t.TempDir()
	deck := `_format_version: "3.0"
services:
- name: api
  url: ` + service.URL + `/base
  routes:
  - {name: api, hosts: [moved.example], paths: [/api], strip_path: false, plugins: [{name: key-auth}]}
  - {name: admin, hosts: [moved.example], paths: [/api/admin], strip_path: false, plugins: [{name: jwt}]}
- name: site
  url: ` + service.URL + `
  routes:
  - {name: site, hosts: [moved.example], paths: [/]}
  - {name: private, hosts: [moved.example], paths: [/private], plugins: [{name: basic-auth}]}
- name: same
  url: ` + service.URL + `/same
  routes:
  - {name: same, hosts: [moved.example], paths: [/same]}
consumers:
- {username: caller, keyauth_credentials: [{key: ` + oldKey + `}]}
`
	file := filepath.Join(dir, "kong.yaml")
	if err := os.WriteFile(file, []byte(deck), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, _, stderr := runAt(s, "import", "kong", file, "--dir", filepath.Join(dir, "out"), "--apply"); status != 0 {
		t.Fatalf("got the status %d, want 0:\n%s", status, stderr)
	}
	for _, c := range []struct {
		method, path string
		withKey      bool
		status       int
		body         string // "" for any
	}{
		{"GET", "/api/orders", true, 200, "GET /base/api/orders"},
		{"GET", "/api/orders", false, 401, ""},
		{"GET", "/api", true, 200, "GET /base/api"},
		{"GET", "/api/admin", true, 405, ""},
		{"DELETE", "/api/admin/users", true, 405, ""},
		{"GET", "/api/admin-panel", true, 405, ""},
		{"GET", "/api/admin", false, 401, ""},
		{"CLOSED", "/api/admin", true, 502, ""},
		{"GET", "/about", false, 200, "GET /about"},
		{"GET", "/private", false, 401, ""},
		{"GET", "/private/notes", true, 405, ""},
		{"GET", "/same/x", false, 200, "GET /same/x"},
		{"GET", "/apix", true, 200, "GET /base/apix"},
	} {
		var headers []string
		if c.withKey {
			headers = []string{"apikey", oldKey}
		}
		r := s.Through("moved.example", c.method, c.path, "", "", headers...)
		if r.Status != c.status || c.body != "" && r.Body != c.body {
			t.Errorf("%s %s, with a key %t: got %d %q, want %d %q", c.method, c.path, c.withKey, r.Status, r.Body, c.status, c.body)
		}
	}
}
