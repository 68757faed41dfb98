// Package e2e tests the built binary as a separate process, through its public
// interfaces only.
package e2e

import (
	"bytes"
	"cmp"
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

	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/keygatetest/binarytest"
	"github.com/keygate/keygate/internal/keygatetest/porttest"
)

// binary is the path of the keygate that TestMain built.
var binary string

func TestMain(m *testing.M) {
	os.Exit(binarytest.Run(m, &binary))
}

// server is a keygate process with its own data directory.
type server struct {
	t       *testing.T
	program string // the binary that runs; "" means the binary that TestMain built
	dataDir string
	flags   []string
	files   int    // the limit of open files; 0 means the test's limit
	gateway string // host:port of the data plane
	admin   string
	ops     string
	key     string   // the admin key of the account default
	env     []string // further environment variables of the process
	cmd     *exec.Cmd
	output  *syncBuffer
	stdio   *os.File // standard output and standard error of the process; nil means output
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
// ready. It is killed when the test ends.
func startServer(t *testing.T, flags ...string) *server {
	t.Helper()
	return startServerWithFiles(t, 0, flags...)
}

// startBinary is startServer of another binary.
func startBinary(t *testing.T, program string) *server {
	t.Helper()
	return (&server{t: t, program: program}).startFirst()
}

// startServerWithFiles is startServer with a limit of open files.
func startServerWithFiles(t *testing.T, files int, flags ...string) *server {
	t.Helper()
	return (&server{t: t, flags: flags, files: files}).startFirst()
}

// startFirst starts the process on free ports, with a new data directory.
func (s *server) startFirst() *server {
	t := s.t
	t.Helper()
	s.dataDir = filepath.Join(t.TempDir(), "data")
	s.gateway, s.admin, s.ops = porttest.Reserve(t), porttest.Reserve(t), porttest.Reserve(t)
	s.start()
	key, err := os.ReadFile(filepath.Join(s.dataDir, "admin.key"))
	if err != nil {
		t.Fatalf("the first start did not write admin.key: %v\n%s", err, s.output)
	}
	s.key = strings.TrimSpace(string(key))
	t.Cleanup(func() { s.end(syscall.SIGKILL) })
	return s
}

// start starts the process and waits until it is ready.
func (s *server) start() {
	s.t.Helper()
	// Idle connections may lead to the previous process, and net/http does not
	// retry requests that are not idempotent.
	adminClient.CloseIdleConnections()
	planeClient.CloseIdleConnections()
	args := append([]string{
		"serve", "--data-dir", s.dataDir, "--gateway-addr", s.gateway,
		"--admin-addr", s.admin, "--ops-addr", s.ops,
	}, s.flags...)
	s.cmd = exec.Command(cmp.Or(s.program, binary), args...)
	if s.files > 0 {
		limit := fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, s.files)
		s.cmd = exec.Command("sh", append([]string{"-c", limit, cmp.Or(s.program, binary)}, args...)...)
	}
	s.cmd.Env = append(os.Environ(), s.env...)
	s.output = &syncBuffer{}
	s.cmd.Stdout, s.cmd.Stderr = s.output, s.output
	if s.stdio != nil {
		s.cmd.Stdout, s.cmd.Stderr = s.stdio, s.stdio
	}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	exited := make(chan error, 1)
	s.exited = exited
	go func(cmd *exec.Cmd) { exited <- cmd.Wait() }(s.cmd)
	ready := awaittest.Holds(func() bool {
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
		s.t.Fatalf("keygate exited before it was ready: %v\n%s", err, s.output)
	default:
	}
	if !ready {
		s.t.Fatalf("keygate was not ready after %v\n%s", awaittest.Timeout, s.output)
	}
}

// end sends the process a signal, waits for it to exit and returns its exit
// status, or -1 if it was killed or had exited before.
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
	case <-time.After(awaittest.Timeout):
		_ = s.cmd.Process.Kill()
		s.t.Fatalf("keygate did not exit within %v after %v\n%s", awaittest.Timeout, sig, s.output)
		return -1
	}
}

// restart ends the process with sig and starts it again with the same data.
func (s *server) restart(sig syscall.Signal) {
	s.t.Helper()
	s.end(sig)
	s.start()
}

// response is an HTTP response with its whole body.
type response struct {
	status int
	header http.Header
	body   []byte
}

