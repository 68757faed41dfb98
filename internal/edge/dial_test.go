package edge_test

import (
	"bufio"
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/edge"
)

// Guarantee: a connection from Dial is served over HTTP/1.1 as the client's that is named, who is no trusted proxy; a
// PROXY header is not for it. It counts among MaxConnections, and after Shutdown there is none.
func TestDialServesAsTheClient(t *testing.T) {
	h := start(t, edge.Config{Trust: trust("0.0.0.0/0"), MaxConnections: 1})
	client := netip.MustParseAddr("192.0.2.7")
	c, err := h.server.Dial(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("PROXY UNKNOWN\r\n")); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if want := "*net.TCPConn 192.0.2.7 trusted=false tls=false"; err != nil || !strings.HasPrefix(line, want) || !strings.Contains(line, "PROXY") {
		t.Errorf("got %q, error %v; want %q and the line that was sent", line, err, want)
	}
	if n := h.server.Stats().Open; n != 1 {
		t.Errorf("got %d open connections, want 1", n)
	}
	if second, err := h.server.Dial(t.Context(), client); err == nil {
		_ = second.Close()
		t.Error("got a second connection, want none beyond MaxConnections")
	}
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	if err := h.server.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	if after, err := h.server.Dial(t.Context(), client); err == nil {
		_ = after.Close()
		t.Error("got a connection after Shutdown")
	}
}
