package server

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener whose connections are pipes, so that deadlines run in virtual time.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.done); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// Guarantee: a client of the management API that does not finish its request head within 10 s,
// or its request within 2 minutes, loses its connection.
func TestSlowManagementClients(t *testing.T) {
	for name, c := range map[string]struct {
		sent string
		want time.Duration
	}{
		"head": {"GET / HTTP/1.1\r\nHost: a\r\n", 10 * time.Second},
		"body": {"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n1", 2 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &pipes{make(chan net.Conn), make(chan struct{})}
				server := newHTTPServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					if _, err := io.ReadAll(r.Body); err != nil {
						panic(http.ErrAbortHandler)
					}
				}), slog.New(slog.DiscardHandler))
				stopped := make(chan error, 1)
				go func() { stopped <- server.Serve(l) }()
				client, far := net.Pipe()
				l.conns <- far
				begin := time.Now()
				if _, err := io.WriteString(client, c.sent); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadAll(client); err != nil && !errors.Is(err, io.EOF) {
					t.Error(err)
				}
				if took := time.Since(begin); took < c.want || took > c.want+time.Second {
					t.Errorf("got the connection closed after %s, want %s", took, c.want)
				}
				client.Close()
				server.Close()
				<-stopped
				<-time.After(time.Second) // net/http lingers on a connection that it closes
			})
		})
	}
}
