package nethttp_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// faultBody is the error body of every answer of the gateway's own.
type faultBody struct {
	Error     string `json:"error"`
	Message   string `json:"message"`
	Code      string `json:"code"`
	RequestID string `json:"request_id"`
}

// refusal reads an answer and its body, and checks what every refusal has.
func (c *client) refusal() (head, faultBody) {
	c.t.Helper()
	h := c.head()
	var n int
	if _, err := fmt.Sscan(h.get("content-length"), &n); err != nil {
		c.t.Fatalf("no length in\n%s", h.text)
	}
	var b faultBody
	if err := json.Unmarshal([]byte(c.text(n)), &b); err != nil {
		c.t.Fatal(err)
	}
	if h.get("content-type") != "application/json" || b.RequestID == "" || b.RequestID != h.get("x-request-id") || b.Message == "" || len(h.fields["x-request-id"]) != 1 {
		c.t.Errorf("answer\n%s\n%+v", h.text, b)
	}
	return h, b
}

// Every refusal has the error body, a request identifier, and what its status
// asks for (contract, 2, 4.2, 4.5).
func TestRefusals(t *testing.T) {
	addr, heads := recorder(t, empty)
	e := start(t, setup{upstream: "http://" + addr})
	key := "Authorization: Bearer " + e.key + "\r\n"
	many := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "X-%d: v\r\n", i)
		}
		return b.String()
	}
	for _, c := range []struct {
		name, send  string
		status, err string
		field, want string // a field of the answer
		limits      bool   // the gateway is known, so the rate limit fields stand
	}{
		{"no key", "GET /a HTTP/1.1\r\nHost: a\r\n\r\n", "401", "unauthorized", "www-authenticate", "Bearer", true},
		{"bad key", "GET /a HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer kg_no\r\nX-Request-Id: req_mine\r\n\r\n", "401", "unauthorized", "www-authenticate", "Bearer", true},
		{"trace", "TRACE /a HTTP/1.1\r\nHost: a\r\n" + key + "\r\n", "405", "method_not_allowed", "", "", false},
		{"connect", "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", "405", "method_not_allowed", "", "", false},
		{"options *", "OPTIONS * HTTP/1.1\r\nHost: a\r\n" + key + "\r\n", "400", "invalid_request", "connection", "close", false},
		{"dot segment", "GET /a/../b HTTP/1.1\r\nHost: a\r\n" + key + "\r\n", "400", "invalid_request", "connection", "close", false},
		{"no host", "GET /a HTTP/1.0\r\n" + key + "\r\n", "400", "invalid_request", "connection", "close", false},
		{"long target", "GET /" + strings.Repeat("a", 16<<10) + " HTTP/1.1\r\nHost: a\r\n" + key + "\r\n", "414", "target_too_long", "connection", "close", false},
		{"many fields", "GET /a HTTP/1.1\r\nHost: a\r\n" + key + many(99) + "\r\n", "431", "header_too_large", "connection", "close", false},
		{"large head", "GET /a HTTP/1.1\r\nHost: a\r\n" + key + "X-A: " + strings.Repeat("a", 64<<10) + "\r\n\r\n", "431", "header_too_large", "connection", "close", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := e.dial()
			client.Send(c.send)
			h, body := client.refusal()
			if h.status() != c.status || body.Error != c.err || c.field != "" && h.get(c.field) != c.want {
				t.Errorf("answer\n%s\n%+v", h.text, body)
			}
			if got := h.get("x-ratelimit-limit") != "" && h.get("x-ratelimit-remaining") != "" && h.get("x-ratelimit-reset") != ""; got != c.limits {
				t.Errorf("rate limit fields there: %v, want %v", got, c.limits)
			}
			if h.get("connection") == "close" {
				if rest, err := client.rest(); rest != "" || err != nil {
					t.Errorf("behind the answer: %q, %v", rest, err)
				}
			}
			select {
			case h := <-heads:
				t.Errorf("a refused request reached the upstream:\n%s", h.text)
			default:
			}
		})
	}
}

// What is just within the bounds of a head passes.
func TestBoundsPass(t *testing.T) {
	addr, heads := recorder(t, empty)
	e := start(t, setup{upstream: "http://" + addr})
	var fields []string
	for i := range 98 {
		fields = append(fields, fmt.Sprintf("X-%d: %s", i, strings.Repeat("v", 480)))
	}
	client := e.dial()
	client.request(e, "GET /"+strings.Repeat("a", 16<<10-1)+" HTTP/1.1", fields...)
	if h := client.head(); h.status() != "200" {
		t.Fatalf("answer\n%s", h.text)
	}
	if got := within(t, "the request", heads); got.get("x-97") == "" {
		t.Error("a field is missing")
	}
}

