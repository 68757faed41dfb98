package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/keygatetest/needtest"
	"github.com/keygate/keygate/internal/keygatetest/porttest"
	"github.com/keygate/keygate/internal/keygatetest/redistest"
)

// cluster is what deploy/run-cluster runs.
type cluster struct {
	t         *testing.T
	script    *exec.Cmd
	output    *syncBuffer
	exited    chan error
	addrs     []string // of the gateway, the management API and the operations of each node, and of the stores
	directory string
	nodes     []int // processes
	postgres  int
	redis     int
	key       string // the admin key
}

// startCluster runs the script, and waits until it says that everything runs.
func startCluster(t *testing.T) *cluster {
	t.Helper()
	redistest.Need(t)
	needtest.Program(t, "setpriv", "util-linux")
	if found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres"); len(found) == 0 {
		needtest.Missing(t, "PostgreSQL is not installed (Debian: apt-get install postgresql)")
	}
	c := &cluster{t: t, output: &syncBuffer{}, exited: make(chan error, 1)}
	var ports []string
	for range 11 {
		addr := porttest.Reserve(t)
		c.addrs = append(c.addrs, addr)
		ports = append(ports, addr[strings.LastIndexByte(addr, ':')+1:])
	}
	c.script = exec.Command("../deploy/run-cluster", binary)
	c.script.Env = append(os.Environ(), "RUN_CLUSTER_PORTS="+strings.Join(ports, " "), "KEYGATE_LEASE_TTL=5s")
	c.script.Stdout, c.script.Stderr = c.output, c.output
	c.script.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.script.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { c.exited <- c.script.Wait() }()
	t.Cleanup(func() { c.end(syscall.SIGTERM) })
	if !awaittest.Holds(func() bool { return len(c.exited) > 0 || strings.Contains(c.output.String(), "Ctrl-C stops") }) || len(c.exited) > 0 {
		t.Fatalf("the nodes did not start\n%s", c.output)
	}
	text := c.output.String()
	number := func(pattern string) int {
		n, err := strconv.Atoi(regexp.MustCompile(pattern).FindStringSubmatch(text)[1])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for n := 1; n <= 3; n++ {
		c.nodes = append(c.nodes, number(fmt.Sprintf(`node-%d +(\d+)`, n)))
	}
	c.postgres, c.redis = number(`PostgreSQL, process (\d+)`), number(`limit store, process (\d+)`)
	c.directory = regexp.MustCompile(`running, in (\S+)\.\n`).FindStringSubmatch(text)[1]
	content, err := os.ReadFile(filepath.Join(c.directory, "node-1", "admin.key"))
	if err != nil {
		t.Fatal(err)
	}
	c.key = strings.TrimSpace(string(content))
	return c
}

// end sends the script a signal, and returns its exit status.
func (c *cluster) end(signal syscall.Signal) int {
	if c.script == nil {
		return -1
	}
	_ = c.script.Process.Signal(signal)
	select {
	case <-c.exited:
	case <-time.After(awaittest.Timeout):
		c.t.Errorf("the script did not end\n%s", c.output)
		_ = c.script.Process.Kill()
		<-c.exited
	}
	status := c.script.ProcessState.ExitCode()
	c.script = nil
	return status
}

// keygate runs a command on a node, counted from 0, and returns its output without the last line end.
func (c *cluster) keygate(node int, args ...string) (string, error) {
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), "KEYGATE_URL=http://"+c.addrs[3*node+1], "KEYGATE_API_KEY="+c.key)
	var problem bytes.Buffer
	cmd.Stderr = &problem
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("keygate %s: %w\n%s", strings.Join(args, " "), err, problem.String())
	}
	return strings.TrimSpace(string(out)), err
}

func (c *cluster) must(node int, args ...string) string {
	c.t.Helper()
	out, err := c.keygate(node, args...)
	if err != nil {
		c.t.Fatalf("%v\n%s", err, c.output)
	}
	return out
}

