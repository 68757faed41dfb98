package cluster

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/keygatetest/cabletest"
	"github.com/keygate/keygate/internal/keygatetest/porttest"
	"github.com/keygate/keygate/internal/keygatetest/postgrestest"
)

// node is a keygate process. Its cables lead to the stores.
type node struct {
	t        *testing.T
	name     string
	args     []string
	operator string // key of the account default
	database *cabletest.Cable
	limits   *cabletest.Cable

	dataDir string
	gateway string // host:port of the data plane
	admin   string
	ops     string

	cmd    *exec.Cmd
	exited chan error
	output outputTail

	// disturbed counts the faults of the process itself, each twice: before and after it. A
	// connection may break only if the count is odd or has changed.
	disturbed atomic.Int64
}

// outputTail keeps the end of a node's output.
type outputTail struct {
	mu  sync.Mutex
	end []byte
}

const maxTail = 16 << 10

func (o *outputTail) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.end = append(o.end, p...)
	o.end = bytes.Clone(o.end[max(0, len(o.end)-maxTail):])
	return len(p), nil
}

func (o *outputTail) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.end)
}

// newNode returns a node that is not started. Its data directory and its ports stay the same.
func newNode(t *testing.T, name, operator string, args ...string) *node {
	t.Helper()
	n := &node{
		t: t, name: name, operator: operator, dataDir: filepath.Join(t.TempDir(), name),
		gateway: porttest.Reserve(t), admin: porttest.Reserve(t), ops: porttest.Reserve(t),
	}
	n.args = append([]string{
		"serve", "--node-name", name, "--data-dir", n.dataDir, "--gateway-addr", n.gateway, "--admin-addr", n.admin, "--ops-addr", n.ops,
		"--log-level", "warn", "--pprof",
	}, args...)
	t.Cleanup(func() { n.end(syscall.SIGKILL) })
	return n
}

// newNodes starts three nodes on one database, without a limit store. operator is the key of the account default.
func newNodes(t *testing.T, leaseTTL string) (f *fleet, operator string) {
	t.Helper()
	operator, err := apikey.Generate(apikey.AccountLevel, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	f = &fleet{T: t, url: postgrestest.Start(t, postgrestest.Config{}).Database(t, "")}
	secret := filepath.Join(t.TempDir(), "secret.key")
	text := make([]byte, 32)
	_, _ = rand.Read(text)
	if err := os.WriteFile(secret, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"one", "two", "three"} {
		n := newNode(t, name, operator, "--database-url", f.url, "--secret-key-file", secret, "--lease-ttl", leaseTTL)
		f.nodes = append(f.nodes, n)
		n.run()
	}
	for _, n := range f.nodes {
		n.awaitReady()
	}
	return f, operator
}

// run starts the process.
func (n *node) run() {
	n.t.Helper()
	cmd := exec.Command(binary, n.args...)
	cmd.Env = append(os.Environ(), "KEYGATE_ADMIN_KEY="+n.operator)
	cmd.Stdout, cmd.Stderr = &n.output, &n.output
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	exited := make(chan error, 1)
	n.cmd, n.exited = cmd, exited
	go func() { exited <- cmd.Wait() }()
}

// start starts the process and waits until it is ready.
func (n *node) start() {
	n.t.Helper()
	n.run()
	n.awaitReady()
}

// awaitReady waits until /readyz returns 200.
func (n *node) awaitReady() {
	n.t.Helper()
	var last error
	if !awaittest.Holds(func() bool {
		select {
		case err := <-n.exited:
			n.exited <- err
			n.t.Fatalf("%s exited: %v\n%s", n.name, err, &n.output)
		default:
		}
		_, last = n.fetch("/readyz")
		return last == nil
	}) {
		n.t.Fatalf("%s is not ready: %v\n%s", n.name, last, &n.output)
	}
}

var opsClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}

// fetch returns the body of a response with status 200 of the operations address.
func (n *node) fetch(path string) (string, error) {
	res, err := opsClient.Get("http://" + n.ops + path)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = errors.New(res.Status + ": " + string(body))
	}
	return string(body), err
}

func (n *node) signal(sig syscall.Signal) {
	n.t.Helper()
	if err := n.cmd.Process.Signal(sig); err != nil {
		n.t.Fatalf("signal %s: %v", n.name, err)
	}
}

// end ends the process with a signal, and waits until it has exited.
func (n *node) end(sig syscall.Signal) {
	n.t.Helper()
	if n.cmd == nil {
		return
	}
	_ = n.cmd.Process.Signal(sig)
	select {
	case <-n.exited:
	case <-time.After(awaittest.Timeout):
		_ = n.cmd.Process.Kill()
		<-n.exited
		n.t.Errorf("%s did not exit\n%s", n.name, &n.output)
	}
	n.cmd = nil
}

// api returns a client of the management API.
func (n *node) api(key string) *client.Client { return n.client(key, managementTimeout) }

// client returns a client of the management API whose calls may take so long.
func (n *node) client(key string, timeout time.Duration) *client.Client {
	n.t.Helper()
	c, err := client.New(client.Config{
		URL: n.adminURL(), Key: key, Retries: -1, Timeout: timeout,
		HTTPClient: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}},
	})
	if err != nil {
		n.t.Fatal(err)
	}
	return c
}

func (n *node) adminURL() string { return "http://" + n.admin }

// command runs a command of the binary and returns its output.
func command(ctx context.Context, env []string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, binary, args...)
	c.Env = append(os.Environ(), env...)
	out, err := c.CombinedOutput()
	return string(out), err
}
