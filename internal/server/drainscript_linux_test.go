package server_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/keygatetest"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/keygatetest/porttest"
)

// Guarantee: the commands of examples/deploy/orders.service, in the order in which systemd runs them, add an instance, take it away with
// nothing lost, and bring it back; remove of orders.yaml takes it away for good. If requests are left, the exit status is 1, and the
// message says how many, as it is for a server that is not there. join waits for READY_URL. A key for the upstreams of the gateway
// suffices, and no list of processes shows it.
func TestScriptDeploysWithoutLosingARequest(t *testing.T) {
	a, b := newHeldTarget(t), newHeldTarget(t)
	s := keygatetest.Start(t)
	h := newDrainHarness(t, s, s.AdminKey, a.URL)
	gateway := strings.Split(h.upstream, "/")[3]
	k, err := s.Admin.CreateKey(t.Context(), client.CreateKeyRequest{Name: "deploy", Level: new(client.CreateKeyRequestLevelAccount), Scope: "admin:gateways/" + gateway + "/upstreams"})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "keygate.key")
	if err := os.WriteFile(file, []byte(k.Secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	unit, err := os.ReadFile("../../examples/deploy/orders.service")
	if err != nil {
		t.Fatal(err)
	}
	command := func(setting string) string {
		m := regexp.MustCompile(`(?m)^` + setting + `=-?/usr/local/bin/keygate-target (\w+)$`).FindSubmatch(unit)
		if m == nil {
			t.Fatalf("orders.service has no %s", setting)
		}
		return string(m[1])
	}
	run := func(what, wait string, more ...string) (code int, message string) {
		t.Helper()
		c := exec.CommandContext(t.Context(), "sh", "../../examples/deploy/keygate-target", what)
		c.Env = append(os.Environ(), "KEYGATE_URL="+s.AdminURL(), "KEYGATE_KEY_FILE="+file, "KEYGATE_GATEWAY="+gateway, "TARGET_URL="+b.URL, "DRAIN_WAIT="+wait)
		c.Env = append(c.Env, more...)
		out, err := c.CombinedOutput()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return exit.ExitCode(), string(out)
		} else if err != nil {
			t.Fatal(err)
		}
		return 0, string(out)
	}
	want := func(code int, message string, wantCode int, wantMessage string) {
		t.Helper()
		if code != wantCode || !strings.Contains(message, wantMessage) || strings.Contains(message, k.Secret) {
			t.Fatalf("got exit status %d and %q, want %d and %q", code, message, wantCode, wantMessage)
		}
	}
	start, stop := command("ExecStartPost"), command("ExecStop")
	var asked atomic.Int32
	instance := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable) // it has only begun to start
		}
	}))
	defer instance.Close()
	code, message := run(start, "30s", "READY_URL="+instance.URL)
	if want(code, message, 0, ""); asked.Load() != 2 {
		t.Errorf("READY_URL was asked %d times, want 2: until the instance was ready", asked.Load())
	}
	h.call(200, "PATCH", h.target(a.URL), `{"drain":true}`)
	held := b.hold(s)
	h.call(200, "PATCH", h.target(a.URL), `{"drain":false}`)
	code, message = run(stop, "1s")
	want(code, message, 1, `"in_flight":{`)
	want(code, message, 1, fmt.Sprintf("keygate-target: %s: 202", b.URL))
	stopped := make(chan int, 1)
	go func() { code, _ := run(stop, "10m"); stopped <- code }()
	awaittest.True(t, "the target drains", func() bool { got := h.statusOf(b.URL); return len(got) == 1 && strings.HasSuffix(got[0], " true 1") })
	close(b.release)
	if code := <-stopped; code != 0 {
		t.Errorf("after the last request: got exit status %d, want 0", code)
	}
	if status := <-held; status != 200 {
		t.Errorf("the request that was in flight got %d, want 200", status)
	}
	code, message = run(start, "30s") // the next version of the instance
	want(code, message, 0, "")
	if got := h.statusOf(b.URL); len(got) != 1 || !strings.Contains(got[0], " false 0") {
		t.Errorf("got the status %q, want that it takes part", got)
	}
	for range 2 {
		code, message = run("remove", "30s")
		want(code, message, 0, "")
	}
	code, message = run(stop, "30s", "KEYGATE_URL=http://"+porttest.Reserve(t))
	want(code, message, 1, "curl: ")
	code, message = run("", "30s")
	want(code, message, 2, "keygate-target join")
}
