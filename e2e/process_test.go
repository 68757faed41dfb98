// Package e2e tests the product as it is delivered: the built binary, in a
// process of its own, over its public interfaces alone.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	// What the binary is made of, so that go test does not take the result of
	// an older one for this one's.
	_ "github.com/keygate/keygate/internal/cli"
	"github.com/keygate/keygate/internal/keygatetest/porttest"
)

// binary is the path of the keygate that TestMain built.
var binary string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "keygate-e2e-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		binary = filepath.Join(dir, "keygate")
		build := exec.Command("go", "build", "-o", binary, "github.com/keygate/keygate/cmd/keygate")
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			fmt.Fprintln(os.Stderr, "build keygate:", err)
			return 1
		}
		return m.Run()
	}())
}

// patience is how long a test waits for something that must come about; it
// bounds a failure and is never part of a measurement.
const patience = 2 * time.Minute

// server is one keygate process on a data directory of its own.
type server struct {
	t       *testing.T
	dataDir string
	flags   []string
	gateway string // host:port of the data plane
	admin   string
	ops     string
	key     string // the admin key of the account default
	cmd     *exec.Cmd
	output  *syncBuffer
	exited  chan error
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// startServer starts keygate on free ports of 127.0.0.1 and waits until it is
// ready. The test's end stops it.
func startServer(t *testing.T, flags ...string) *server {
	t.Helper()
	s := &server{
		t: t, dataDir: filepath.Join(t.TempDir(), "data"), flags: flags,
		gateway: porttest.Reserve(t), admin: porttest.Reserve(t), ops: porttest.Reserve(t),
	}
	s.start()
	key, err := os.ReadFile(filepath.Join(s.dataDir, "admin.key"))
	if err != nil {
		t.Fatalf("the first start left no admin.key: %v\n%s", err, s.output)
	}
	s.key = strings.TrimSpace(string(key))
	t.Cleanup(func() { s.end(syscall.SIGKILL) })
	return s
}

func (s *server) start() {
	s.t.Helper()
	// Connections to the process before may not have been found dead yet, and
	// what is not idempotent is not sent again.
	adminClient.CloseIdleConnections()
	planeClient.CloseIdleConnections()
	args := append([]string{
		"serve", "--data-dir", s.dataDir, "--gateway-addr", s.gateway,
		"--admin-addr", s.admin, "--ops-addr", s.ops,
	}, s.flags...)
	s.cmd = exec.Command(binary, args...)
	s.output = &syncBuffer{}
	s.cmd.Stdout, s.cmd.Stderr = s.output, s.output
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	exited := make(chan error, 1)
	s.exited = exited
	go func(cmd *exec.Cmd) { exited <- cmd.Wait() }(s.cmd)
	ready := eventually(patience, func() bool {
		select {
		case err := <-exited:
			exited <- err
			return true
		default:
		}
		resp, err := http.Get("http://" + s.ops + "/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	select {
	case err := <-exited:
		exited <- err
		s.t.Fatalf("keygate ended at once: %v\n%s", err, s.output)
	default:
	}
	if !ready {
		s.t.Fatalf("keygate was not ready in %v\n%s", patience, s.output)
	}
}

// end sends the process a signal, waits for it and returns its exit status;
// -1 if it was killed or had ended before.
func (s *server) end(sig syscall.Signal) int {
	s.t.Helper()
	if s.cmd == nil {
		return -1
	}
	_ = s.cmd.Process.Signal(sig)
	select {
	case err := <-s.exited:
		s.cmd = nil
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return exit.ExitCode()
		}
		return 0
	case <-time.After(patience):
		_ = s.cmd.Process.Kill()
		s.t.Fatalf("keygate did not end within %v of %v\n%s", patience, sig, s.output)
		return -1
	}
}

// restart ends the process with sig and starts it again on the same data.
func (s *server) restart(sig syscall.Signal) {
	s.t.Helper()
	s.end(sig)
	s.start()
}

// eventually asks cond again and again, without a fixed pause in between that
// a test's result could depend on, until it holds or the time is up.
func eventually(within time.Duration, cond func() bool) bool {
	deadline := time.Now().Add(within)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if cond() {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
		<-tick.C
	}
}

// answer is what a call gave back.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a answer) json(t *testing.T) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(a.body, &m); err != nil {
		t.Fatalf("status %d, body is no JSON object: %v\n%s", a.status, err, a.body)
	}
	return m
}

