package enginetest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// faultBody is the body of the gateway's error responses.
type faultBody struct {
	Error     string `json:"error"`
	Message   string `json:"message"`
	Code      string `json:"code"`
	RequestID string `json:"request_id"`
}

// wantRefusal reads a response and its body, and checks its status, its error code, and
// what all error responses have: the error body, and one request identifier in the body
// and in a field. An empty code is not checked.
func (c *client) wantRefusal(status, code string) head {
	c.t.Helper()
	h := c.wantHead(status)
	var n int
	if _, err := fmt.Sscan(h.get("content-length"), &n); err != nil {
		c.t.Fatalf("got response\n%s\nwant a Content-Length", h.text)
	}
	h.body = c.text(n)
	var b faultBody
	if err := json.Unmarshal([]byte(h.body), &b); err != nil {
		c.t.Fatalf("got body %q: %v", h.body, err)
	}
	if code != "" && b.Error != code {
		c.t.Errorf("got error code %q, want %q", b.Error, code)
	}
	if h.get("content-type") != "application/json" || b.Message == "" {
		c.t.Errorf("got response\n%s\n%s\nwant JSON with a message", h.text, h.body)
	}
	if id := h.fields["x-request-id"]; len(id) != 1 || id[0] == "" || id[0] != b.RequestID {
		c.t.Errorf("got X-Request-Id %q and request_id %q, want the same identifier once", id, b.RequestID)
	}
	return h
}

// Guarantee: contract 2, 4.2 and 4.5. Every refused request gets the error body, a request
// identifier and the fields of its status, and does not reach the upstream.
func TestRefusals(t *testing.T) {
	t.Parallel()
	addr, heads := recorder(t, empty)
	g := start(t, setup{upstream: "http://" + addr})
	key := "Authorization: Bearer " + g.key + "\r\n"
	for _, c := range []struct {
		name, send   string
		status, code string
		field, value string // a field of the response
		limits       bool   // the gateway is known, so the response has the rate limit fields
	}{
		{"no key", "GET /a HTTP/1.1\r\nHost: a\r\n\r\n", "401", "unauthorized", "www-authenticate", "Bearer", true},
		{"unknown key", "GET /a HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer kg_no\r\nX-Request-Id: req_mine\r\n\r\n", "401", "unauthorized", "www-authenticate", "Bearer", true},
		{"TRACE", "TRACE /a HTTP/1.1\r\nHost: a\r\n" + key + "\r\n", "405", "method_not_allowed", "", "", false},
		{"CONNECT", "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", "405", "method_not_allowed", "", "", false},
		{"OPTIONS *", "OPTIONS * HTTP/1.1\r\nHost: a\r\n" + key + "\r\n", "400", "invalid_request", "connection", "close", false},
		{"dot segment", "GET /a/../b HTTP/1.1\r\nHost: a\r\n" + key + "\r\n", "400", "invalid_request", "connection", "close", false},
		{"no Host", "GET /a HTTP/1.0\r\n" + key + "\r\n", "400", "invalid_request", "connection", "close", false},
		{"long target", "GET /" + strings.Repeat("a", 16<<10) + " HTTP/1.1\r\nHost: a\r\n" + key + "\r\n", "414", "target_too_long", "connection", "close", false},
		{"too many fields", "GET /a HTTP/1.1\r\nHost: a\r\n" + key + numberedFields(99, "v") + "\r\n", "431", "header_too_large", "connection", "close", false},
		{"head too large", "GET /a HTTP/1.1\r\nHost: a\r\n" + key + "X-A: " + strings.Repeat("a", 64<<10) + "\r\n\r\n", "431", "header_too_large", "connection", "close", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := g.dial(t)
			client.Send(c.send)
			h := client.wantRefusal(c.status, c.code)
			if c.field != "" {
				h.wantFields(t, map[string]string{c.field: c.value})
			}
			if c.limits {
				h.wantPresent(t, "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset")
			} else if h.get("x-ratelimit-limit") != "" && h.get("x-ratelimit-remaining") != "" && h.get("x-ratelimit-reset") != "" {
				t.Errorf("got response\n%s\nwant no rate limit fields", h.text)
			}
			if h.get("connection") == "close" {
				client.wantEnd("")
			}
			wantNone(t, heads)
		})
	}
}

// numberedFields returns n field lines with distinct names.
func numberedFields(n int, value string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "X-%d: %s\r\n", i, value)
	}
	return b.String()
}

// Guarantee: a head just within the limits on its target, fields and size is served.
func TestHeadsWithinLimitsAreServed(t *testing.T) {
	t.Parallel()
	addr, heads := recorder(t, empty)
	g := start(t, setup{upstream: "http://" + addr})
	client := g.dial(t)
	fields := strings.TrimSuffix(numberedFields(98, strings.Repeat("v", 480)), "\r\n")
	client.request(g, "GET /"+strings.Repeat("a", 16<<10-1)+" HTTP/1.1", fields)
	client.wantHead("200")
	receive(t, "the request", heads).wantPresent(t, "x-97")
}

