package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/keygatetest/awaittest"
)

// keptConn is a connection of a client that sends one request after another.
type keptConn struct {
	net.Conn
	reader *bufio.Reader
}

func newKeptConn(addr string) (*keptConn, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &keptConn{c, bufio.NewReader(c)}, c.SetDeadline(time.Now().Add(awaittest.Timeout))
}

// head sends the head of a request with a body of the given size.
func (c *keptConn) head(method, path, key string, size int) error {
	_, err := fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n",
		method, path, key, size)
	return err
}

// post sends a POST with a body, and returns the response.
func (c *keptConn) post(path, key, body string) (*http.Response, error) {
	return c.send(http.MethodPost, path, key, body)
}

func (c *keptConn) send(method, path, key, body string) (*http.Response, error) {
	if err := c.head(method, path, key, len(body)); err != nil {
		return nil, err
	}
	if _, err := io.WriteString(c, body); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return resp, err
}

// Guarantee: contract, section 1. From SIGTERM on, also during --drain-delay, each response of both planes
// says that its connection closes; no request of a kept connection is lost.
func TestKeptConnectionsDuringTheDrainDelay(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--drain-delay", "1h")
	s.newGateway(newEcho(t), nil)
	_, key := s.newKey(nil)
	type kept struct {
		*keptConn
		path, key, body string
		status          int
	}
	var all []kept
	for range 20 {
		for _, k := range []kept{
			{nil, "/a", key, "hello", http.StatusOK}, {nil, "/a", "none", "hello", http.StatusUnauthorized}, {nil, "/v1/keys", s.key, `{"name": "k", "scope": "read"}`, http.StatusCreated},
		} {
			addr := s.gateway
			if strings.HasPrefix(k.path, "/v1") {
				addr = s.admin
			}
			var err error
			if k.keptConn, err = newKeptConn(addr); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = k.Close() })
			if resp, err := k.post(k.path, k.key, k.body); err != nil || resp.StatusCode != k.status || resp.Close {
				t.Fatalf("before the drain: got %v, %v; want %d on a connection that stays", resp, err, k.status)
			}
			all = append(all, k)
		}
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if !awaittest.Holds(func() bool { return strings.Contains(s.output.String(), "shutting down") }) {
		t.Fatalf("SIGTERM begins no drain\n%s", s.output)
	}
	for _, k := range all {
		if resp, err := k.post(k.path, k.key, k.body); err != nil || resp.StatusCode != k.status || !resp.Close {
			t.Errorf("%s during the delay: got %v, %v; want %d and Connection: close", k.path, resp, err, k.status)
		}
	}
}

// Guarantee: contract, 4.4. Each listener closes in stages: a client that sends 8 MB before it reads gets the
// refusal.
func TestRefusedUploadsGetTheirResponse(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.newGateway(newEcho(t), nil)
	body := strings.Repeat("x", 8<<20)
	for _, test := range []struct {
		addr, path, key string
		status          int
	}{
		{s.gateway, "/a", "none", http.StatusUnauthorized}, {s.admin, "/v1/keys", "none", http.StatusUnauthorized},
		{s.admin, "/v1/keys", s.key, http.StatusRequestEntityTooLarge}, {s.ops, "/readyz", "", http.StatusMethodNotAllowed},
	} {
		c, err := newKeptConn(test.addr)
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := c.post(test.path, test.key, body); err != nil || resp.StatusCode != test.status {
			t.Errorf("8 MB to %s: got %v, %v; want %d", test.path, resp, err, test.status)
		}
		_ = c.Close()
	}
}

