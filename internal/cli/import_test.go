package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
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
			if status, _, stderr := runAt(s, "import", "kong", name, "--dir", dir); status != 0 {
				t.Fatalf("keygate import kong %s: got the status %d, want 0:\n%s", name, status, stderr)
			}
			gateways := filepath.Join(dir, "gateways")
			if files, err := os.ReadDir(gateways); err != nil {
				t.Fatal(err)
			} else if len(files) > 0 {
				if status, _, stderr := runAt(s, "config", "apply", gateways, "--dry-run"); status != 0 {
					t.Errorf("keygate config apply --dry-run: got the status %d, want 0:\n%s", status, stderr)
				}
			}
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
// What a route strips is cut off, lists of addresses hold, and what Kong itself responded to is responded to.
func TestImportedRoutesServe(t *testing.T) {
	s := keygatetest.Start(t)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Method+" "+r.URL.Path)
	}))
	t.Cleanup(service.Close)
	const oldKey, keyAbroad = "caller-4d3e2f1a0b9c8d7e", "abroad-4d3e2f1a0b9c8d7e"
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
- name: cut
  url: ` + service.URL + `/base
  routes:
  - {name: cut, hosts: [moved.example], paths: [/v1/cut], plugins: [{name: key-auth}]}
  - {name: near, hosts: [moved.example], paths: [/near], plugins: [{name: ip-restriction, config: {allow: [127.0.0.1]}}]}
  - {name: far, hosts: [moved.example], paths: [/far], plugins: [{name: ip-restriction, config: {allow: [192.0.2.0/24]}}]}
  - {name: none, hosts: [moved.example], paths: [/none], plugins: [{name: ip-restriction, config: {allow: [127.0.0.1], deny: [0.0.0.0/0]}}]}
  - {name: down, hosts: [moved.example], paths: [/down], plugins: [{name: request-termination}]}
  - {name: gone, hosts: [moved.example], paths: [/gone], plugins: [{name: key-auth}, {name: request-termination, config: {status_code: 410, message: "use /v1"}}]}
consumers:
- {username: caller, keyauth_credentials: [{key: ` + oldKey + `}]}
- {username: abroad, keyauth_credentials: [{key: ` + keyAbroad + `}], plugins: [{name: ip-restriction, config: {deny: [127.0.0.1]}}]}
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
		key          string
		status       int
		body         string // "" for any
	}{
		{"GET", "/v1/cut/orders", oldKey, 200, "GET /base/orders"},
		{"GET", "/v1/cut/", oldKey, 200, "GET /base/"},
		{"GET", "/v1/cut", oldKey, 200, "GET /base/"},
		{"GET", "/v1/cut/orders", "", 401, ""},
		{"GET", "/v1/cut/orders", keyAbroad, 403, ""},
		{"GET", "/v1/cutter", oldKey, 405, ""},
		{"GET", "/v1/cutter", "", 401, ""},
		{"GET", "/near/x", "", 200, "GET /base/x"},
		{"GET", "/far/x", "", 403, ""},
		{"GET", "/none", "", 403, ""},
		{"GET", "/down/x", "", 503, `{"message":"Service unavailable"}`},
		{"POST", "/downright", "", 503, `{"message":"Service unavailable"}`},
		{"GET", "/gone", "", 401, ""},
		{"GET", "/gone", oldKey, 410, `{"message":"use /v1"}`},
		{"GET", "/api/orders", oldKey, 200, "GET /base/api/orders"},
		{"GET", "/api/orders", "", 401, ""},
		{"GET", "/api", oldKey, 200, "GET /base/api"},
		{"GET", "/api/admin", oldKey, 405, ""},
		{"DELETE", "/api/admin/users", oldKey, 405, ""},
		{"GET", "/api/admin-panel", oldKey, 405, ""},
		{"GET", "/api/admin", "", 401, ""},
		{"CLOSED", "/api/admin", oldKey, 502, ""},
		{"GET", "/about", "", 200, "GET /about"},
		{"GET", "/private", "", 401, ""},
		{"GET", "/private/notes", oldKey, 405, ""},
		{"GET", "/same/x", "", 200, "GET /same/x"},
		{"GET", "/apix", oldKey, 200, "GET /base/apix"},
		{"GET", "/about//us", "", 400, ""},
		{"PROPFIND", "/about", "", 405, ""},
	} {
		// What a check of an access log says of a request is what the server does.
		want, line := 0, fmt.Sprintf(`192.0.2.1 - - [30/Nov/2026:10:00:00 +0000] "%s %s HTTP/1.1" 200 12 "-" "curl"`+"\n", c.method, c.path)
		if c.status == 400 || c.status == 405 {
			want = 3
		}
		if err := os.WriteFile(filepath.Join(dir, "access.log"), []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
		got, found, stderr := runAt(s, "import", "check", "--dir", filepath.Join(dir, "out"), "--hostname", "moved.example", "--log", filepath.Join(dir, "access.log"))
		if finding := fmt.Sprintf("%d %s moved.example%s 1\n", c.status, c.method, c.path); c.status != 401 && c.method != "CLOSED" && (got != want || want == 3 && found != finding) {
			t.Errorf("keygate import check of %s %s: got the status %d and %q, want %d and %q\n%s", c.method, c.path, got, found, want, finding, stderr)
		}
		var headers []string
		if c.key != "" {
			headers = []string{"apikey", c.key}
		}
		r := s.Through("moved.example", c.method, c.path, "", "", headers...)
		if r.Status != c.status || c.body != "" && r.Body != c.body {
			t.Errorf("%s %s, with the key %q: got %d %q, want %d %q", c.method, c.path, c.key, r.Status, r.Body, c.status, c.body)
		}
	}
}

