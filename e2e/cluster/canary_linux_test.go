package cluster

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/canary"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
)

// callersOfSide is how many callers each side of a canary has at 50 %, at least.
const callersOfSide = 12

// canaryNodes is three nodes, and callers who go round them.
type canaryNodes struct {
	*fleet
	api         []*client.Client // of each node, to change canaries
	watch       []*client.Client // and to look at them
	next, other []string         // callers, by the upstream that they have at 50 %, which is the same for all canaries
}

func newCanaryNodes(t *testing.T) *canaryNodes {
	t.Helper()
	f, operator := newNodes(t, "5s")
	c := &canaryNodes{fleet: f}
	level := client.CreateKeyRequestLevelAccount
	for _, n := range f.nodes {
		c.api = append(c.api, n.client(operator, awaittest.Timeout))
		k := must(f, func() (*client.NewKey, error) {
			return c.api[0].CreateKey(t.Context(), client.CreateKeyRequest{Name: "watcher", Scope: "read", Level: &level})
		})
		c.watch = append(c.watch, n.client(k.Secret, awaittest.Timeout))
	}
	return c
}

// watched is a canary, of a gateway of its own.
type watched struct {
	*canaryNodes
	host, gateway, id string
	fails             atomic.Bool // its upstream fails
	sent              int64       // requests to its upstream in the present step
}

// start starts a canary on a gateway with the host name.
func (c *canaryNodes) start(host string, in client.StartCanaryRequest) *watched {
	c.Helper()
	w := &watched{canaryNodes: c, host: host}
	ctx := c.Context()
	w.gateway = must(c.fleet, func() (*client.Gateway, error) {
		return c.api[0].CreateGateway(ctx, client.CreateGatewayRequest{Name: host, Hostname: &host, UpstreamURL: c.upstream("default", new(atomic.Bool))})
	}).GatewayID
	must(c.fleet, func() (*client.Upstream, error) {
		return c.api[0].PutUpstream(ctx, w.gateway, "next", client.UpstreamPatch{Targets: client.Set([]client.TargetInput{{URL: c.upstream("next", &w.fails)}})})
	})
	must(c.fleet, func() (*client.Route, error) {
		return c.api[0].CreateRoute(ctx, w.gateway, client.CreateRouteRequest{Path: "/a", Methods: []string{"GET"}})
	})
	in.Upstream = "next"
	w.id = must(c.fleet, func() (*client.StartedCanary, error) { return c.api[0].StartCanary(ctx, w.gateway, in) }).CanaryID
	return w
}

// upstream serves as the upstream of a name, which fails while fails is set.
func (c *canaryNodes) upstream(name string, fails *atomic.Bool) string {
	s := httptest.NewServer(http.HandlerFunc(func(res http.ResponseWriter, _ *http.Request) {
		res.Header().Set("X-Upstream", name)
		if fails.Load() {
			res.WriteHeader(http.StatusInternalServerError)
		}
	}))
	c.Cleanup(s.Close)
	return s.URL
}

// findCallers makes callers until each side of a canary at 50 % has enough of them.
func (c *canaryNodes) findCallers(w *watched) {
	c.Helper()
	for len(c.next) < callersOfSide || len(c.other) < callersOfSide {
		if len(c.next)+len(c.other) > 20*callersOfSide {
			c.Fatalf("%d callers have the upstream next and %d the other one, want half of them each", len(c.next), len(c.other))
		}
		k := must(c.fleet, func() (*client.NewKey, error) {
			return c.api[0].CreateKey(c.Context(), client.CreateKeyRequest{Name: "caller", Scope: "read"})
		})
		if w.call(0, k.Secret) == "next" {
			c.next = append(c.next, k.Secret)
		} else {
			c.other = append(c.other, k.Secret)
		}
	}
}

// once sends each request once, over a connection of its own.
var once = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: callTimeout}

// call sends a request of a caller through a node, and returns the name of the upstream that has responded.
func (w *watched) call(node int, key string) string {
	w.Helper()
	req, err := http.NewRequestWithContext(w.Context(), http.MethodGet, "http://"+w.nodes[node].gateway+"/a", http.NoBody)
	if err != nil {
		w.Fatal(err)
	}
	req.Host = w.host
	req.Header.Set("Authorization", "Bearer "+key)
	var upstream string
	awaittest.True(w, w.nodes[node].name+" to serve", func() bool { // on a busy machine, its lease may end
		res, err := once.Do(req)
		if err != nil {
			w.Fatal(err)
		}
		defer res.Body.Close()
		_, _ = io.Copy(io.Discard, res.Body)
		upstream = res.Header.Get("X-Upstream")
		return res.StatusCode != http.StatusServiceUnavailable
	})
	return upstream
}

