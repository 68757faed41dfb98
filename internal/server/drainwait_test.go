package server_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/keygate/keygate/internal/keygatetest"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
)

// heldTarget is a target that holds each request with the header X-Hold until it is released.
type heldTarget struct {
	*httptest.Server
	arrived, release chan struct{}
}

func newHeldTarget(t *testing.T) *heldTarget {
	h := &heldTarget{arrived: make(chan struct{}, 16), release: make(chan struct{})}
	h.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Hold") != "" {
			h.arrived <- struct{}{}
			<-h.release
		}
	}))
	t.Cleanup(h.Close)
	return h
}

// hold sends a request through a node that the target holds.
func (h *heldTarget) hold(s *keygatetest.Server) (ended chan int) {
	ended = make(chan int, 1)
	go func() { ended <- s.Through("", "GET", "/a", "", "", "X-Hold", "1").Status }()
	<-h.arrived
	return ended
}

// drainHarness is a gateway with one target.
type drainHarness struct {
	*testing.T
	s        *keygatetest.Server
	key      string
	upstream string // path
}

func newDrainHarness(t *testing.T, s *keygatetest.Server, key, target string) *drainHarness {
	t.Helper()
	h := &drainHarness{t, s, key, ""}
	g := h.call(201, "POST", "/v1/gateways", fmt.Sprintf(`{"name":"g","upstream_url":%q}`, target))
	gateway := "/v1/gateways/" + g["gateway_id"].(string)
	h.upstream = gateway + "/upstreams/default"
	h.call(201, "POST", gateway+"/routes", `{"path":"/a","methods":["GET"],"auth":"none"}`)
	return h
}

// call makes a call. One that the machine is too slow for is repeated, as its message says.
func (h *drainHarness) call(want int, method, path, body string) (record map[string]any) {
	h.Helper()
	awaittest.True(h, "the call is not refused with 503", func() bool {
		r := h.s.Call(method, path, h.key, body)
		if r.Status == http.StatusServiceUnavailable && want != r.Status {
			return false
		}
		if r.Status != want {
			h.Fatalf("%s %s %s: got %d %s, want %d", method, path, body, r.Status, r.Body, want)
		}
		if err := json.Unmarshal([]byte(r.Body), &record); err != nil {
			h.Fatal(err)
		}
		return true
	})
	return record
}

func (h *drainHarness) target(of string) string {
	return h.upstream + "/targets?url=" + url.QueryEscape(of)
}

// later makes a call that waits.
func (h *drainHarness) later(method, path, body string) chan keygatetest.Response {
	ended := make(chan keygatetest.Response, 1)
	go func() { ended <- h.s.Call(method, path, h.key, body) }()
	return ended
}

// statusOf returns the entries of a target, as the node says, draining, and in flight.
func (h *drainHarness) statusOf(target string) (texts []string) {
	h.Helper()
	list, _ := h.call(200, "GET", h.upstream, "")["status"].([]any)
	for _, e := range list {
		s := e.(map[string]any)
		if s["target"] == target {
			texts = append(texts, fmt.Sprintf("%s %s %v %v", s["node"], s["state"], s["draining"], s["in_flight"]))
		}
	}
	return texts
}