// Guarantee: edge.md, section 5: a service and a client get the headers that they got behind the transformers of Kong. A header that is
// added and replaced has one value, one that is removed is gone, and those of callers' keys get to no service.
func TestImportedHeadersServe(t *testing.T) {
	s := keygatetest.Start(t)
	names := []string{"Apikey", "X-Debug", "X-Env", "X-Internal", "X-Token"}
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Powered-By", "service")
		w.Header().Set("X-Frame-Options", "SAMEORIGIN")
		for _, name := range names {
			_, _ = fmt.Fprintf(w, "%s=%s ", name, strings.Join(r.Header.Values(name), ","))
		}
	}))
	t.Cleanup(service.Close)
	const oldKey = "caller-4d3e2f1a0b9c8d7e"
	dir := t.TempDir()
	deck := `_format_version: "3.0"
services:
- name: orders
  url: ` + service.URL + `
  routes:
  - {name: orders, hosts: [headers.example], paths: [/orders], plugins: [{name: key-auth}]}
  plugins:
  - name: request-transformer
    config:
      remove: {headers: [X-Debug, apikey]}
      replace: {headers: ["X-Env: production"]}
      add: {headers: ["X-Env: production", "X-Token: of-the-service"]}
- name: site
  url: ` + service.URL + `
  routes:
  - {name: site, hosts: [headers.example], paths: [/]}
  - name: framed
    hosts: [headers.example]
    paths: [/framed]
    plugins: [{name: response-transformer, config: {replace: {headers: ["X-Frame-Options: DENY"]}, add: {headers: ["X-Frame-Options: DENY", "X-Robots-Tag: none"]}}}]
plugins:
- {name: request-transformer, config: {remove: {headers: [X-Internal]}}}
- {name: response-transformer, config: {remove: {headers: [X-Powered-By]}}}
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
	sent := []string{"apikey", oldKey, "X-Debug", "1", "X-Env", "mine", "X-Internal", "2", "X-Token", "mine", "x_debug", "3"}
	for _, c := range []struct{ path, body, poweredBy, frame, robots string }{
		{"/orders/1", "Apikey= X-Debug= X-Env=production X-Internal=2 X-Token=of-the-service ", "", "SAMEORIGIN", ""},
		{"/", "Apikey= X-Debug=1 X-Env=mine X-Internal= X-Token=mine ", "", "SAMEORIGIN", ""},
		{"/framed", "Apikey= X-Debug=1 X-Env=mine X-Internal= X-Token=mine ", "service", "DENY", "none"},
	} {
		r := s.Through("headers.example", "GET", c.path, "", "", sent...)
		got := []string{r.Body, r.Header.Get("X-Powered-By"), r.Header.Get("X-Frame-Options"), r.Header.Get("X-Robots-Tag")}
		if want := []string{c.body, c.poweredBy, c.frame, c.robots}; r.Status != 200 || !slices.Equal(got, want) {
			t.Errorf("%s: got %d %q, want 200 %q", c.path, r.Status, got, want)
		}
	}
}
