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

// forwardedFor answers with what it is told of the client.
func forwardedFor(w http.ResponseWriter, r *http.Request) {
	_, _ = fmt.Fprintf(w, "%q %q", r.Header.Values("X-Forwarded-For"), r.Header.Values("X-Forwarded-Proto"))
}

// Guarantee: through the whole server, the client that a trusted proxy names in a
// PROXY header of either version is the one that the upstream is told of, and
// the one whose X-Forwarded-For counts; over plain TCP and before TLS; each
// connection has one header, for all of its requests.
func TestPROXY(t *testing.T) {
	t.Parallel()
	up := httptest.NewServer(http.HandlerFunc(forwardedFor))
	t.Cleanup(up.Close)
	for _, overTLS := range []bool{false, true} {
		s := startServer(t, up.URL, overTLS, "--trusted-proxies", "127.0.0.0/8,10.0.0.0/8")
		proto := "http"
		if overTLS {
			proto = "https"
		}
		for _, c := range []struct{ name, header, told, want string }{
			{"version 1", proxyV1, "", "192.0.2.1"},
			{"version 1, IPv6", proxyV1IPv6, "", "2001:db8::1"},
			{"version 1, unknown", "PROXY UNKNOWN\r\n", "", "127.0.0.1"},
			{"version 2", proxyV2, "", "192.0.2.1"},
			{"version 2, local", proxyV2Local, "", "127.0.0.1"},
			{"none", "", "", "127.0.0.1"},
			{"what a client says of itself", proxyV1, "203.0.113.9", "192.0.2.1"},
			{"what a trusted proxy says", "PROXY TCP4 10.0.0.5 198.51.100.1 1 2\r\n", "203.0.113.9", "203.0.113.9, 10.0.0.5"},
			{"what a proxy without a header says", "", "203.0.113.9", "203.0.113.9, 127.0.0.1"},
		} {
			t.Run(fmt.Sprintf("%s, tls %v", c.name, overTLS), func(t *testing.T) {
				client := s.proxied(t, c.header)
				for range 2 {
					client.say("GET /public/x HTTP/1.1\r\nHost: a\r\n")
					if c.told != "" {
						client.say("X-Forwarded-For: " + c.told + "\r\n")
					}
					client.say("\r\n")
					resp, body := client.response(t)
					if want := fmt.Sprintf("[%q] [%q]", c.want, proto); resp.StatusCode != http.StatusOK || string(body) != want {
						t.Fatalf("%s: the upstream was told %s, want %s", resp.Status, body, want)
					}
				}
				client.close()
			})
		}
		for name, header := range map[string]string{"a short version 2": proxyV2Short, "a broken version 1": "PROXY TCP4 192.0.2.1 198.51.100.1 56324\r\n"} {
			t.Run(fmt.Sprintf("%s, tls %v", name, overTLS), func(t *testing.T) {
				client := newSide(t, "client", dial(t, s.addr))
				client.say(header + "GET /public/x HTTP/1.1\r\nHost: a\r\n\r\n")
				client.expectEnd(t)
			})
		}
	}
}

// Guarantee: from anybody else a PROXY header is a malformed request, and nothing
// of it reaches the upstream.
func TestUntrustedPROXY(t *testing.T) {
	t.Parallel()
	up := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("reached the upstream: %s %s", r.Method, r.RequestURI)
	}))
	t.Cleanup(up.Close)
	s := startServer(t, up.URL, false, "--trusted-proxies", "10.0.0.0/8")
	for _, header := range []string{proxyV1, proxyV2} {
		client := newSide(t, "client", dial(t, s.addr))
		client.say(header + "GET /public/x HTTP/1.1\r\nHost: a\r\n\r\n")
		resp, body := client.response(t)
		if resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(body), "invalid_request") || !resp.Close {
			t.Errorf("after %q: %s %s", header, resp.Status, body)
		}
		client.expectEnd(t)
	}
}

// proxied is a connection that begins with a header, before TLS if there is any.
func (s *served) proxied(t *testing.T, header string) *side {
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