// A refusal does not wait for the request's body. A small body is passed over
// and the connection goes on; a large one ends it (contract, 4.4).
func TestRefusalDoesNotWait(t *testing.T) {
	addr, heads := recorder(t, empty)
	e := start(t, setup{upstream: "http://" + addr})
	post := "POST /a HTTP/1.1\r\nHost: a\r\n"
	t.Run("small, known", func(t *testing.T) {
		c := e.dial()
		c.Send(post + "Content-Length: 5\r\n\r\nab")
		if h, _ := c.refusal(); h.status() != "401" || h.get("connection") != "" {
			t.Fatalf("answer\n%s", h.text)
		}
		c.Send("cde")
		c.request(e, "GET /next HTTP/1.1")
		if h := c.head(); h.status() != "200" || within(t, "the request", heads).line != "GET /next HTTP/1.1" {
			t.Fatalf("next answer\n%s", h.text)
		}
	})
	t.Run("small, chunked", func(t *testing.T) {
		c := e.dial()
		c.Send(post + "Transfer-Encoding: chunked\r\n\r\n" + chunk("ab"))
		if h, _ := c.refusal(); h.status() != "401" {
			t.Fatalf("answer\n%s", h.text)
		}
		c.Send(chunk("GET /smuggled HTTP/1.1\r\n\r\n") + "0\r\n\r\n")
		c.request(e, "GET /next HTTP/1.1")
		if h := c.head(); h.status() != "200" || within(t, "the request", heads).line != "GET /next HTTP/1.1" {
			t.Fatalf("next answer\n%s", h.text)
		}
	})
	t.Run("large, known", func(t *testing.T) {
		c := e.dial()
		c.Send(post + "Content-Length: 1000000\r\n\r\nab")
		h, _ := c.refusal()
		if h.status() != "401" || h.get("connection") != "close" {
			t.Fatalf("answer\n%s", h.text)
		}
		c.Send(strings.Repeat("x", 100_000))
		if rest, _ := c.rest(); rest != "" { // a reset is as good as an end
			t.Errorf("behind the answer: %q", rest)
		}
	})
	t.Run("large, chunked", func(t *testing.T) {
		c := e.dial()
		c.Send(post + "Transfer-Encoding: chunked\r\n\r\n")
		if h, _ := c.refusal(); h.status() != "401" {
			t.Fatalf("answer\n%s", h.text)
		}
		go func() {
			for range 20 {
				c.Send(chunk(strings.Repeat("x", 10_000)))
			}
		}()
		if rest, _ := c.rest(); rest != "" {
			t.Errorf("behind the answer: %q", rest)
		}
	})
	t.Run("expecting", func(t *testing.T) {
		c := e.dial()
		c.Send(post + "Content-Length: 5\r\nExpect: 100-continue\r\n\r\n")
		if h, _ := c.refusal(); h.status() != "401" || h.get("connection") != "close" {
			t.Fatalf("the first answer is\n%s", h.text)
		}
		if rest, err := c.rest(); rest != "" || err != nil {
			t.Errorf("behind the answer: %q, %v", rest, err)
		}
	})
	t.Run("stalled", func(t *testing.T) {
		c := start(t, setup{upstream: "http://" + addr, moving: true}).dial()
		c.Send(post + "Content-Length: 5\r\n\r\nab")
		if h, _ := c.refusal(); h.status() != "401" {
			t.Fatalf("answer\n%s", h.text)
		}
		if rest, _ := c.rest(); rest != "" {
			t.Errorf("behind the answer: %q", rest)
		}
	})
}