// send sends requests to the upstream of the canary, in turn through the nodes and of all of its callers.
func (w *watched) send(n int64, nodes ...int) {
	w.Helper()
	for i := range n {
		if got := w.call(nodes[int(i)%len(nodes)], w.next[int(i)%len(w.next)]); got != "next" {
			w.Fatalf("%s: a caller of next was sent to %q", w.host, got)
		}
	}
	w.sent += n
}

// await waits until a node shows the record as wanted.
func (w *watched) await(node int, what string, is func(*client.Canary) bool) *client.Canary {
	w.Helper()
	var last *client.Canary
	if !awaittest.Holds(func() bool {
		now, err := w.watch[node].Canary(w.Context(), w.gateway, w.id)
		if err == nil {
			last = now
		} else if !refused(err, http.StatusServiceUnavailable, http.StatusTooManyRequests) {
			w.Fatal(err)
		}
		return err == nil && is(now)
	}) {
		w.Fatalf("%s: waited for %s; the canary is %+v", w.host, what, last)
	}
	return last
}

// read returns the record, as a node shows it.
func (w *watched) read(node int) *client.Canary {
	w.Helper()
	return w.await(node, "the record", func(*client.Canary) bool { return true })
}

// presentStep returns what the present step has counted.
func presentStep(c *client.Canary) client.CanaryProgress { return c.Progress[len(c.Progress)-1] }

// awaitSent waits until everything that was sent to the upstream of the canary is counted. If more is counted at any time, a request
// was counted twice.
func (w *watched) awaitSent(node int) {
	w.Helper()
	w.await(node, fmt.Sprintf("%d requests to be counted", w.sent), func(c *client.Canary) bool {
		n := presentStep(c).Next.Requests
		if n > w.sent {
			w.Fatalf("%s: %d requests were counted, and %d were sent", w.host, n, w.sent)
		}
		return n == w.sent
	})
}

// warm waits until a node counts the requests of canaries, which it does when it has read whom they leave out. It sends to the other
// upstream alone.
func warm(node int, list ...*watched) {
	w := list[0]
	w.Helper()
	before := map[string]int64{}
	for _, w := range list {
		before[w.id] = presentStep(w.read(node)).Other.Requests
	}
	awaittest.True(w, w.nodes[node].name+" to count requests of canaries", func() bool {
		list = slices.DeleteFunc(list, func(w *watched) bool { return presentStep(w.read(node)).Other.Requests > before[w.id] })
		for _, w := range list {
			w.call(node, w.other[0])
		}
		<-time.After(100 * time.Millisecond) // requests beyond the one that counts prove nothing
		return len(list) == 0
	})
}

// wantSides checks that each caller has one upstream, through each of the nodes.
func (w *watched) wantSides(next, other string, nodes ...int) {
	w.Helper()
	for want, keys := range map[string][]string{next: w.next, other: w.other} {
		for i, key := range keys {
			for _, node := range nodes {
				if got := w.call(node, key); got != want {
					w.Errorf("%s: %s sent caller %d of the upstream %s to %q", w.host, w.nodes[node].name, i, want, got)
				}
			}
		}
	}
}

// wantEvents checks how many events of a type the canary has.
func (w *watched) wantEvents(eventType string, want int) {
	w.Helper()
	got := 0
	for e, err := range w.watch[0].Events(w.Context(), client.EventFilter{Type: eventType}) {
		if err != nil {
			w.Fatal(err)
		}
		if strings.Contains(string(e.Data), w.id) {
			got++
		}
	}
	if got != want {
		w.Errorf("%s: got %d events %s, want %d", w.host, got, eventType, want)
	}
}

// leader waits until one of the nodes judges canaries and the others do not, and returns it.
func (c *canaryNodes) leader(nodes ...int) (leader int) {
	c.Helper()
	awaittest.True(c, "one node to judge canaries", func() bool {
		judge := 0
		for _, i := range nodes {
			text, err := c.nodes[i].fetch("/metrics")
			if err != nil {
				return false
			}
			if _, figure, _ := strings.Cut(text, "\nkeygate_canaries_judged "); !strings.HasPrefix(figure, "0\n") {
				leader, judge = i, judge+1
			}
		}
		return judge == 1
	})
	return leader
}

