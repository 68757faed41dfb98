package server

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/certificate/certificatetest"
	"github.com/keygate/keygate/internal/proxy"
)

// slotsServer is an HTTP server whose connections are bounded. Requests of /wait wait until
// release is closed.
type slotsServer struct {
	addr    string
	arrived chan struct{}
	release chan struct{}
}

func startSlots(t *testing.T, slots int) *slotsServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &slotsServer{addr: l.Addr().String(), arrived: make(chan struct{}, 100), release: make(chan struct{})}
	p := newConnSlots(slots, "test", &proxy.Linger{}, nil)
	server := &http.Server{ConnContext: p.ConnContext, ReadHeaderTimeout: time.Minute, Handler: p.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			s.arrived <- struct{}{}
			<-s.release
		}
		_, _ = io.WriteString(w, "ok")
	}))}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(p.Listener(l)) })
	t.Cleanup(func() {
		_ = server.Close()
		serving.Wait()
		p.Stop(context.Background())
	})
	return s
}

func (s *slotsServer) dial(t *testing.T) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return c
}

// get sends a request that closes the connection and returns the response, or "" without one.
func (s *slotsServer) get(t *testing.T, path string) string {
	t.Helper()
	c := s.dial(t)
	_, _ = io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	b, _ := io.ReadAll(c)
	return string(b)
}

// Guarantee: idle connections, also those that have sent half a head, never keep a request out of a
// bounded listener, and the connection that has been idle for longest gives way.
func TestIdleConnectionsGiveWay(t *testing.T) {
	t.Parallel()
	s := startSlots(t, 4)
	var idle []net.Conn
	for range 10 {
		c := s.dial(t)
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHo")
		idle = append(idle, c)
	}
	for range 10 {
		if got := s.get(t, "/"); !strings.HasPrefix(got, "HTTP/1.1 200") {
			t.Fatalf("got %q beside idle connections, want 200", got)
		}
	}
	for i, c := range idle[:6] { // the first ones made room
		if n, err := c.Read(make([]byte, 1)); err == nil {
			t.Errorf("idle connection %d: got %d bytes, want it to be closed", i, n)
		}
	}
}

// Guarantee: requests in progress are never cut off for new connections, and one address
// cannot have more than three quarters of the slots busy.
func TestBusyConnectionsKeepTheirSlots(t *testing.T) {
	t.Parallel()
	s := startSlots(t, 4)
	var waiting []net.Conn
	for range 3 {
		c := s.dial(t)
		_, _ = io.WriteString(c, "GET /wait HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		waiting = append(waiting, c)
		<-s.arrived
	}
	if got := s.get(t, "/wait"); got != "" {
		t.Errorf("got %q for a fourth request of one address, want the connection to be closed", got)
	}
	for range 5 {
		_ = s.dial(t)
	}
	close(s.release)
	for _, c := range waiting {
		if b, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 200") {
			t.Errorf("a request in progress got %q, error %v, want 200", b, err)
		}
	}
}

// upload sends a POST with a body of 8 MB over c, all of it before it reads, and returns the status of the
// response.
func upload(c net.Conn) (status int, err error) {
	const size = 8 << 20
	if _, err := fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", size); err != nil {
		return 0, err
	}
	if _, err := c.Write(make([]byte, size)); err != nil {
		return 0, fmt.Errorf("send the body: %w", err)
	}
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, err
	}
	_, err = io.ReadAll(r.Body)
	return r.StatusCode, err
}

// Guarantee: contract, 4.4. The response to a request whose body is still arriving, and is not read, reaches a
// client that sends the whole body first.
func TestResponseDuringAnUploadIsRead(t *testing.T) {
	t.Parallel()
	pair := certificatetest.New(t, "localhost")
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	for name, secure := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			p := newConnSlots(10, "test", &proxy.Linger{}, nil)
			server := &http.Server{ConnContext: p.ConnContext, ReadHeaderTimeout: time.Minute, Handler: p.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, "no", http.StatusUnauthorized)
			}))}
			bounded, dial := p.Listener(l), func() (net.Conn, error) { return net.Dial("tcp", l.Addr().String()) }
			if secure {
				bounded = tls.NewListener(bounded, &tls.Config{Certificates: []tls.Certificate{cert}})
				dial = func() (net.Conn, error) {
					return tls.Dial("tcp", l.Addr().String(), &tls.Config{RootCAs: pair.Pool(t), ServerName: "localhost"})
				}
			}
			var serving sync.WaitGroup
			serving.Go(func() { _ = server.Serve(bounded) })
			for range 5 {
				c, err := dial()
				if err != nil {
					t.Fatal(err)
				}
				_ = c.SetDeadline(time.Now().Add(time.Minute))
				if status, err := upload(c); status != http.StatusUnauthorized || err != nil {
					t.Errorf("got status %d, error %v; want 401", status, err)
				}
				_ = c.Close()
			}
			_ = server.Close()
			serving.Wait()
			p.Stop(t.Context())
		})
	}
}