func (a answer) str(t *testing.T, member string) string {
	t.Helper()
	s, ok := a.json(t)[member].(string)
	if !ok {
		t.Fatalf("status %d: no string member %q in %s", a.status, member, a.body)
	}
	return s
}

// try makes a management call with the given key and extra header lines
// ("Name: value"). body may be nil, a string, a []byte or anything that JSON can hold.
func (s *server) try(key, method, path string, body any, headers ...string) (answer, error) {
	var r io.Reader
	contentType := "application/json"
	switch b := body.(type) {
	case nil:
		contentType = ""
	case string:
		r = strings.NewReader(b)
	case []byte:
		r = bytes.NewReader(b)
	default:
		j, err := json.Marshal(b)
		if err != nil {
			return answer{}, err
		}
		r = bytes.NewReader(j)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+s.admin+path, r)
	if err != nil {
		return answer{}, err
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := adminClient.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, data}, err
}

var adminClient = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}

// call makes a management call as the operator and fails the test unless the
// status is want.
func (s *server) call(want int, method, path string, body any, headers ...string) answer {
	s.t.Helper()
	a, err := s.try(s.key, method, path, body, headers...)
	if err != nil {
		s.t.Fatalf("%s %s: %v\n%s", method, path, err, s.output)
	}
	if a.status != want {
		s.t.Fatalf("%s %s: status %d, want %d\n%s", method, path, a.status, want, a.body)
	}
	return a
}

// newGateway makes a gateway before upstream with a route for everything.
func (s *server) newGateway(upstream string, more map[string]any) string {
	s.t.Helper()
	body := map[string]any{"name": "test", "upstream_url": upstream}
	for k, v := range more {
		body[k] = v
	}
	id := s.call(http.StatusCreated, "POST", "/v1/gateways", body).str(s.t, "gateway_id")
	s.call(http.StatusCreated, "POST", "/v1/gateways/"+id+"/routes", map[string]any{
		"path": "/*", "methods": []string{"GET", "POST", "PUT", "PATCH", "DELETE"},
	})
	return id
}

// newKey makes a key and returns its identifier and string.
func (s *server) newKey(more map[string]any) (id, key string) {
	s.t.Helper()
	body := map[string]any{"name": "test", "scope": "admin"}
	for k, v := range more {
		body[k] = v
	}
	a := s.call(http.StatusCreated, "POST", "/v1/keys", body)
	return a.str(s.t, "key_id"), a.str(s.t, "key")
}

// newBriefKey makes a key that expires after lasts, or later on a machine so slow
// that its time was over before it was made.
func (s *server) newBriefKey(lasts time.Duration) {
	s.t.Helper()
	for ; ; lasts *= 2 {
		expires := time.Now().Add(lasts)
		a, err := s.try(s.key, "POST", "/v1/keys", map[string]any{"name": "test", "scope": "admin", "expires_at": expires.UTC().Format(time.RFC3339Nano)})
		if err != nil {
			s.t.Fatal(err)
		}
		if a.status == http.StatusCreated {
			return
		}
		if a.status != http.StatusUnprocessableEntity || time.Now().Before(expires) {
			s.t.Fatalf("a key that expires in %v: status %d\n%s", lasts, a.status, a.body)
		}
	}
}

// through makes one request through the data plane on a connection of its own
// pool, with the target byte for byte as given.
func (s *server) through(method, target, key string, headers ...string) (answer, error) {
	req := &http.Request{Method: method, Header: http.Header{}, Host: "localhost"}
	req.URL = rawURL(s.gateway, target)
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			req.Host = value
			continue
		}
		req.Header.Add(name, value)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	resp, err := planeClient.Do(req.WithContext(ctx))
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, data}, err
}

var planeClient = &http.Client{
	Transport:     &http.Transport{MaxIdleConnsPerHost: 16, DisableCompression: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

func (s *server) mustThrough(want int, method, target, key string, headers ...string) answer {
	s.t.Helper()
	a, err := s.through(method, target, key, headers...)
	if err != nil {
		s.t.Fatalf("%s %s: %v\n%s", method, target, err, s.output)
	}
	if a.status != want {
		s.t.Fatalf("%s %s: status %d, want %d\n%s", method, target, a.status, want, a.body)
	}
	return a
}
