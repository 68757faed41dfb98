package e2e

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/keygate/keygate/internal/keygatetest/awaittest"
)

// gitRepo is a Git repository in a directory, with a work tree.
type gitRepo struct {
	t   testing.TB
	dir string
}

func newGitRepo(t testing.TB, dir string) *gitRepo {
	t.Helper()
	r := &gitRepo{t, dir}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	r.git("init", "-q", "-b", "main")
	return r
}

// gitEnvironment keeps the settings of this machine's user away from Git.
func gitEnvironment() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_AUTHOR_NAME=Ann", "GIT_AUTHOR_EMAIL=ann@example.com", "GIT_COMMITTER_NAME=Bob", "GIT_COMMITTER_EMAIL=bob@example.com",
	}
}

func (r *gitRepo) git(args ...string) string {
	r.t.Helper()
	c := exec.Command("git", args...)
	c.Dir, c.Env = r.dir, gitEnvironment()
	out, err := c.CombinedOutput()
	if err != nil {
		r.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// commit writes openapi.yaml, commits it and returns the commit.
func (r *gitRepo) commit(content string) string {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, "openapi.yaml"), []byte(content), 0o600); err != nil {
		r.t.Fatal(err)
	}
	r.git("add", "-A")
	r.git("commit", "-q", "--allow-empty", "-m", "change")
	return r.git("rev-parse", "HEAD")
}

// pathsSpec returns an OpenAPI document with GET operations.
func pathsSpec(paths ...string) string {
	doc := "openapi: 3.1.0\ninfo: {title: t, version: '1'}\npaths:\n"
	for _, p := range paths {
		doc += "  " + p + ":\n    get: {responses: {}}\n"
	}
	return doc
}

// connect makes a gateway follow openapi.yaml of the branch main and returns the hook secret.
func (s *server) connect(gatewayID, url string, more map[string]any) string {
	s.t.Helper()
	body := map[string]any{"url": url, "branch": "main", "path": "openapi.yaml", "kind": "spec", "interval": "10s"}
	for name, value := range more {
		body[name] = value
	}
	return s.call(http.StatusOK, "PUT", "/v1/gateways/"+gatewayID+"/repository", body).field(s.t, "hook_secret")
}

func (s *server) repository(gatewayID string) map[string]any {
	s.t.Helper()
	return s.call(http.StatusOK, "GET", "/v1/gateways/"+gatewayID+"/repository", nil).json(s.t)
}

func (s *server) syncRepository(gatewayID string) map[string]any {
	s.t.Helper()
	return s.call(http.StatusOK, "POST", "/v1/gateways/"+gatewayID+"/repository/sync", nil).json(s.t)
}

// wantRoutes waits until a gateway has exactly these paths.
func (s *server) wantRoutes(gatewayID string, paths ...string) {
	s.t.Helper()
	var got []string
	if !awaittest.Holds(func() bool {
		list, err := s.try(s.key, "GET", "/v1/gateways/"+gatewayID+"/routes?limit=100", nil)
		if err != nil || list.status != http.StatusOK { // too many calls, for a moment
			return false
		}
		got = nil
		for _, r := range list.json(s.t)["data"].([]any) {
			got = append([]string{r.(map[string]any)["path"].(string)}, got...)
		}
		return fmt.Sprint(got) == fmt.Sprint(paths)
	}) {
		s.t.Fatalf("got routes %v, want %v; the repository is %v", got, paths, s.repository(gatewayID))
	}
}

// pushHook sends a hook that is signed as GitHub does it.
func (s *server) pushHook(want int, gatewayID, secret, body string) {
	s.t.Helper()
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(body))
	r, err := s.try("", "POST", "/v1/hooks/git/"+gatewayID, body, "Content-Type: application/json", "X-Hub-Signature-256: sha256="+hex.EncodeToString(mac.Sum(nil)))
	if err != nil || r.status != want {
		s.t.Fatalf("the hook: got %v %d %s, want %d", err, r.status, r.body, want)
	}
}

// fileURL returns the URL of a repository on this machine.
func (r *gitRepo) fileURL() string { return "file://" + filepath.ToSlash(r.dir) }

