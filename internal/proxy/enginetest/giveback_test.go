package enginetest_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// closedPort returns an address at which nothing listens, and which no listener of another test gets meanwhile: a
// connection has it.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn.LocalAddr().String()
}

// Guarantee: contract 4.3: if no byte of a request reached an upstream, its 502 gives everything back: a key
// with 2/h gets any number of such responses, and each says that both requests are left. A request that reached
// the upstream is charged.
func TestUnsentRequestsAreGivenBack(t *testing.T) {
	broken, err := net.Listen("tcp", "127.0.0.1:0") // it closes each connection without a response
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = broken.Close() })
	go func() {
		for {
			conn, err := broken.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 4096))
			_ = conn.Close()
		}
	}()
	for _, c := range []struct {
		name, upstream, method string
		charged                bool
	}{
		{"refused", "http://" + closedPort(t), "GET", false},
		{"refused, with a body", "http://" + closedPort(t), "POST", false},
		{"refused over TLS", "https://" + closedPort(t), "GET", false},
		{"no TLS", "https://" + broken.Addr().String(), "GET", false},
		{"its own listener", "http://" + ownListener, "GET", false},
		{"broken off", "http://" + broken.Addr().String(), "POST", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			overBoth(t, func(t *testing.T, client http.RoundTripper) {
				g := start(t, setup{upstream: c.upstream, limit: "2/h"})
				for i := range 5 {
					var body io.Reader
					if c.method == "POST" {
						body = strings.NewReader("x=1")
					}
					req, err := http.NewRequestWithContext(t.Context(), c.method, "http://"+g.addr+"/items", body)
					if err != nil {
						t.Fatal(err)
					}
					req.Header.Set("Authorization", "Bearer "+g.key)
					resp, err := client.RoundTrip(req)
					if err != nil {
						t.Fatal(err)
					}
					_ = resp.Body.Close()
					status, left := 502, "2"
					if c.charged {
						status, left = 502, []string{"1", "0", "0", "0", "0"}[i]
					}
					if c.charged && i > 1 {
						status = 429
					}
					if got := resp.Header.Get("X-Ratelimit-Remaining"); resp.StatusCode != status || got != left {
						t.Errorf("request %d: got %d with %q left, want %d with %s", i, resp.StatusCode, got, status, left)
					}
					if fields := resp.Header.Get("Ratelimit"); !strings.Contains(fields, `"key";r=`+left) {
						t.Errorf("request %d: got RateLimit %q, want %s left", i, fields, left)
					}
				}
			})
		})
	}
}

// Guarantee: contract 4.2, 8: a request whose body is found malformed after the limits have admitted it is charged,
// even if nothing went upstream.
func TestMalformedBodiesAreCharged(t *testing.T) {
	g := start(t, setup{upstream: "http://" + closedPort(t), limit: "2/h"})
	for i, want := range []struct {
		status int
		left   string
	}{{400, "1"}, {400, "0"}, {429, "0"}} {
		conn, err := net.Dial("tcp", g.addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		_, err = io.WriteString(conn, "POST /items HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer "+g.key+"\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if got := resp.Header.Get("X-Ratelimit-Remaining"); resp.StatusCode != want.status || got != want.left {
			t.Errorf("request %d: got %d with %q left, want %d with %s", i, resp.StatusCode, got, want.status, want.left)
		}
	}
}