// status returns the status of a request through a node with a key, or 0 if there is no response.
func (c *cluster) status(node int, key string) int {
	return status("http://"+c.addrs[3*node]+"/", key)
}

func status(url, key string) int {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return 0
	}
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	return resp.StatusCode
}

// want checks the status of a request through each of some nodes.
func (c *cluster) want(when string, want int, key string, nodes ...int) {
	c.t.Helper()
	for _, node := range nodes {
		if got := c.status(node, key); got != want {
			c.t.Errorf("%s: node-%d responds with %d, want %d", when, node+1, got, want)
		}
	}
}

// awaitUnready waits until /readyz of a node is 503.
func (c *cluster) awaitUnready(node int) {
	c.t.Helper()
	got := 0
	if !awaittest.Holds(func() bool {
		got = status("http://"+c.addrs[3*node+2]+"/readyz", "")
		return got == http.StatusServiceUnavailable
	}) {
		c.t.Errorf("/readyz of node-%d is %d, want 503", node+1, got)
	}
}

func (c *cluster) kill(process int) {
	c.t.Helper()
	if err := syscall.Kill(process, syscall.SIGKILL); err != nil {
		c.t.Fatal(err)
	}
}

// Guarantee: what deploy/run-cluster prints works, and what docs/several-nodes.md says about the loss of
// each of its processes holds: a revoked key is refused by every node once the command has returned, also
// after a node was killed; without the limit store no request fails; without the database the nodes serve
// until their leases end, and then refuse. Ctrl-C leaves no process and no file.
func TestRunCluster(t *testing.T) {
	t.Parallel()
	up := newRecordingUpstream(t)
	c := startCluster(t)
	if got := c.must(1, "nodes", "list", "--jq", `map(select(.state == "live")) | length`); got != "3" {
		t.Errorf("%s nodes have a lease, want 3", got)
	}
	c.must(0, "gateways", "create", "--name", "site", "--upstream-url", up.URL)
	c.must(0, "routes", "create", "--gateway", "site", "--path", "/*", "--method", "GET", "--sustained", "100/min")
	newKey := func(node int, name string) string {
		return c.must(node, "keys", "create", "--name", name, "--scope", "read", "--jq", ".key")
	}
	lasting, short := newKey(0, "lasting"), newKey(0, "me")
	c.want("after its creation", http.StatusOK, short, 0, 1, 2)
	c.must(1, "keys", "revoke", "me", "--yes")
	c.want("after its revocation", http.StatusUnauthorized, short, 0, 1, 2)

	c.kill(c.redis)
	c.want("without the limit store", http.StatusOK, lasting, 0, 1, 2)

	second := newKey(2, "second")
	c.kill(c.nodes[1])
	c.must(0, "keys", "revoke", "second", "--yes") // waits for the lease of the node that was killed
	c.want("after a node was killed", http.StatusUnauthorized, second, 0, 2)
	if got := c.must(2, "nodes", "list", "--jq", `map(select(.state != "live")) | map(.name) | join(" ")`); got != "node-2" {
		t.Errorf("the nodes %q have no lease, want node-2", got)
	}

	c.kill(c.postgres)
	c.awaitUnready(0)
	c.awaitUnready(2)
	c.want("without the database, after the lease", http.StatusServiceUnavailable, lasting, 0, 2)
	if got := status("http://"+c.addrs[2]+"/livez", ""); got != http.StatusOK {
		t.Errorf("/livez is %d without a lease, want 200", got)
	}
	if _, err := c.keygate(0, "keys", "revoke", "lasting", "--yes"); err == nil {
		t.Error("a key was revoked without the database")
	}

	if got := c.end(syscall.SIGINT); got != 130 {
		t.Errorf("the script exits with %d, want 130", got)
	}
	if _, err := os.Stat(c.directory); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there", c.directory)
	}
	for _, process := range slices.Concat(c.nodes, []int{c.postgres, c.redis}) {
		if err := syscall.Kill(process, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("the process %d is still there: %v", process, err)
		}
	}
}
