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
)

// upgradingUpstream changes to the protocol echo, on http or https, once it is
// let. begun tells that a request is there.
func upgradingUpstream(t *testing.T, secure bool) (url string, ca *string, begun <-chan struct{}, let chan<- struct{}) {
	t.Helper()
	b, l := make(chan struct{}, 1), make(chan struct{})
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		b <- struct{}{}
		<-l
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
		return s.URL, nil, b, l
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	root := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	return s.URL, &root, b, l
}

// Guarantee: a request that runs when the drain begins may still become an
// upgraded connection, which ends last and not before its time, whichever driver
// speaks to the upstream (contract, 4.4, end).
func TestDrainUpgrade(t *testing.T) {
	for name, secure := range map[string]bool{"http": false, "https": true} {
		t.Run(name, func(t *testing.T) {
			s := keygatetest.Start(t)
			upstream, ca, begun, let := upgradingUpstream(t, secure)
			g, err := s.Admin.CreateGateway(t.Context(), client.CreateGatewayRequest{Name: "g", UpstreamURL: upstream, UpstreamCa: ca})
			if err != nil {
				t.Fatal(err)
			}
			auth := client.CreateRouteRequestAuthNone
			if _, err := s.Admin.CreateRoute(t.Context(), g.GatewayID, client.CreateRouteRequest{Path: "/*", Methods: []string{"GET"}, Auth: &auth}); err != nil {
				t.Fatal(err)
			}
			idle, c := open(t, s), open(t, s)
			idle.get(t, "/none")
			c.say("GET /x HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			<-begun
			stopped, opsURL := make(chan error, 1), s.OpsURL()
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				stopped <- s.Running().Stop(ctx)
			}()
			if _, err := idle.reader.ReadByte(); err != io.EOF {
				t.Errorf("the idle connection: %v", err)
			}
			close(let)
			res, err := http.ReadResponse(c.reader, nil)
			if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
				t.Fatalf("%v, %v", res, err)
			}
			c.say("still here")
			got := make([]byte, len("still here"))
			if _, err := io.ReadFull(c.reader, got); err != nil || string(got) != "still here" {
				t.Fatalf("echo %q, %v", got, err)
			}
			if status := get(t, opsURL+"/readyz"); status != http.StatusServiceUnavailable {
				t.Errorf("/readyz is %d", status)
			}
			select {
			case err := <-stopped:
				t.Fatalf("ended before the upgraded connection: %v", err)
			default:
			}
			_ = c.Close()
			if err := <-stopped; err != nil {
				t.Error(err)
			}
		})
	}
}

// line is a connection to the data plane.
type line struct {
	net.Conn
	reader *bufio.Reader
}

func open(t *testing.T, s *keygatetest.Server) *line {
	t.Helper()
	c, err := net.Dial("tcp", s.Running().GatewayAddr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return &line{c, bufio.NewReader(c)}
}

func (l *line) say(s string) { _, _ = io.WriteString(l, s) }

// get makes a request that is refused, and leaves the connection open.
func (l *line) get(t *testing.T, path string) {
	t.Helper()
	l.say("POST " + path + " HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
	res, err := http.ReadResponse(l.reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, res.Body)
	if res.StatusCode != http.StatusMethodNotAllowed || res.Close {
		t.Fatalf("%v", res)
	}
}
