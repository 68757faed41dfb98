package repository_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/repository"
)

// repo is a repository with a work tree, made by Git itself.
type repo struct {
	t   testing.TB
	dir string
}

func newRepo(t testing.TB, dir string) *repo {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	r := &repo{t, dir}
	r.git("init", "-q", "-b", "main")
	return r
}

// gitEnv keeps the settings of this machine's user away from Git.
func gitEnv() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_AUTHOR_NAME=Ann", "GIT_AUTHOR_EMAIL=ann@example.com", "GIT_COMMITTER_NAME=Bob", "GIT_COMMITTER_EMAIL=bob@example.com",
		"GIT_AUTHOR_DATE=2027-03-01T12:00:00Z", "GIT_COMMITTER_DATE=2027-03-01T12:30:00+01:00",
	}
}

func (r *repo) git(args ...string) string {
	r.t.Helper()
	c := exec.Command("git", args...)
	c.Dir, c.Env = r.dir, gitEnv()
	out, err := c.CombinedOutput()
	if err != nil {
		r.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// write writes a file of the work tree.
func (r *repo) write(name, content string) {
	r.t.Helper()
	at := filepath.Join(r.dir, filepath.FromSlash(name))
	if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o700), os.WriteFile(at, []byte(content), 0o600)); err != nil {
		r.t.Fatal(err)
	}
}

// commit commits the work tree and returns the commit.
func (r *repo) commit(message string) string {
	r.t.Helper()
	r.git("add", "-A")
	r.git("commit", "-q", "--allow-empty", "-m", message)
	return r.git("rev-parse", "HEAD")
}

func client(t testing.TB, cfg repository.Config) *repository.Client {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	c, err := repository.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		if left, _ := os.ReadDir(cfg.Dir); len(left) > 0 {
			t.Errorf("%d files are left in the directory of packs", len(left))
		}
	})
	return c
}

// wantKind fails the test unless err is an *Error of a kind whose message has a text.
func wantKind(t testing.TB, err error, kind repository.Kind, text string) {
	t.Helper()
	var e *repository.Error
	if !errors.As(err, &e) || e.Kind != kind || !strings.Contains(e.Message, text) {
		t.Errorf("got %v (%+v), want an error of the kind %s with %q", err, e, kind, text)
	}
}

// gitServer serves the repositories below dir over https with git http-backend, to clients with the
// password secret, unless that is "". The last value of each header is in seen.
type gitServer struct {
	*httptest.Server
	roots *x509.CertPool
	calls []string
}

func serveGit(t testing.TB, dir, secret string, env ...string) *gitServer {
	t.Helper()
	backend := filepath.Join(strings.TrimSpace(run(t, "git", "--exec-path")), "git-http-backend")
	handler := &cgi.Handler{
		Path: backend, Dir: dir, Env: append([]string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1"}, append(gitEnv(), env...)...),
	}
	s := &gitServer{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.calls = append(s.calls, r.Method+" "+r.URL.Path)
		if _, password, _ := r.BasicAuth(); password != secret {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			http.Error(w, "who are you", http.StatusUnauthorized)
			return
		}
		h := *handler
		h.Env = append(h.Env, "GIT_PROTOCOL="+r.Header.Get("Git-Protocol"))
		h.ServeHTTP(w, r)
	}))
	s.start(t)
	return s
}

// start starts a server with TLS.
func (s *gitServer) start(t testing.TB) {
	s.Server.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	s.StartTLS()
	t.Cleanup(s.Close)
	s.roots = x509.NewCertPool()
	s.roots.AddCert(s.Certificate())
}

func run(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	return string(out)
}

// head and read call Head and Read with the branch main and the file api/openapi.yaml.
func head(t testing.TB, c *repository.Client, s repository.Source) (string, error) {
	t.Helper()
	commit, _, err := c.Head(context.Background(), source(s))
	return commit, err
}

func read(t testing.TB, c *repository.Client, s repository.Source) (*repository.File, error) {
	t.Helper()
	commit, err := head(t, c, s)
	if err != nil {
		return nil, err
	}
	return c.Read(context.Background(), source(s), commit)
}

func source(s repository.Source) repository.Source {
	if s.Branch == "" {
		s.Branch = "main"
	}
	if s.Path == "" {
		s.Path = "api/openapi.yaml"
	}
	return s
}

// withoutVersion answers as a server that knows only the oldest version of the protocol.
func withoutVersion(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del("Git-Protocol")
		h.ServeHTTP(w, r)
	})
}
