package enginetest_test

import (
	"bufio"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// authenticating starts an upstream that authenticates connections. After a request with "Authorization:
// NTLM NAME" it takes all further requests on the connection for requests of NAME. To other requests it
// responds with a challenge, except for /public, which needs no authentication. X-Conn is the number of
// the connection, which /close ends. closed receives the number of each connection that has ended.
func authenticating(t *testing.T, secure bool) (s setup, closed <-chan int) {
	t.Helper()
	ended := make(chan int, 100)
	certified := httptest.NewUnstartedServer(nil)
	certified.StartTLS()
	certified.Close()
	addr := upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
		defer func() { ended <- c.Number }()
		if secure {
			over := tls.Server(c.Conn, &tls.Config{Certificates: certified.TLS.Certificates, NextProtos: []string{"http/1.1"}})
			c = &upstreamtest.Conn{Conn: over, Reader: bufio.NewReader(over), Number: c.Number}
		}
		user := ""
		for {
			head, err := c.ReadHead()
			if err != nil {
				return
			}
			if name := parse(head).get("authorization"); strings.HasPrefix(name, "NTLM ") {
				user = strings.TrimPrefix(name, "NTLM ")
			}
			status, more := "200 OK", ""
			switch {
			case strings.HasPrefix(head, "GET /public/close"):
				return
			case user == "" && !strings.HasPrefix(head, "GET /public"):
				status, more = "401 Unauthorized", "WWW-Authenticate: Negotiate\r\nWWW-Authenticate: Basic realm=\"a\", NTLM\r\n"
			}
			c.Send(fmt.Sprintf("HTTP/1.1 %s\r\n%sX-Conn: %d\r\nContent-Length: %d\r\n\r\n%s", status, more, c.Number, len(user), user))
		}
	})
	scheme := map[bool]string{false: "http://", true: "https://"}[secure]
	s = setup{upstream: scheme + addr, realClock: true, ca: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certified.Certificate().Raw}))}
	return s, ended
}

// overConnections runs f with clients of one connection each, for each version of HTTP and kind of upstream.
func overConnections(t *testing.T, f func(t *testing.T, g *harness, closed <-chan int, client func() *http.Transport)) {
	for _, secure := range []bool{false, true} {
		for _, isHTTP2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("upstream over TLS %v, client over HTTP/2 %v", secure, isHTTP2), func(t *testing.T) {
				t.Parallel()
				s, closed := authenticating(t, secure)
				f(t, start(t, s), closed, func() *http.Transport {
					if isHTTP2 {
						return h2cClient(t)
					}
					client := &http.Transport{MaxConnsPerHost: 1}
					t.Cleanup(client.CloseIdleConnections)
					return client
				})
			})
		}
	}
}

// as makes a request for a path that needs no key, with credentials, and returns the status, the number of the
// upstream's connection, and the user that the upstream takes the request for.
func (g *harness) as(t *testing.T, client *http.Transport, path, credentials string) (status int, conn, user string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+g.addr+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if credentials != "" {
		req.Header.Set("Authorization", credentials)
	}
	resp, err := client.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get("X-Conn"), string(body)
}

// Guarantee: contract 4.4. A connection to an upstream that a client has authenticated carries only requests of
// that client's connection, even when these have no credentials, and closes with it. A connection over which
// nobody has authenticated is shared.
func TestAuthenticatedConnectionIsBound(t *testing.T) {
	overConnections(t, func(t *testing.T, g *harness, closed <-chan int, client func() *http.Transport) {
		ann, ben := client(), client()
		_, first, _ := g.as(t, ben, "/public/a", "")
		if _, conn, _ := g.as(t, ann, "/public/a", ""); conn != first {
			t.Fatalf("a request went over connection %s, want %s, over which nobody has authenticated", conn, first)
		}
		if _, conn, user := g.as(t, ann, "/public/b", "NTLM ann"); conn != first || user != "ann" {
			t.Fatalf("got user %q over connection %s, want ann over %s", user, conn, first)
		}
		for range 5 {
			if _, conn, user := g.as(t, ben, "/public/c", ""); conn == first || user != "" {
				t.Errorf("another client was served as %q over connection %s", user, conn)
			}
			if _, conn, user := g.as(t, ann, "/public/c", ""); conn != first || user != "ann" {
				t.Errorf("got user %q over connection %s, want ann over %s", user, conn, first)
			}
		}
		ann.CloseIdleConnections()
		if got := receive(t, "the end of the upstream's connection", closed); fmt.Sprint(got) != first {
			t.Errorf("connection %d has ended, want %s", got, first)
		}
	})
}

// Guarantee: contract 4.4. A challenge binds the connection, so that a handshake of several requests stays on it.
func TestChallengeBindsConnection(t *testing.T) {
	overConnections(t, func(t *testing.T, g *harness, _ <-chan int, client func() *http.Transport) {
		ann, ben := client(), client()
		status, first, _ := g.asKey(t, ann)
		if status != http.StatusUnauthorized {
			t.Fatalf("got status %d, want the upstream's 401", status)
		}
		if _, conn, _ := g.as(t, ben, "/public/a", ""); conn == first {
			t.Errorf("a request of another client went over connection %s", conn)
		}
		if _, conn, user := g.as(t, ann, "/public/a", "NTLM ann"); conn != first || user != "ann" {
			t.Errorf("got user %q over connection %s, want ann over %s", user, conn, first)
		}
	})
}

// asKey makes a request with the key, which the upstream does not get.
func (g *harness) asKey(t *testing.T, client *http.Transport) (status int, conn, user string) {
	t.Helper()
	return g.as(t, client, "/a", "Bearer "+g.key)
}

// Guarantee: contract 4.4. When an upstream closes a bound connection, the client's connection ends too, and the
// client's next request goes over a connection over which nobody has authenticated.
func TestBoundConnectionsCloseTogether(t *testing.T) {
	overConnections(t, func(t *testing.T, g *harness, _ <-chan int, client func() *http.Transport) {
		ann := client()
		if _, _, user := g.as(t, ann, "/public/a", "NTLM ann"); user != "ann" {
			t.Fatalf("got user %q, want ann", user)
		}
		if status, _, _ := g.as(t, ann, "/public/close", ""); status != http.StatusBadGateway {
			t.Fatalf("got status %d when the upstream closed the connection, want 502", status)
		}
		if _, _, user := g.as(t, ann, "/public/a", ""); user != "" {
			t.Errorf("got user %q over a new connection, want none", user)
		}
	})
}