// Guarantee: contract 5, a gateway follows each commit of its repository, keeps the last good one
// over every bad commit, a force-push, a branch that vanished, a restart and kill -9, and says in the
// revision who committed what.
func TestGatewayFollowsARepository(t *testing.T) {
	top := t.TempDir()
	r := newGitRepo(t, filepath.Join(top, "api"))
	first := r.commit(pathsSpec("/a"))
	s := startServer(t, "--repository-allow-file", top)
	id := s.newGateway("http://127.0.0.1:9", nil)
	secret := s.connect(id, r.fileURL(), nil)
	s.wantRoutes(id, "/a")
	revision := s.list("/v1/gateways/" + id + "/revisions")[0]
	if revision["commit"] != first || revision["source"] != "repository" || revision["author"] != "Ann <ann@example.com>" {
		t.Errorf("got revision %v, want commit %s of Ann", revision, first)
	}

	good := r.commit(pathsSpec("/a", "/b"))
	s.pushHook(http.StatusOK, id, secret, `{"ref": "refs/heads/main"}`)
	s.wantRoutes(id, "/a", "/b")
	s.pushHook(http.StatusUnauthorized, id, "kgh_other", `{"ref": "refs/heads/main"}`)

	for name, bad := range map[string]string{
		"no OpenAPI document": "hello\n", "a mistake": pathsSpec("/a", "b"), "not YAML": "paths: [", "a variable": pathsSpec("/${env:HOME}") + "\x00",
	} {
		commit := r.commit(bad)
		after := s.syncRepository(id)
		if message, _ := after["last_error"].(string); after["state"] != "error" || after["last_commit"] != good || !strings.HasPrefix(message, "openapi.yaml") {
			t.Errorf("%s: got %v, want an error of openapi.yaml", name, after)
		}
		s.syncRepository(id)
		events := s.list("/v1/events?type=gateway.sync_failed&limit=100")
		if data := events[0]["data"].(map[string]any); data["commit"] != commit {
			t.Errorf("%s: the newest event is %v, want one of %s", name, data, commit)
		}
	}
	if n := len(s.list("/v1/events?type=gateway.sync_failed&limit=100")); n != 4 {
		t.Errorf("got %d events of 4 bad commits", n)
	}
	s.wantRoutes(id, "/a", "/b")

	r.git("rm", "-q", "openapi.yaml")
	r.git("commit", "-q", "-m", "remove it")
	if after := s.syncRepository(id); after["state"] != "error" || after["last_commit"] != good {
		t.Errorf("the file is gone: got %v", after)
	}
	r.git("reset", "-q", "--hard", first) // a force-push
	r.commit(pathsSpec("/forced"))
	s.syncRepository(id)
	s.wantRoutes(id, "/forced")
	r.git("checkout", "-q", "-b", "dev")
	r.git("branch", "-q", "-D", "main")
	if after := s.syncRepository(id); after["state"] != "error" {
		t.Errorf("the branch is gone: got %v", after)
	}
	s.wantRoutes(id, "/forced")
	r.git("branch", "-q", "-m", "main")

	for round, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		r.commit(pathsSpec("/forced", fmt.Sprintf("/round%d", round)))
		s.pushHook(http.StatusOK, id, secret, `{}`)
		s.restart(signal) // perhaps in the middle of the sync
		if round == 0 {
			s.syncRepository(id) // the other sync is due without a request
		}
		s.wantRoutes(id, "/forced", fmt.Sprintf("/round%d", round))
	}
	if left, err := os.ReadDir(filepath.Join(s.dataDir, "repositories")); err != nil || len(left) != 0 {
		t.Errorf("temporary files are left: %v %v", left, err)
	}
}

// Guarantee: contract 5, a rollback pauses the sync, also over a restart, until a call of resume,
// which waits for the next commit, or of sync, which goes back to the newest. When the repository
// is disconnected, the routes stay. A gateway that is deleted during a sync is gone.
func TestRollbackStopsTheRepository(t *testing.T) {
	top := t.TempDir()
	r := newGitRepo(t, filepath.Join(top, "api"))
	r.commit(pathsSpec("/a"))
	s := startServer(t, "--repository-allow-file", top)
	id := s.newGateway("http://127.0.0.1:9", nil)
	secret := s.connect(id, r.fileURL(), nil)
	s.wantRoutes(id, "/a")
	r.commit(pathsSpec("/b"))
	s.syncRepository(id)
	path := "/v1/gateways/" + id
	s.call(http.StatusOK, "POST", path+"/revisions/1/rollback", nil)
	s.restart(syscall.SIGTERM)
	s.pushHook(http.StatusOK, id, secret, `{}`)
	if got := s.repository(id); got["state"] != "paused" {
		t.Fatalf("after the rollback: got %v, want it paused", got)
	}
	s.wantRoutes(id, "/a")
	s.call(http.StatusOK, "POST", path+"/repository/resume", nil)
	r.commit(pathsSpec("/c"))
	s.pushHook(http.StatusOK, id, secret, `{}`)
	s.wantRoutes(id, "/c")
	s.call(http.StatusOK, "POST", path+"/revisions/1/rollback", nil)
	s.wantRoutes(id, "/a")
	if got := s.syncRepository(id); got["state"] != "ok" {
		t.Errorf("got %v, want the sync to end the pause", got)
	}
	s.wantRoutes(id, "/c")
	s.call(http.StatusOK, "DELETE", path+"/repository", nil)
	r.commit(pathsSpec("/d"))
	s.pushHook(http.StatusUnauthorized, id, secret, `{}`)
	s.wantRoutes(id, "/c")
	secret = s.connect(id, r.fileURL(), nil)
	s.pushHook(http.StatusOK, id, secret, `{}`)
	s.call(http.StatusOK, "DELETE", path, nil)
	s.pushHook(http.StatusUnauthorized, id, secret, `{}`)
	s.call(http.StatusNotFound, "GET", path+"/repository", nil)
}