// others returns the nodes without one of them.
func others(node int) []int {
	return slices.DeleteFunc([]int{0, 1, 2}, func(i int) bool { return i == node })
}

// Guarantee: targets.md, section 8, over three nodes on one database. A canary is judged by the sum of what all nodes have counted; its
// callers have one upstream on all of them; a change of it is in force on all when the call returns. One node judges. If it is killed or
// suspended, another one goes on: each request is counted once, and each step begins once.
func TestCanaryOverNodes(t *testing.T) {
	c := newCanaryNodes(t)
	steps, short, long := &[]float64{50}, new("1m"), new("1h")
	hold, promote := client.StartCanaryRequestWhenDone("hold"), client.StartCanaryRequestWhenDone("promote")
	held := c.start("held.example.org", client.StartCanaryRequest{Steps: steps, Hold: short, MinRequests: new(int64(1)), WhenDone: &hold})
	promoted := c.start("promoted.example.org", client.StartCanaryRequest{Steps: steps, Hold: short, MinRequests: new(int64(1)), WhenDone: &promote})
	led := c.start("led.example.org", client.StartCanaryRequest{Steps: &[]float64{50, 60}, Hold: short, MinRequests: new(int64(ledRequests))})
	failing := c.start("failing.example.org", client.StartCanaryRequest{Steps: steps, Hold: long})
	changed := c.start("changed.example.org", client.StartCanaryRequest{Steps: steps, Hold: long})
	c.findCallers(held)
	held.wantSides("next", "default", 0, 1, 2)
	for node := range c.nodes {
		warm(node, held, promoted, led, failing, changed)
	}
	failing.isAbortedBySum()
	changed.isPausedByPush()
	changed.isAbortedByHand()
	held.passes(client.CanaryStateHeld, "next", "default")
	promoted.passes(client.CanaryStatePromoted, "next", "next")
	led.outlivesLeaders()
	c.verifyAudit()
	if t.Failed() {
		for _, n := range c.nodes {
			t.Logf("%s:\n%s", n.name, &n.output)
		}
	}
}

// isAbortedBySum checks that a canary is aborted whose upstream fails so rarely on each node that the node alone would not see it.
func (w *watched) isAbortedBySum() {
	w.Helper()
	const each = 3 // failed requests of a node
	for i := range int64(90) {
		w.call(int(i)%3, w.other[int(i)%len(w.other)])
	}
	w.fails.Store(true)
	w.send(3*each, 0, 1, 2) // of nine callers
	end := w.await(1, "its abort", func(c *client.Canary) bool { return c.State == client.CanaryStateAborted })
	var bad, all, good int64
	if _, err := fmt.Sscanf(strings.ReplaceAll(end.Explanation, ",", ""), "%d of %d failed on next (100.0 %%) 0 of %d on default (0.0 %%): at least", &bad, &all, &good); err != nil ||
		bad <= each || bad != all || !strings.HasSuffix(end.Explanation, " points more; allowed 1.0") || end.Weight != nil {
		w.Errorf("got %q with the weight %v, want the failed requests of more than one node", end.Explanation, end.Weight)
	}
	alone := canary.NewStep() // as if one node had seen everything on the other upstream as well
	alone.Add(canary.Other, 0, canary.Counts{Requests: uint64(good)})
	for caller := range uint64(each) {
		alone.Add(canary.Next, caller, canary.Counts{Requests: 1, Bad: 1})
	}
	if d := alone.Decide(&canary.Config{Next: "next", Other: "default", Hold: time.Hour, Errors: true, MoreThan: 1}, time.Minute); d.Action != canary.Wait {
		w.Errorf("one node alone decides %q: the test proves too little", d.Explanation)
	}
	w.wantEvents("canary.aborted", 1)
	for node := range w.nodes { // what the leader decides is acknowledged after it is stored
		awaittest.True(w, "the abort to be in force on "+w.nodes[node].name, func() bool { return w.call(node, w.next[0]) == "default" })
	}
	w.wantSides("default", "default", 0, 1, 2)
}

