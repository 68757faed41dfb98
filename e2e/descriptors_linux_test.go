package e2e

import (
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/keygatetest/proctest"
)

// idle opens n connections to addr and leaves them open, each with the start of a head.
func idle(t *testing.T, addr string, n int) {
	t.Helper()
	for range n {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_, _ = io.WriteString(c, "G")
	}
}

// Guarantee: contract 1. With few file descriptors the server says at its start that it allows
// fewer client connections, and however many idle clients there are on all three listeners,
// the management API, the probes, the metrics, webhooks and the store work, and a request on
// an open connection is served.
func TestFewDescriptors(t *testing.T) {
	t.Parallel()
	const files = 256
	s := startServerWithFiles(t, files, webhookFlags()...)
	if !strings.Contains(s.output.String(), "max-connections is lowered") || !strings.Contains(s.output.String(), "LimitNOFILE") {
		t.Errorf("the log does not say that max-connections is lowered, and what to do:\n%s", s.output)
	}
	up := newEcho(t)
	s.newGateway(up, nil)
	_, key := s.newKey(nil)
	receiver := newReceiver(t)
	s.newWebhook(receiver.URL, "key.created")
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}}
	request := func() {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.gateway+"/a", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+key)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatalf("a request on an open connection: %v\n%s", err, s.output)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("a request on an open connection got %d, want 200", resp.StatusCode)
		}
	}
	request()
	for _, addr := range []string{s.gateway, s.admin, s.ops} {
		idle(t, addr, 2*files)
	}
	request()
	for _, path := range []string{"/livez", "/readyz", "/metrics"} {
		probe := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: awaittest.Timeout}
		resp, err := probe.Get("http://" + s.ops + path)
		if err != nil {
			t.Fatalf("%s: %v\n%s", path, err, s.output)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s: got status %d, want 200", path, resp.StatusCode)
		}
	}
	adminClient.CloseIdleConnections()
	for range 5 {
		s.newKey(nil)
	}
	if !awaittest.Holds(func() bool { return len(receiver.all()) >= 5 }) {
		t.Errorf("%d of 5 events arrived", len(receiver.all()))
	}
	s.call(http.StatusOK, "GET", "/v1/audit-log", nil)
	if open := proctest.CountDescriptors(t, strconv.Itoa(s.cmd.Process.Pid)).Total(); open > files-32 {
		t.Errorf("the server has %d of %d descriptors open, want a reserve", open, files)
	}
	if strings.Contains(s.output.String(), "too many open files") {
		t.Errorf("the server ran out of descriptors:\n%s", s.output)
	}
}