// Guarantee: contract 4.4. An error response does not wait for the request's body. After a small
// body the connection is reused; a large body ends it, and so does one of unknown length, unless all of it has come. The response
// says so, so that the client sends no other request that would be lost.
func TestRefusalDoesNotWaitForBody(t *testing.T) {
	t.Parallel()
	addr, heads := recorder(t, empty)
	g := start(t, setup{upstream: "http://" + addr})
	post := "POST /a HTTP/1.1\r\nHost: a\r\n"
	wantReused := func(t *testing.T, c *client) {
		t.Helper()
		c.request(g, "GET /next HTTP/1.1")
		c.wantHead("200")
		if got := receive(t, "the next request", heads).line; got != "GET /next HTTP/1.1" {
			t.Fatalf("the upstream received %q, want GET /next", got)
		}
	}
	t.Run("small body with Content-Length", func(t *testing.T) {
		c := g.dial(t)
		c.Send(post + "Content-Length: 5\r\n\r\nab")
		c.wantRefusal("401", "").wantFields(t, map[string]string{"connection": ""})
		c.Send("cde")
		wantReused(t, c)
	})
	t.Run("chunked body that came with the head", func(t *testing.T) {
		c := g.dial(t)
		c.Send(post + "Transfer-Encoding: chunked\r\n\r\n" + chunk("ab") + chunk("GET /smuggled HTTP/1.1\r\n\r\n") + "0\r\nX-A: 1\r\n\r\n")
		c.wantRefusal("401", "").wantFields(t, map[string]string{"connection": ""})
		wantReused(t, c)
	})
	t.Run("chunked body with the next request behind it", func(t *testing.T) {
		c := g.dial(t)
		c.Send(post + "Transfer-Encoding: chunked\r\n\r\n" + chunk("ab") + "0\r\n\r\n" + "GET /next HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + g.key + "\r\n\r\n")
		c.wantRefusal("401", "").wantFields(t, map[string]string{"connection": ""})
		c.wantHead("200")
		if got := receive(t, "the next request", heads).line; got != "GET /next HTTP/1.1" {
			t.Fatalf("the upstream received %q, want GET /next", got)
		}
	})
	for _, received := range []string{"", "5", chunk("ab"), chunk("ab") + "0\r\nX-A: 1\r\n", chunk("ab") + "zz\r\n"} {
		t.Run(fmt.Sprintf("chunked body of which %q has come", received), func(t *testing.T) { // its rest may be large
			c := g.dial(t)
			c.Send(post + "Transfer-Encoding: chunked\r\n\r\n" + received)
			c.wantRefusal("401", "").wantFields(t, map[string]string{"connection": "close"})
			c.wantEnd("")
		})
	}
	t.Run("large body with Content-Length", func(t *testing.T) {
		c := g.dial(t)
		c.Send(post + "Content-Length: 1000000\r\n\r\nab")
		c.wantRefusal("401", "").wantFields(t, map[string]string{"connection": "close"})
		c.Send(strings.Repeat("x", 100_000))
		c.wantCutOff()
	})
	t.Run("large chunked body", func(t *testing.T) {
		c := g.dial(t)
		c.Send(post + "Transfer-Encoding: chunked\r\n\r\n")
		c.wantRefusal("401", "").wantFields(t, map[string]string{"connection": "close"})
		go func() {
			for range 20 {
				c.Send(chunk(strings.Repeat("x", 10_000)))
			}
		}()
		c.wantCutOff()
	})
	t.Run("body announced with Expect", func(t *testing.T) {
		c := g.dial(t)
		c.Send(post + "Content-Length: 5\r\nExpect: 100-continue\r\n\r\n")
		c.wantRefusal("401", "").wantFields(t, map[string]string{"connection": "close"})
		c.wantEnd("")
	})
	t.Run("body that never comes", func(t *testing.T) {
		c := start(t, setup{upstream: "http://" + addr, realClock: true}).dial(t)
		c.Send(post + "Content-Length: 5\r\n\r\nab")
		c.wantRefusal("401", "")
		c.wantCutOff()
	})
}

// Guarantee: a body larger than the gateway's max_body_bytes is a 413: at once if
// Content-Length declares it, otherwise when it exceeds the limit. A response that has
// started by then is broken off.
func TestMaxBody(t *testing.T) {
	t.Parallel()
	t.Run("a body of max_body_bytes is forwarded", func(t *testing.T) {
		addr, _ := recorder(t, empty)
		g := start(t, setup{upstream: "http://" + addr, maxBody: 10})
		c := g.dial(t)
		c.request(g, "POST /a HTTP/1.1", "Content-Length: 10")
		c.Send("0123456789")
		c.wantHead("200")
	})
	for name, c := range map[string]struct{ field, body string }{
		"a larger Content-Length is a 413": {"Content-Length: 11", ""},
		"a larger chunked body is a 413":   {"Transfer-Encoding: chunked", chunk("01234567") + chunk("89a")},
	} {
		t.Run(name, func(t *testing.T) {
			silent, _ := recorder(t, "")
			g := start(t, setup{upstream: "http://" + silent, maxBody: 10})
			client := g.dial(t)
			client.request(g, "POST /a HTTP/1.1", c.field)
			client.Send(c.body)
			client.wantRefusal("413", "body_too_large").wantPresent(t, "x-ratelimit-limit")
		})
	}
	t.Run("a response that has started is broken off", func(t *testing.T) {
		addr, _ := recorder(t, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"+chunk("begin"))
		g := start(t, setup{upstream: "http://" + addr, maxBody: 10})
		c := g.dial(t)
		c.request(g, "POST /a HTTP/1.1", "Transfer-Encoding: chunked")
		c.wantHead("200")
		c.wantChunk("begin")
		c.Send(chunk("0123456789a"))
		if rest, _ := c.rest(); strings.Contains(rest, "0\r\n") {
			t.Errorf("got the rest %q, want no last chunk", rest)
		}
	})
}

// Guarantee: a malformed chunked body is a 400 that closes the connection.
func TestMalformedBodyIs400(t *testing.T) {
	t.Parallel()
	silent, _ := recorder(t, "")
	g := start(t, setup{upstream: "http://" + silent})
	c := g.dial(t)
	c.request(g, "POST /a HTTP/1.1", "Transfer-Encoding: chunked")
	c.Send("zz\r\n")
	c.wantRefusal("400", "invalid_request").wantFields(t, map[string]string{"connection": "close"})
}

// Guarantee: an upstream that cannot be reached or sends no valid response is a 502; an upstream
// that times out is a 504. Both responses have the rate limit fields and reveal no address. The log
// has the identifiers of request and gateway, but neither the key nor the query.
func TestUpstreamFailures(t *testing.T) {
	t.Parallel()
	silent, _ := recorder(t, "")
	brokenHead := upstreamtest.Serve(t, func(c *upstreamtest.Conn) { c.Send("HTTP/1.1 200 OK\r\nContent-") })
	for _, c := range []struct{ name, upstream, status, code string }{
		{"connection refused", "http://127.0.0.1:1", "502", "upstream_unreachable"},
		{"Keygate itself", "http://" + ownListener, "502", "upstream_unreachable"},
		{"incomplete head", "http://" + brokenHead, "502", "upstream_unreachable"},
		{"https without TLS", "https://" + brokenHead, "502", "upstream_unreachable"},
		{"no response", "http://" + silent, "504", "upstream_timeout"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := setup{upstream: c.upstream}
			if c.status == "504" {
				s.timeout, s.realClock = "200ms", true
			}
			g := start(t, s)
			client := g.dial(t)
			client.Send("GET /a?x=1&api_key=" + g.key + " HTTP/1.1\r\nHost: a\r\n\r\n")
			h := client.wantRefusal(c.status, c.code)
			h.wantPresent(t, "x-ratelimit-limit")
			if strings.Contains(h.body, "127.") {
				t.Errorf("got body %s, want no address in it", h.body)
			}
			log := g.log.String()
			for _, want := range []string{h.get("x-request-id"), gatewayID} {
				if !strings.Contains(log, want) {
					t.Errorf("got log %s, want it to contain %s", log, want)
				}
			}
			for _, secret := range []string{g.key, "x=1"} {
				if strings.Contains(log, secret) {
					t.Errorf("got log %s, want it not to contain %s", log, secret)
				}
			}
		})
	}
}

// Guarantee: the response to a HEAD request has the fields of a GET and no body, whether
// the upstream or the gateway sends it.
func TestHeadHasNoBody(t *testing.T) {
	t.Parallel()
	addr, _ := recorder(t, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
	g := start(t, setup{upstream: "http://" + addr})
	resp, _ := g.do(http.DefaultTransport, "HEAD", "/a", nil)
	if resp.StatusCode != 200 || resp.ContentLength != 5 {
		t.Errorf("got status %d, Content-Length %d; want 200 and 5", resp.StatusCode, resp.ContentLength)
	}
	c := g.dial(t)
	for range 2 { // the second head would not be read if a body came before it
		c.Send("HEAD /a HTTP/1.1\r\nHost: a\r\n\r\n")
		c.wantHead("401").wantPresent(t, "content-length")
	}
}