// A body over the gateway's max_body_bytes is 413, at once where its length is
// told, else when it crosses the bound; an answer that has begun is broken.
func TestMaxBody(t *testing.T) {
	addr, _ := recorder(t, empty)
	e := start(t, setup{upstream: "http://" + addr, maxBody: 10})
	c := e.dial()
	c.request(e, "POST /a HTTP/1.1", "Content-Length: 10")
	c.Send("0123456789")
	if h := c.head(); h.status() != "200" {
		t.Errorf("ten bytes:\n%s", h.text)
	}
	for name, send := range map[string][]string{
		"known":   {"Content-Length: 11", ""},
		"chunked": {"Transfer-Encoding: chunked", chunk("01234567") + chunk("89a")},
	} {
		silent, _ := recorder(t, "")
		e := start(t, setup{upstream: "http://" + silent, maxBody: 10})
		c := e.dial()
		c.request(e, "POST /a HTTP/1.1", send[0])
		c.Send(send[1])
		if h, body := c.refusal(); h.status() != "413" || body.Error != "body_too_large" || h.get("x-ratelimit-limit") == "" {
			t.Errorf("%s:\n%s %+v", name, h.text, body)
		}
	}
	begun, _ := recorder(t, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"+chunk("begun"))
	e = start(t, setup{upstream: "http://" + begun, maxBody: 10})
	c = e.dial()
	c.request(e, "POST /a HTTP/1.1", "Transfer-Encoding: chunked")
	if h := c.head(); h.status() != "200" || c.readChunk() != "begun" {
		t.Fatalf("answer\n%s", h.text)
	}
	c.Send(chunk("0123456789a"))
	if rest, _ := c.rest(); strings.Contains(rest, "0\r\n") {
		t.Errorf("the answer ended properly: %q", rest)
	}
}

// A body that is no body is the client's fault.
func TestMalformedBody(t *testing.T) {
	silent, _ := recorder(t, "")
	e := start(t, setup{upstream: "http://" + silent})
	c := e.dial()
	c.request(e, "POST /a HTTP/1.1", "Transfer-Encoding: chunked")
	c.Send("zz\r\n")
	if h, body := c.refusal(); h.status() != "400" || body.Error != "invalid_request" || h.get("connection") != "close" {
		t.Errorf("answer\n%s %+v", h.text, body)
	}
}

// Nobody there is 502, too late 504; both carry the rate limit fields, tell
// nothing of the inside, and are logged with the request's identifier, without
// key and query.
func TestUpstreamFails(t *testing.T) {
	silent, _ := recorder(t, "")
	hangsUp := upstreamtest.Serve(t, func(c *upstreamtest.Conn) { c.Send("HTTP/1.1 200 OK\r\nContent-") })
	for _, c := range []struct{ name, upstream, status, err string }{
		{"nobody", "http://127.0.0.1:1", "502", "upstream_unreachable"},
		{"Keygate itself", "http://" + ownListener, "502", "upstream_unreachable"},
		{"broken head", "http://" + hangsUp, "502", "upstream_unreachable"},
		{"no TLS", "https://" + hangsUp, "502", "upstream_unreachable"},
		{"silent", "http://" + silent, "504", "upstream_timeout"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := setup{upstream: c.upstream}
			if c.status == "504" {
				s.timeout, s.moving = "200ms", true
			}
			e := start(t, s)
			client := e.dial()
			client.Send("GET /a?x=1&api_key=" + e.key + " HTTP/1.1\r\nHost: a\r\n\r\n")
			h, body := client.refusal()
			if h.status() != c.status || body.Error != c.err || h.get("x-ratelimit-limit") == "" || strings.Contains(body.Message, "127.") {
				t.Errorf("answer\n%s %+v", h.text, body)
			}
			log := e.log.String()
			if !strings.Contains(log, body.RequestID) || !strings.Contains(log, gatewayID) || strings.Contains(log, e.key) || strings.Contains(log, "x=1") {
				t.Errorf("log: %s", log)
			}
		})
	}
}

// HEAD gets the fields of the answer and no body, refused or not.
func TestHead(t *testing.T) {
	addr, _ := recorder(t, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
	e := start(t, setup{upstream: "http://" + addr})
	resp, _ := e.do(http.DefaultTransport, "HEAD", "/a", nil)
	if resp.StatusCode != 200 || resp.ContentLength != 5 {
		t.Errorf("%d, length %d", resp.StatusCode, resp.ContentLength)
	}
	c := e.dial()
	c.Send("HEAD /a HTTP/1.1\r\nHost: a\r\n\r\n")
	if h := c.head(); h.status() != "401" || h.get("content-length") == "" {
		t.Errorf("answer\n%s", h.text)
	}
	c.Send("HEAD /a HTTP/1.1\r\nHost: a\r\n\r\n")
	if h := c.head(); h.status() != "401" {
		t.Errorf("second answer\n%s", h.text)
	}
}