// serveGit serves the repositories below dir with git http-backend over TLS, to clients with the token.
// It returns the address and a file with the certificate.
func serveGit(t *testing.T, dir, token string) (url, certificate string) {
	t.Helper()
	out, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	backend := filepath.Join(strings.TrimSpace(string(out)), "git-http-backend")
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != token {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			http.Error(w, "who are you", http.StatusUnauthorized)
			return
		}
		h := cgi.Handler{Path: backend, Dir: dir, Env: append(gitEnvironment(), "GIT_PROJECT_ROOT="+dir, "GIT_HTTP_EXPORT_ALL=1", "GIT_PROTOCOL="+r.Header.Get("Git-Protocol"))}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	certificate = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return srv.URL, certificate
}

// Guarantee: a repository behind a Git server over TLS is followed with its token, which no response
// shows; a wrong token is an error that raises one event. Another account can use neither a private
// address nor a file, and sees nothing of the repository.
func TestRepositoryOverHTTPS(t *testing.T) {
	top := t.TempDir()
	r := newGitRepo(t, filepath.Join(top, "api"))
	r.commit(pathsSpec("/a"))
	url, certificate := serveGit(t, top, "the-token")
	t.Setenv("SSL_CERT_FILE", certificate) // for the server's process
	s := startServer(t, "--repository-allow-file", top)
	id := s.newGateway("http://127.0.0.1:9", nil)
	s.connect(id, url+"/api/.git", map[string]any{"credential": map[string]string{"token": "the-token"}})
	s.wantRoutes(id, "/a")
	path := "/v1/gateways/" + id + "/repository"
	for _, shown := range []response{s.call(http.StatusOK, "GET", path, nil), s.call(http.StatusOK, "GET", "/v1/audit-log?limit=100", nil)} {
		if strings.Contains(string(shown.body), "the-token") {
			t.Errorf("the token is shown: %s", shown.body)
		}
	}
	if strings.Contains(s.output.String(), "the-token") {
		t.Error("the token is in the log")
	}
	body := map[string]any{"url": url + "/api/.git", "branch": "main", "path": "openapi.yaml", "kind": "spec", "credential": map[string]string{"token": "another"}}
	s.call(http.StatusOK, "PUT", path, body)
	for range 2 {
		if got := s.syncRepository(id); got["state"] != "error" || strings.Contains(fmt.Sprint(got), "another") {
			t.Errorf("a wrong token: got %v", got)
		}
	}
	if n := len(s.list("/v1/events?type=gateway.sync_failed")); n != 1 {
		t.Errorf("got %d events, want one", n)
	}
	s.wantRoutes(id, "/a")

	account := s.call(http.StatusCreated, "POST", "/v1/accounts", map[string]any{"name": "tenant", "plan": "starter"})
	tenant := *s
	tenant.key = account.field(t, "key")
	for _, call := range []string{"GET ", "DELETE ", "PUT ", "POST /sync", "POST /resume"} {
		method, rest, _ := strings.Cut(call, " ")
		var content any
		if method == "PUT" {
			content = body
		}
		tenant.call(http.StatusNotFound, method, path+rest, content)
	}
	theirs := tenant.newGateway("https://upstream.example.com", nil)
	body["url"] = r.fileURL()
	delete(body, "credential")
	tenant.call(http.StatusUnprocessableEntity, "PUT", "/v1/gateways/"+theirs+"/repository", body)
	body["url"] = url + "/api/.git"
	tenant.call(http.StatusOK, "PUT", "/v1/gateways/"+theirs+"/repository", body)
	got := tenant.syncRepository(theirs)
	if message := fmt.Sprint(got["last_error"]); got["state"] != "error" || !strings.Contains(message, "address") {
		t.Errorf("a private address of a tenant: got %v, want it refused", got)
	}
}
