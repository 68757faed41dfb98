package h1

import (
	"strconv"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/keygatetest/proctest"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// Guarantee: an idle tunnel holds two file descriptors, its two connections, and no pipe.
func TestIdleTunnelHoldsTwoDescriptors(t *testing.T) {
	if !proctest.Alone(t) {
		return
	}
	s := setup{limit: "1000000/s"}
	s.upstream, _ = upstreamOf(t, func(_ string, c *upstreamtest.Conn) string {
		c.Send("HTTP/1.1 101 Switching\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n")
		_, _ = proxy.Pass(c.Conn, c) // io.Copy would hold a pipe here
		return ""
	})
	g := start(t, s)
	open := func() {
		c := g.dial(t)
		c.send("GET /a HTTP/1.1\r\nKEY\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		c.wantStatus("101")
		c.send("ping")
		c.wantBytes("ping")
	}
	open() // descriptors that only the first connection opens do not count
	const tunnels = 100
	before := proctest.CountDescriptors(t, "self")
	for range tunnels {
		open()
	}
	after := proctest.CountDescriptors(t, "self")
	// The client and the upstream in this process have a socket each as well.
	if got, want := after.Sockets-before.Sockets, (2+2)*tunnels; got != want {
		t.Errorf("%d tunnels have %d sockets, want %d", tunnels, got, want)
	}
	if got := after.Pipes - before.Pipes; got != 0 {
		t.Errorf("%d tunnels hold %d ends of pipes, want none", tunnels, got)
	}
}

// Guarantee: long bodies hold at most Config.MaxPipes pipes, however many of them stall, and bodies
// without a pipe pass all the same.
func TestStalledBodiesHoldFewPipes(t *testing.T) {
	if !proctest.Alone(t) {
		return
	}
	const bodies, size, maxPipes = 12, 2 << 20, 3
	release := make(chan struct{})
	s := setup{limit: "1000000/s", maxPipes: maxPipes}
	s.upstream, _ = upstreamOf(t, func(_ string, c *upstreamtest.Conn) string {
		c.Send("HTTP/1.1 200 OK\r\nContent-Length: " + strconv.Itoa(size) + "\r\n\r\n")
		c.Send(strings.Repeat("a", size/2))
		<-release
		return strings.Repeat("b", size/2)
	})
	g := start(t, s)
	before := proctest.CountDescriptors(t, "self")
	var clients []*client
	for range bodies {
		c := g.dial(t)
		c.send("GET /a HTTP/1.1\r\nKEY\r\n\r\n")
		c.wantStatus("200")
		c.bytes(size / 2)
		clients = append(clients, c)
	}
	// A pipe that was given back may serve the next body or stay open until it is collected.
	if got := proctest.CountDescriptors(t, "self").Pipes - before.Pipes; got == 0 || got > 2*maxPipes {
		t.Errorf("%d stalled bodies hold %d ends of pipes, want 1 to %d", bodies, got, 2*maxPipes)
	}
	close(release)
	for _, c := range clients {
		if got := c.bytes(size / 2); strings.Trim(got, "b") != "" {
			t.Error("the second half of a body is not what the upstream sent")
		}
	}
}