// Guarantee: contract, 4.4. A push of 8 MB that is refused with 429 before its body is read gets that response.
func TestPushBeyondTheBoundGetsItsResponse(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	path := "/v1/gateways/" + s.newGateway(newEcho(t), nil) + "/spec"
	body := strings.Repeat("x", 8<<20)
	connect := func() *keptConn {
		c, err := newKeptConn(s.admin)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if !awaittest.Holds(func() bool {
		// Two pushes are read at once, and 16 wait for their turn, up to 10 s (docs/limits.md). These 18 send no body.
		var conns []*keptConn
		defer func() {
			for _, c := range conns {
				_ = c.Close()
			}
		}()
		for range 18 {
			c := connect()
			conns = append(conns, c)
			if err := c.head(http.MethodPut, path, s.key, len(body)); err != nil {
				t.Fatal(err)
			}
		}
		c := connect()
		conns = append(conns, c)
		resp, err := c.send(http.MethodPut, path, s.key, body)
		if err != nil {
			t.Fatalf("a push got no response: %v", err)
		}
		return resp.StatusCode == http.StatusTooManyRequests // otherwise it arrived before the others, or waited for too long
	}) {
		t.Error("no push got 429")
	}
}

// Guarantee: clients that send POSTs on kept connections all the time lose none when a stop is announced: each gets
// all of its responses, and the last response says that the connection closes. A new connection is served too.
func TestDrainLosesNoPost(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--drain-delay", "1h")
	s.newGateway(newEcho(t), nil)
	_, key := s.newKey(nil)
	var clients sync.WaitGroup
	var served atomic.Int64
	client := func() {
		c, err := newKeptConn(s.gateway)
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		for last := false; !last; {
			resp, err := c.post("/a", key, "hello")
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Errorf("a POST was lost: %v, %v", resp, err)
				return
			}
			served.Add(1)
			last = resp.Close
		}
	}
	for range 20 {
		clients.Go(client)
	}
	if !awaittest.Holds(func() bool { return served.Load() > 500 }) {
		t.Errorf("only %d requests were served", served.Load())
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	clients.Wait()
	for range 20 {
		clients.Go(client)
	}
	clients.Wait()
}

// poster sends POSTs over one connection after another. connect makes the next one; post sends one POST over it, and
// says whether the connection may be used again.
type poster interface {
	connect(addr string) error
	post(path, key, body string) (status int, again bool, err error)
	close()
}

// h1Poster is a poster over HTTP/1.1.
type h1Poster struct{ conn *keptConn }

func (p *h1Poster) connect(addr string) (err error) {
	p.conn, err = newKeptConn(addr)
	return err
}

func (p *h1Poster) post(path, key, body string) (status int, again bool, err error) {
	resp, err := p.conn.post(path, key, body)
	if err != nil {
		return 0, false, err
	}
	return resp.StatusCode, !resp.Close, nil
}

func (p *h1Poster) close() { _ = p.conn.Close() }

// h2Poster is a poster over HTTP/2, whose streams are one after another.
type h2Poster struct{ conn *http.ClientConn }

func (p *h2Poster) connect(addr string) (err error) {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	p.conn, err = (&http.Transport{Protocols: protocols}).NewClientConn(context.Background(), "http", addr)
	return err
}

func (p *h2Poster) post(path, key, body string) (status int, again bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), awaittest.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost"+path, strings.NewReader(body))
	if err != nil {
		return 0, false, err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := p.conn.RoundTrip(req)
	if err != nil && strings.Contains(err.Error(), "client conn not usable") { // GOAWAY was first: nothing was sent
		return http.StatusOK, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, p.conn.Err() == nil, err
}

func (p *h2Poster) close() { _ = p.conn.Close() }

// Guarantee: clients that connect again whenever a response, or GOAWAY, says that their connection ends, lose no POST
// in a stop, up to the moment when they are refused a connection.
func TestDrainLosesNoPostOfClientsThatConnectAgain(t *testing.T) {
	t.Parallel()
	for name, newPoster := range map[string]func() poster{
		"HTTP/1.1": func() poster { return &h1Poster{} }, "HTTP/2": func() poster { return &h2Poster{} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, "--drain-delay", "500ms")
			s.newGateway(newEcho(t), nil)
			_, key := s.newKey(nil)
			var clients sync.WaitGroup
			var stopping atomic.Bool
			var before, after, connections atomic.Int64
			client := func() {
				for {
					p := newPoster()
					if err := p.connect(s.gateway); err != nil {
						if !stopping.Load() || !errors.Is(err, syscall.ECONNREFUSED) {
							t.Errorf("no connection: %v", err)
						}
						return
					}
					connections.Add(1)
					for again := true; again; {
						status, more, err := p.post("/a", key, "hello")
						if err != nil || status != http.StatusOK {
							t.Errorf("a POST was lost: %d, %v", status, err)
							p.close()
							return
						}
						if again = more; stopping.Load() {
							after.Add(1)
						} else {
							before.Add(1)
						}
					}
					p.close()
				}
			}
			for range 10 {
				clients.Go(client)
			}
			if !awaittest.Holds(func() bool { return before.Load() > 200 }) {
				t.Errorf("only %d requests were served", before.Load())
			}
			stopping.Store(true)
			if status := s.end(syscall.SIGTERM); status != 0 {
				t.Errorf("the server ended with status %d, want 0", status)
			}
			clients.Wait()
			if after.Load() == 0 {
				t.Error("no request was served in the drain")
			}
			t.Logf("%d POSTs before the stop, %d in it, over %d connections", before.Load(), after.Load(), connections.Load())
		})
	}
}