func (a response) json(t *testing.T) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(a.body, &m); err != nil {
		t.Fatalf("status %d: the body is not a JSON object: %v\n%s", a.status, err, a.body)
	}
	return m
}

// field returns a string field of the JSON body.
func (a response) field(t *testing.T, name string) string {
	t.Helper()
	s, ok := a.json(t)[name].(string)
	if !ok {
		t.Fatalf("status %d: no string field %q in %s", a.status, name, a.body)
	}
	return s
}

// try makes a management call with the given key and additional headers
// ("Name: value"). body may be nil, a string, a []byte or a value to encode as JSON.
func (s *server) try(key, method, path string, body any, headers ...string) (response, error) {
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
			return response{}, err
		}
		r = bytes.NewReader(j)
	}
	ctx, cancel := context.WithTimeout(context.Background(), awaittest.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+s.admin+path, r)
	if err != nil {
		return response{}, err
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
		return response{}, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return response{resp.StatusCode, resp.Header, data}, err
}

var adminClient = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}

// call makes a management call with the admin key and fails the test unless the
// status is want.
func (s *server) call(want int, method, path string, body any, headers ...string) response {
	s.t.Helper()
	a, err := s.try(s.key, method, path, body, headers...)
	if err != nil {
		s.t.Fatalf("%s %s: %v\n%s", method, path, err, s.output)
	}
	if a.status != want {
		s.t.Fatalf("%s %s: got status %d, want %d\n%s", method, path, a.status, want, a.body)
	}
	return a
}

// newGateway creates a gateway in front of upstream with a route for all paths. more
// holds additional fields.
func (s *server) newGateway(upstream string, more map[string]any) string {
	s.t.Helper()
	body := map[string]any{"name": "test", "upstream_url": upstream, "allow_duplicate": true}
	for k, v := range more {
		body[k] = v
	}
	id := s.call(http.StatusCreated, "POST", "/v1/gateways", body).field(s.t, "gateway_id")
	s.call(http.StatusCreated, "POST", "/v1/gateways/"+id+"/routes", map[string]any{
		"path": "/*", "methods": []string{"GET", "POST", "PUT", "PATCH", "DELETE"},
	})
	return id
}

// newKey creates a key and returns its identifier and the full key. more holds
// additional fields.
func (s *server) newKey(more map[string]any) (id, key string) {
	s.t.Helper()
	body := map[string]any{"name": "test", "scope": "admin"}
	for k, v := range more {
		body[k] = v
	}
	a := s.call(http.StatusCreated, "POST", "/v1/keys", body)
	return a.field(s.t, "key_id"), a.field(s.t, "key")
}

// newExpiringKey creates a key that expires after lifetime, or after longer if the
// machine is so slow that the key would have expired before it was created.
func (s *server) newExpiringKey(lifetime time.Duration) {
	s.t.Helper()
	for ; ; lifetime *= 2 {
		expires := time.Now().Add(lifetime)
		a, err := s.try(s.key, "POST", "/v1/keys", map[string]any{"name": "test", "scope": "admin", "expires_at": expires.UTC().Format(time.RFC3339Nano)})
		if err != nil {
			s.t.Fatal(err)
		}
		if a.status == http.StatusCreated {
			return
		}
		if a.status != http.StatusUnprocessableEntity || time.Now().Before(expires) {
			s.t.Fatalf("create a key that expires in %v: got status %d, want 201\n%s", lifetime, a.status, a.body)
		}
	}
}

// send sends one request to the data plane, with the request target byte for byte
// as given. Its connections are not shared with management calls.
func (s *server) send(method, target, key string, headers ...string) (response, error) {
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
	ctx, cancel := context.WithTimeout(context.Background(), awaittest.Timeout)
	defer cancel()
	resp, err := planeClient.Do(req.WithContext(ctx))
	if err != nil {
		return response{}, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return response{resp.StatusCode, resp.Header, data}, err
}

var planeClient = &http.Client{
	Transport:     &http.Transport{MaxIdleConnsPerHost: 16, DisableCompression: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// mustSend is send, and fails the test unless the status is want.
func (s *server) mustSend(want int, method, target, key string, headers ...string) response {
	s.t.Helper()
	a, err := s.send(method, target, key, headers...)
	if err != nil {
		s.t.Fatalf("%s %s: %v\n%s", method, target, err, s.output)
	}
	if a.status != want {
		s.t.Fatalf("%s %s: got status %d, want %d\n%s", method, target, a.status, want, a.body)
	}
	return a
}
