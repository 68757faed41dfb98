package server_test

import (
	"bufio"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/keygatetest"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
)

// upgradingUpstream starts an upstream on http or https. It sends to started when a request
// has arrived, and switches to the protocol echo once upgrade is closed.
func upgradingUpstream(t *testing.T, secure bool) (url string, ca *string, started <-chan struct{}, upgrade chan<- struct{}) {
	t.Helper()
	arrived, u := make(chan struct{}, 1), make(chan struct{})
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		arrived <- struct{}{}
		<-u
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_, _ = io.Copy(conn, buffered)
	}))
	if !secure {
		s.Start()
		t.Cleanup(s.Close)
		return s.URL, nil, arrived, u
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	root := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	return s.URL, &root, arrived, u
}

// Guarantee: a request in progress when the drain starts may still be upgraded, and the
// drain waits for the upgraded connection, whichever engine connects to the upstream
// (contract, section 4.4, end).
func TestDrainWaitsForUpgradedConnections(t *testing.T) {
	for name, secure := range map[string]bool{"http": false, "https": true} {
		t.Run(name, func(t *testing.T) {
			s := keygatetest.Start(t)
			upstream, ca, started, upgrade := upgradingUpstream(t, secure)
			g, err := s.Admin.CreateGateway(t.Context(), client.CreateGatewayRequest{Name: "g", UpstreamURL: upstream, UpstreamCa: ca})
			if err != nil {
				t.Fatal(err)
			}
			auth := client.CreateRouteRequestAuthNone
			if _, err := s.Admin.CreateRoute(t.Context(), g.GatewayID, client.CreateRouteRequest{Path: "/*", Methods: []string{"GET"}, Auth: &auth}); err != nil {
				t.Fatal(err)
			}
			idle, c := dial(t, s), dial(t, s)
			idle.refusedRequest(t, "/none")
			c.write("GET /x HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			<-started
			stopped, opsURL := make(chan error, 1), s.OpsURL()
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), awaittest.Timeout)
				defer cancel()
				stopped <- s.Running().Stop(ctx)
			}()
			if _, err := idle.reader.ReadByte(); err != io.EOF {
				t.Errorf("idle connection: got error %v, want EOF", err)
			}
			close(upgrade)
			res, err := http.ReadResponse(c.reader, nil)
			if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
				t.Fatalf("got response %v, error %v; want status 101", res, err)
			}
			c.write("still here")
			got := make([]byte, len("still here"))
			if _, err := io.ReadFull(c.reader, got); err != nil || string(got) != "still here" {
				t.Fatalf("upgraded connection: got %q, error %v; want the echo", got, err)
			}
			if status := get(t, opsURL+"/readyz"); status != http.StatusServiceUnavailable {
				t.Errorf("/readyz: got status %d, want 503", status)
			}
			select {
			case err := <-stopped:
				t.Fatalf("the server stopped before the upgraded connection closed: %v", err)
			default:
			}
			_ = c.Close()
			if err := <-stopped; err != nil {
				t.Errorf("Stop: got error %v, want none", err)
			}
		})
	}
}

// clientConn is a connection to the data plane.
type clientConn struct {
	net.Conn
	reader *bufio.Reader
}

func dial(t *testing.T, s *keygatetest.Server) *clientConn {
	t.Helper()
	c, err := net.Dial("tcp", s.Running().GatewayAddr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(awaittest.Timeout))
	return &clientConn{c, bufio.NewReader(c)}
}

func (c *clientConn) write(s string) { _, _ = io.WriteString(c, s) }

// refusedRequest sends a request that is refused with 405, and checks that the connection
// stays open.
func (c *clientConn) refusedRequest(t *testing.T, path string) {
	t.Helper()
	c.write("POST " + path + " HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
	res, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, res.Body)
	if res.StatusCode != http.StatusMethodNotAllowed || res.Close {
		t.Fatalf("got response %v, want status 405 on a connection that stays open", res)
	}
}