// isPausedByPush checks that a push through one node pauses a canary on all of them, and that nothing counts until it is resumed.
func (w *watched) isPausedByPush() {
	w.Helper()
	w.send(3, 0, 1, 2)
	w.awaitSent(2)
	must(w.fleet, func() (*client.Push, error) {
		return w.api[1].PushConfig(w.Context(), w.gateway, []byte("routes:\n  - {path: /a, methods: [GET], rate_limit: {sustained: 1000/s}}\n"), false)
	})
	for node := range w.nodes {
		if now := w.read(node); now.State != client.CanaryStatePaused || !strings.HasPrefix(now.Explanation, "revision 1 changes the route /a") {
			w.Errorf("after a push, %s shows the state %s: %s", w.nodes[node].name, now.State, now.Explanation)
		}
	}
	w.wantEvents("canary.paused", 1)
	w.wantSides("next", "default", 0, 1, 2)
	must(w.fleet, func() (*client.Canary, error) { return w.api[2].ResumeCanary(w.Context(), w.gateway, w.id) })
	w.send(6, 0, 1, 2)
	w.awaitSent(0)
}

// isAbortedByHand checks that no node sends a caller to the upstream of a canary any more when a call has aborted it.
func (w *watched) isAbortedByHand() {
	w.Helper()
	must(w.fleet, func() (*client.Canary, error) { return w.api[0].AbortCanary(w.Context(), w.gateway, w.id) })
	w.wantSides("default", "default", 0, 1, 2)
	if now := w.read(1); now.State != client.CanaryStateAborted || presentStep(now).Next.Requests != w.sent {
		w.Errorf("got the state %s with %d requests, want %d", now.State, presentStep(now).Next.Requests, w.sent)
	}
}

// passes checks that a canary passes its step by itself, and where callers of next and of the other upstream are sent then.
func (w *watched) passes(state client.CanaryState, next, other string) {
	w.Helper()
	w.send(3, 0, 1, 2)
	w.await(0, "the end of its step", func(c *client.Canary) bool { return c.State == state })
	w.wantEvents("canary.aborted", 0)
	if state == client.CanaryStatePromoted {
		w.wantEvents("canary.promoted", 1)
	} else {
		w.wantEvents("canary.advanced", 1)
	}
	for node := range w.nodes {
		awaittest.True(w, "the promotion to be in force on "+w.nodes[node].name, func() bool { return w.call(node, w.other[0]) == other })
	}
	w.wantSides(next, other, 0, 1, 2)
}

// ledRequests is how many requests outlivesLeaders sends to the upstream of its canary, which is as many as its step needs.
const ledRequests = 36

// outlivesLeaders checks what becomes of a step whose leader is killed, and the one after it suspended.
func (w *watched) outlivesLeaders() {
	w.Helper()
	for i := range int64(ledRequests) {
		w.call(int(i)%3, w.other[int(i)%len(w.other)])
	}
	w.send(ledRequests/3, 0, 1, 2)
	w.awaitSent(0)
	first := w.leader(0, 1, 2)
	n := w.nodes[first]
	n.end(syscall.SIGKILL)
	left := others(first)
	second := w.leader(left...)
	w.send(ledRequests/3, left...)
	w.awaitSent(left[0])
	n.start()
	warm(first, w)

	n = w.nodes[second]
	n.signal(syscall.SIGSTOP)
	left = others(second)
	third := w.leader(left...)
	n.signal(syscall.SIGCONT)
	n.awaitReady()
	warm(second, w)
	w.leader(0, 1, 2)
	if now := w.read(third); now.Step != 1 || presentStep(now).Next.Requests != w.sent {
		w.Errorf("got %d requests in step %d, want %d in the first", presentStep(now).Next.Requests, now.Step, w.sent)
	}

	w.send(ledRequests/3, 0, 1, 2)
	w.await(third, "the second step", func(c *client.Canary) bool { return c.Step == 2 })
	must(w.fleet, func() (*client.NewKey, error) { // changes are in force in their order, so that the step is in force on all nodes then
		return w.api[third].CreateKey(w.Context(), client.CreateKeyRequest{Name: "last", Scope: "read"})
	})
	w.sent = 0
	w.send(6, 0, 1, 2)
	w.awaitSent(first)
	if end := w.read(second); end.Step != 2 || len(end.Progress) != 2 || end.Progress[0].Next.Requests != ledRequests || end.State != client.CanaryStateRunning {
		w.Errorf("got step %d (%s) with the progress %+v, want the second one, and %d requests in the first", end.Step, end.State, end.Progress, ledRequests)
	}
	w.wantEvents("canary.advanced", 1)
}