// Guarantee: targets.md 6. A call that takes a target away with ?drain waits until nothing is in flight there, what began while it
// was the only target included: 202 says what is left, and 200 that nothing is. It ends with a 409 if the target takes part again.
// What is in flight at a target that was removed counts and is shown.
func TestCallsWaitUntilATargetIsDrained(t *testing.T) {
	a, b := newHeldTarget(t), newHeldTarget(t)
	s := keygatetest.Start(t)
	h := newDrainHarness(t, s, s.AdminKey, a.URL)
	first := a.hold(s)
	got := h.statusOf(a.URL)
	if len(got) != 1 || !strings.HasSuffix(got[0], " healthy false 1") {
		t.Fatalf("got the status %q, want one entry with 1 in flight", got)
	}
	node, _, _ := strings.Cut(got[0], " ")
	h.call(201, "POST", h.upstream+"/targets", fmt.Sprintf(`{"url":%q}`, b.URL))
	h.call(422, "PATCH", h.target(a.URL)+"&drain=30s", `{"weight":2}`)
	h.call(422, "PATCH", h.target(a.URL)+"&drain=30s", `{"drain":false}`)
	h.call(404, "PATCH", h.target("http://x")+"&drain=30s", `{"drain":true}`)
	left := h.call(202, "PATCH", h.target(a.URL)+"&drain=1s", `{"drain":true}`)
	if text, _ := json.Marshal(left); string(text) != fmt.Sprintf(`{"in_flight":{%q:1}}`, node) {
		t.Errorf("got %s, want 1 in flight at %s", text, node)
	}
	if got := h.statusOf(a.URL); len(got) != 1 || !strings.HasSuffix(got[0], " true 1") {
		t.Errorf("got the status %q, want it draining with 1 in flight", got)
	}
	waiting := h.later("PATCH", h.target(a.URL)+"&drain=10m", `{"drain":true}`)
	close(a.release)
	if r := <-waiting; r.Status != 200 || !strings.Contains(r.Body, `"drain":true`) || r.Header.Get("ETag") == "" {
		t.Errorf("after the last request: got %d %s, want 200 with the upstream", r.Status, r.Body)
	}
	if status := <-first; status != 200 {
		t.Errorf("the request that was in flight got %d, want 200", status)
	}

	second := b.hold(s)
	h.call(200, "PATCH", h.target(a.URL), `{"drain":false}`)
	waiting = h.later("PATCH", h.target(b.URL)+"&drain=10m", `{"drain":true}`)
	awaittest.True(t, "the target drains", func() bool { got := h.statusOf(b.URL); return len(got) == 1 && strings.HasSuffix(got[0], " true 1") })
	h.call(200, "PATCH", h.target(b.URL), `{"drain":false}`)
	if r := <-waiting; r.Status != 409 || !strings.Contains(r.Body, "takes part again") {
		t.Errorf("with the target back: got %d %s, want 409", r.Status, r.Body)
	}
	waiting = h.later("DELETE", h.target(b.URL)+"&drain=10m", "")
	awaittest.True(t, "the target is removed, and shown", func() bool {
		got := h.statusOf(b.URL)
		return len(got) == 1 && strings.HasSuffix(got[0], " true 1") && len(h.call(200, "GET", h.upstream, "")["targets"].([]any)) == 1
	})
	close(b.release)
	if r := <-waiting; r.Status != 200 || strings.Contains(r.Body, b.URL) {
		t.Errorf("after the last request: got %d %s, want 200 without the target", r.Status, r.Body)
	}
	<-second
	if got := h.statusOf(b.URL); len(got) != 0 {
		t.Errorf("got the status %q of a target that is gone, want none", got)
	}
}

// Guarantee: targets.md 2 and 6. A tunnel counts as in flight until it ends, also at the only target of an upstream.
func TestTunnelAtAnOnlyTargetCounts(t *testing.T) {
	a := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_, _ = io.Copy(io.Discard, conn)
	}))
	t.Cleanup(a.Close)
	s := keygatetest.Start(t)
	h := newDrainHarness(t, s, s.AdminKey, a.URL)
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.Running().GatewayAddr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /a HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, "101") {
		t.Fatalf("got %q, %v; want a tunnel", line, err)
	}
	h.call(202, "PATCH", h.target(a.URL)+"&drain=1s", `{"drain":true}`)
	waiting := h.later("PATCH", h.target(a.URL)+"&drain=10m", `{"drain":true}`)
	_ = conn.Close()
	if r := <-waiting; r.Status != 200 {
		t.Errorf("after the tunnel: got %d %s, want 200", r.Status, r.Body)
	}
	if r := s.Through("", "GET", "/a", "", ""); r.Status != 502 || !strings.Contains(r.Body, "being drained") {
		t.Errorf("a request to a target that drains got %d %s, want 502", r.Status, r.Body)
	}
}

// Guarantee: targets.md 6. A shutdown of the server ends calls that wait, with a 503 that says that the change stands.
func TestShutdownEndsCallsThatWaitForADrain(t *testing.T) {
	a := newHeldTarget(t)
	s := keygatetest.Start(t)
	h := newDrainHarness(t, s, s.AdminKey, a.URL)
	request := a.hold(s)
	waiting := h.later("PATCH", h.target(a.URL)+"&drain=10m", `{"drain":true}`)
	awaittest.True(t, "the target drains", func() bool { got := h.statusOf(a.URL); return len(got) == 1 && strings.HasSuffix(got[0], " true 1") })
	var stopping sync.WaitGroup
	defer stopping.Wait()
	stopping.Go(s.Stop)
	if r := <-waiting; r.Status != http.StatusServiceUnavailable || !strings.Contains(r.Body, "the change is in force") {
		t.Errorf("got %d %s, want a 503 that says that the change is in force", r.Status, r.Body)
	}
	close(a.release)
	<-request
}

