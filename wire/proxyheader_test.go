package wire

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const (
	proxyV1      = "PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n"
	proxyV1IPv6  = "PROXY TCP6 2001:db8::1 ::1 56324 443\r\n"
	proxyV2      = "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\xc0\x00\x02\x01\xc6\x33\x64\x01\xdc\x04\x01\xbb"
	proxyV2Local = "\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00"
	proxyV2Short = "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0b\xc0\x00\x02\x01\xc6\x33\x64\x01\xdc\x04\x01"
)

// forwardedFor responds with the forwarding fields of the request.
func forwardedFor(w http.ResponseWriter, r *http.Request) {
	_, _ = fmt.Fprintf(w, "%q %q", r.Header.Values("X-Forwarded-For"), r.Header.Values("X-Forwarded-Proto"))
}

// Guarantee: through the whole server, the client that a trusted proxy names in a PROXY header of
// either version is the client in X-Forwarded-For for the upstream, and decides whether its own
// X-Forwarded-For is accepted. This holds over plain TCP and before TLS, for all requests of the
// connection. A malformed header ends the connection.
func TestProxyHeader(t *testing.T) {
	t.Parallel()
	up := httptest.NewServer(http.HandlerFunc(forwardedFor))
	t.Cleanup(up.Close)
	for _, overTLS := range []bool{false, true} {
		s := startServer(t, up.URL, overTLS, "--trusted-proxies", "127.0.0.0/8,10.0.0.0/8")
		proto := "http"
		if overTLS {
			proto = "https"
		}
		for _, c := range []struct{ name, header, forwardedFor, want string }{
			{"version 1", proxyV1, "", "192.0.2.1"},
			{"version 1, IPv6", proxyV1IPv6, "", "2001:db8::1"},
			{"version 1, unknown", "PROXY UNKNOWN\r\n", "", "127.0.0.1"},
			{"version 2", proxyV2, "", "192.0.2.1"},
			{"version 2, local", proxyV2Local, "", "127.0.0.1"},
			{"no header", "", "", "127.0.0.1"},
			{"X-Forwarded-For of a client", proxyV1, "203.0.113.9", "192.0.2.1"},
			{"X-Forwarded-For of a trusted proxy", "PROXY TCP4 10.0.0.5 198.51.100.1 1 2\r\n", "203.0.113.9", "203.0.113.9, 10.0.0.5"},
			{"X-Forwarded-For of a trusted proxy without a header", "", "203.0.113.9", "203.0.113.9, 127.0.0.1"},
		} {
			t.Run(fmt.Sprintf("%s, tls %v", c.name, overTLS), func(t *testing.T) {
				client := s.proxied(t, c.header)
				for range 2 {
					client.send("GET /public/x HTTP/1.1\r\nHost: a\r\n")
					if c.forwardedFor != "" {
						client.send("X-Forwarded-For: " + c.forwardedFor + "\r\n")
					}
					client.send("\r\n")
					resp, body := client.response(t)
					if want := fmt.Sprintf("[%q] [%q]", c.want, proto); resp.StatusCode != http.StatusOK || string(body) != want {
						t.Fatalf("got %s, the upstream received %s, want %s", resp.Status, body, want)
					}
				}
				client.close()
			})
		}
		for name, header := range map[string]string{"version 2, too short": proxyV2Short, "version 1, malformed": "PROXY TCP4 192.0.2.1 198.51.100.1 56324\r\n"} {
			t.Run(fmt.Sprintf("%s, tls %v", name, overTLS), func(t *testing.T) {
				client := newSide(t, "client", dial(t, s.addr))
				client.send(header + "GET /public/x HTTP/1.1\r\nHost: a\r\n\r\n")
				client.expectEnd(t)
			})
		}
	}
}

// Guarantee: a PROXY header from a peer that is not a trusted proxy is a malformed request,
// and nothing of it reaches the upstream.
func TestUntrustedProxyHeader(t *testing.T) {
	t.Parallel()
	up := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the upstream received %s %s, want nothing", r.Method, r.RequestURI)
	}))
	t.Cleanup(up.Close)
	s := startServer(t, up.URL, false, "--trusted-proxies", "10.0.0.0/8")
	for _, header := range []string{proxyV1, proxyV2} {
		client := newSide(t, "client", dial(t, s.addr))
		client.send(header + "GET /public/x HTTP/1.1\r\nHost: a\r\n\r\n")
		resp, body := client.response(t)
		if resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(body), "invalid_request") || !resp.Close {
			t.Errorf("after %q: got %s %s, want a 400 with invalid_request that closes the connection", header, resp.Status, body)
		}
		client.expectEnd(t)
	}
}

// proxied returns a connection that begins with a PROXY header, before the TLS handshake if
// the server uses TLS.
func (s *testServer) proxied(t *testing.T, header string) *side {
	t.Helper()
	conn := dial(t, s.addr)
	if _, err := conn.Write([]byte(header)); err != nil {
		t.Fatal(err)
	}
	if s.cert == "" {
		return newSide(t, "client", conn)
	}
	secure := tls.Client(conn, s.clientTLS(t, "http/1.1"))
	if err := secure.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return newSide(t, "client", secure)
}
