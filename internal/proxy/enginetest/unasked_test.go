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

// Guarantee: a response that an upstream sends together with another response, or as the body after
// a response that must have none, never becomes the response to the next request of the same client
// and key. This holds for HTTP/2 clients over plain TCP, and for any client over TLS.
func TestUnaskedResponseReachesNobody(t *testing.T) {
	t.Parallel()
	s := httptest.NewUnstartedServer(nil)
	s.StartTLS()
	s.Close()
	secure := &tls.Config{Certificates: s.TLS.Certificates, NextProtos: []string{"http/1.1"}}
	responses := map[string]string{
		"/get":  "HTTP/1.1 200 OK\r\nX-For: /get\r\nContent-Length: 2\r\n\r\nok",
		"/head": "HTTP/1.1 200 OK\r\nX-For: /head\r\nContent-Length: 55\r\n\r\n",
		"/204":  "HTTP/1.1 204 No Content\r\nX-For: /204\r\n\r\n",
		"/304":  "HTTP/1.1 304 Not Modified\r\nX-For: /304\r\n\r\n",
	}
	for _, scheme := range []string{"http", "https"} {
		addr := upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
			if scheme == "https" {
				over := tls.Server(c.Conn, secure)
				c = &upstreamtest.Conn{Conn: over, Reader: bufio.NewReader(over)}
			}
			for {
				head, err := c.ReadHead()
				if err != nil {
					return
				}
				target := strings.Fields(head)[1]
				if strings.HasPrefix(head, "POST ") {
					if _, err := io.ReadFull(c, make([]byte, len("payload"))); err != nil {
						return
					}
				}
				if response := responses[target]; response != "" {
					c.Send(response + "HTTP/1.1 200 OK\r\nX-For: forged\r\nContent-Length: 6\r\n\r\nforged")
					continue
				}
				c.Send(fmt.Sprintf("HTTP/1.1 200 OK\r\nX-For: %s\r\nContent-Length: 2\r\n\r\nok", target))
			}
		})
		g := start(t, setup{upstream: scheme + "://" + addr, ca: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))})
		clients := map[string]*http.Transport{"HTTP/2": h2cClient(t), "HTTP/1.1": {}}
		for name, client := range clients {
			t.Cleanup(client.CloseIdleConnections)
			for n := range 15 {
				for first := range responses {
					method := "GET"
					if first == "/head" {
						method = "HEAD"
					}
					next := fmt.Sprintf("/next/%d", n)
					resp, _ := g.do(client, method, first, nil)
					if got := resp.Header.Get("X-For"); got != first {
						t.Errorf("%s, %s: %s got the response for %q", name, scheme, first, got)
					}
					resp, body := g.do(client, "POST", next, strings.NewReader("payload"))
					if got := resp.Header.Get("X-For"); got != next || body != "ok" {
						t.Errorf("%s, %s: after %s, %s got the response for %q", name, scheme, first, next, got)
					}
				}
			}
		}
	}
}