// Guarantee: targets.md 3 and 6, over several nodes: what is in flight on another node holds up the call, and is shown with the
// name of that node; once it has ended, the call is answered. A node whose lease has ended holds up nothing.
func TestDrainWaitsForEveryNode(t *testing.T) {
	a, b := newHeldTarget(t), newHeldTarget(t)
	c := startCluster(t, 2, "--lease-ttl", "5s")
	h := newDrainHarness(t, c.nodes[0], c.operator, a.URL)
	h.call(201, "POST", h.upstream+"/targets", fmt.Sprintf(`{"url":%q}`, b.URL))
	h.call(200, "PATCH", h.target(b.URL), `{"drain":true}`)
	request := a.hold(c.nodes[1])
	h.call(200, "PATCH", h.target(b.URL), `{"drain":false}`)
	left := h.call(202, "PATCH", h.target(a.URL)+"&drain=4s", `{"drain":true}`)
	if text, _ := json.Marshal(left); string(text) != `{"in_flight":{"node-1":1}}` && string(text) != `{"in_flight":{"node-1":null}}` {
		t.Errorf("got %s, want 1 in flight at node-1", text)
	}
	awaittest.True(t, "the state on both nodes is shown", func() bool {
		return fmt.Sprint(h.statusOf(a.URL)) == "[node-0 healthy true 0 node-1 healthy true 1]"
	})
	waiting := h.later("PATCH", h.target(a.URL)+"&drain=10m", `{"drain":true}`)
	close(a.release)
	if r := <-waiting; r.Status != 200 {
		t.Errorf("after the last request: got %d %s, want 200", r.Status, r.Body)
	}
	<-request

	h.call(200, "PATCH", h.target(a.URL), `{"drain":false}`)
	h.call(200, "PATCH", h.target(b.URL), `{"drain":false}`)
	h.call(200, "PATCH", h.target(a.URL), `{"drain":true}`)
	request = b.hold(c.nodes[1])
	h.call(200, "PATCH", h.target(a.URL), `{"drain":false}`)
	waiting = h.later("DELETE", h.target(b.URL)+"&drain=10m", "")
	awaittest.True(t, "the other node has reported", func() bool { return fmt.Sprint(h.statusOf(b.URL)) == "[node-1 healthy true 1]" })
	c.cable.Sever()
	if r := <-waiting; r.Status != 200 {
		t.Errorf("after the lease of the other node: got %d %s, want 200", r.Status, r.Body)
	}
	close(b.release)
	<-request
	c.cable.Mend()
}

// Guarantee: targets.md 3. A call that returns a target ends its ejection on every node before it is answered; if the target is not
// ejected, nothing happens.
func TestTargetIsReturnedOnEveryNode(t *testing.T) {
	c := startCluster(t, 2)
	good := newHeldTarget(t)
	bad := httptest.NewServer(http.NotFoundHandler())
	address := bad.URL
	bad.Close()
	h := newDrainHarness(t, c.nodes[0], c.operator, good.URL)
	h.call(200, "PATCH", h.upstream, fmt.Sprintf(`{"targets":[{"url":%q},{"url":%q}],"ejection":{"failures":1,"base":"1h","max":"1h"},"balance":"round_robin"}`, good.URL, address))
	states := func() string {
		var texts []string
		for _, s := range h.statusOf(address) {
			node, rest, _ := strings.Cut(s, " ")
			state, _, _ := strings.Cut(rest, " ")
			texts = append(texts, node+" "+state)
		}
		return strings.Join(texts, ", ")
	}
	awaittest.True(t, "the target is ejected on both nodes", func() bool {
		for _, n := range c.nodes {
			if r := n.Through("", "GET", "/a", "", ""); r.Status != 200 {
				t.Fatalf("got %d %s, want 200", r.Status, r.Body)
			}
		}
		return states() == "node-0 ejected, node-1 ejected"
	})
	path := h.upstream + "/targets/return?url=" + url.QueryEscape(address)
	h.call(200, "POST", path, "")
	awaittest.True(t, "it is ejected nowhere", func() bool { return !strings.Contains(states(), "ejected") })
	h.call(200, "POST", path, "")
	h.call(404, "POST", h.upstream+"/targets/return?url=http://x", "")
	log := h.call(200, "GET", "/v1/audit-log?kind=management&limit=2", "")
	if text, _ := json.Marshal(log); strings.Count(string(text), "target.return") != 2 || !strings.Contains(string(text), address) {
		t.Errorf("got the audit log %s, want that the target was returned", text)
	}
}
