package enginetest_test

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// Guarantee: contract 2, 4.2 and 4.3. Each error of the gateway's own has the JSON body, whatever the client
// accepts, and the fields of its status and of CORS; once the gateway was found, it has the fields of the
// rate limit too. The response to HEAD has the same fields, and no body. The connection goes on to the next
// request.
func TestOwnErrorsOverAll(t *testing.T) {
	t.Parallel()
	const origin = "https://app.test"
	cors := &gateway.CORS{Origins: []string{origin}, Methods: []string{"GET"}, MaxAge: 60}
	silent := upstreamtest.Serve(t, func(c *upstreamtest.Conn) { _, _ = c.ReadHead() }) // and hangs up
	for _, c := range []struct {
		method, target string
		key            string // "" is the gateway's own; "-" is none
		field          string // one more, or ""
		status         int
		code           string
		challenge      string // WWW-Authenticate
		allows         bool   // Allow
		retry          bool   // Retry-After
	}{
		{"GET", "/a", "-", "", 401, "unauthorized", "Bearer", false, false},
		{"GET", "/a", "kg_unknown", "", 401, "unauthorized", "Bearer", false, false},
		{"HEAD", "/a", "-", "", 401, "unauthorized", "Bearer", false, false},
		{"GET", "/a", "", "Accept: text/html", 502, "upstream_unreachable", "", false, false},
		{"POST", "/a", "", "Content-Type: application/xml", 502, "upstream_unreachable", "", false, false},
		{"HEAD", "/a", "", "", 502, "upstream_unreachable", "", false, false},
		{"PROPFIND", "/a", "", "", 405, "method_not_allowed", "", true, false},
		{"GET", "/a/../b", "", "", 400, "invalid_request", "", false, false},
		{"GET", "/a", "", "Authorization: Bearer again", 400, "invalid_request", "", false, false},
		{"GET", "/a?api_key=1&api_key=2", "-", "", 400, "invalid_request", "", false, false},
		{"GET", "/" + strings.Repeat("a", 17<<10), "", "", 414, "target_too_long", "", false, false},
		{"GET", "/limited", "", "", 429, "rate_limit_exceeded", "", false, true},
		{"HEAD", "/limited", "", "", 429, "rate_limit_exceeded", "", false, true},
	} {
		t.Run(fmt.Sprintf("%s %.20s %s %d", c.method, c.target, c.field, c.status), func(t *testing.T) {
			t.Parallel()
			certified := newSecrets()
			for _, isHTTP2 := range []bool{false, true} {
				for _, secure := range []*tls.Config{nil, certified.server("h2", "http/1.1")} {
					s := setup{upstream: "http://" + silent, cors: cors, secure: secure, limit: "1000/s"}
					if c.retry {
						s.limit = "1/day"
					}
					g := start(t, s)
					conn := g.caller(t, isHTTP2, certified.pool)
					if c.retry {
						conn.exchange("GET", "/a")
					}
					var fields []string
					switch c.key {
					case "-":
						conn.key = ""
					case "":
					default:
						conn.key = c.key
					}
					fields = append(fields, "Origin: "+origin)
					if c.field != "" {
						fields = append(fields, c.field)
					}
					r := conn.exchange(c.method, c.target, fields...)
					if r.broken || r.head.status() != strconv.Itoa(c.status) {
						t.Fatalf("HTTP/2 %v, TLS %v: got %+v, want %d", isHTTP2, secure != nil, r, c.status)
					}
					h := r.head
					want := map[string]string{"content-type": "application/json", "www-authenticate": c.challenge, "server": "", "transfer-encoding": ""}
					if c.status != 414 && !strings.Contains(c.target, "..") { // check 1 comes before the gateway is found
						want["access-control-allow-origin"] = origin
						h.wantPresent(t, "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "access-control-expose-headers")
					}
					h.wantFields(t, want)
					h.wantPresent(t, "date", "content-length", "x-request-id")
					if got := h.get("allow") != ""; got != c.allows {
						t.Errorf("got Allow %q, want it %v", h.get("allow"), c.allows)
					}
					if got := h.get("retry-after") != ""; got != c.retry {
						t.Errorf("got Retry-After %q, want it %v", h.get("retry-after"), c.retry)
					}
					if c.method == "HEAD" {
						if r.body != "" || h.get("content-length") == "0" {
							t.Errorf("got body %q and Content-Length %s, want none, and that of the body", r.body, h.get("content-length"))
						}
						continue
					}
					var body struct {
						Error, Message string
						RequestID      string `json:"request_id"`
					}
					if err := json.Unmarshal([]byte(r.body), &body); err != nil || body.Error != c.code || body.Message == "" || body.RequestID != h.get("x-request-id") || h.get("content-length") != strconv.Itoa(len(r.body)) {
						t.Errorf("got body %s, error %v; want error %q, a message and request_id %s", r.body, err, c.code, h.get("x-request-id"))
					}
				}
			}
		})
	}
}

// Guarantee: contract 4.2, end. Over HTTP/2 a gRPC call gets the gateway's errors as responses without a body
// whose trailers say so; over HTTP/1.1 it gets JSON.
func TestOwnErrorsOfGRPCOverAll(t *testing.T) {
	t.Parallel()
	silent := upstreamtest.Serve(t, func(c *upstreamtest.Conn) { _, _ = c.ReadHead() })
	certified := newSecrets()
	for _, secure := range []*tls.Config{nil, certified.server("h2", "http/1.1")} {
		g := start(t, setup{upstream: "http://" + silent, secure: secure})
		for _, contentType := range []string{"application/grpc", "application/grpc+proto", "Application/GRPC"} {
			for status, call := range map[int]func(c *caller) received{
				401: func(c *caller) received {
					c.key = ""
					return c.exchange("POST", "/a", "Content-Type: "+contentType)
				},
				502: func(c *caller) received { return c.exchange("POST", "/a", "Content-Type: "+contentType) },
				405: func(c *caller) received { return c.exchange("PROPFIND", "/a", "Content-Type: "+contentType) },
				400: func(c *caller) received { return c.exchange("POST", "/a/../b", "Content-Type: "+contentType) },
			} {
				r := call(g.caller(t, true, certified.pool))
				if r.head.status() != "200" || r.body != "" || r.broken || r.trailers != nil {
					t.Errorf("%d: got %+v, want 200 without a body", status, r)
				}
				r.head.wantFields(t, map[string]string{"content-type": "application/grpc", "grpc-status": strconv.Itoa(proxy.GRPCStatus(status)), "retry-after": "", "content-length": ""})
				r.head.wantPresent(t, "grpc-message", "x-request-id", "date")
				if status != 400 { // check 1 comes before the gateway is found
					r.head.wantPresent(t, "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset")
				}
				if r := call(g.caller(t, false, certified.pool)); r.head.status() != strconv.Itoa(status) || r.head.get("content-type") != "application/json" || r.head.get("grpc-status") != "" {
					t.Errorf("%d over HTTP/1.1: got %+v, want JSON", status, r)
				}
			}
		}
	}
}

// Guarantee: contract 4.4. The response that accepts an upgrade has the gateway's fields, and no field of
// the upstream's that the gateway replaces. A response that declines it is like any other.
func TestUpgradesOverTLS(t *testing.T) {
	t.Parallel()
	certified := newSecrets()
	for _, upstreamSecure := range []*tls.Config{nil, certified.server("http/1.1")} {
		replies := []reply{
			{http1: "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade, X-Private\r\nUpgrade: echo/1\r\nX-Private: 1\r\nX-Mine: 1\r\nContent-Length: 5\r\nX-Request-Id: theirs\r\nX-RateLimit-Limit: 0\r\nSet-Cookie: keygate_session=1\r\nAlt-Svc: h3\r\n\r\nhello"},
			{http1: "HTTP/1.1 426 Upgrade Required\r\nContent-Length: 2\r\n\r\nno"},
			{http1: "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other/1\r\n\r\n"},
		}
		up := &replying{replies, false, upstreamSecure}
		url := up.start(t)
		for _, secure := range []*tls.Config{nil, certified.server("h2", "http/1.1")} {
			g := start(t, setup{upstream: url, ca: certified.ca, secure: secure})
			upgrade := func(target string) (*caller, head) {
				c := g.caller(t, false, certified.pool)
				c.http1.Send("GET " + target + " HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + g.key + "\r\nConnection: Upgrade\r\nUpgrade: echo/1\r\n\r\n")
				return c, c.nextHead()
			}
			c, h := upgrade("/0")
			if h.status() != "101" {
				t.Fatalf("got %s, want 101", h.text)
			}
			h.wantFields(t, map[string]string{"upgrade": "echo/1", "connection": "Upgrade", "x-private": "", "x-mine": "1", "content-length": "", "set-cookie": "", "alt-svc": ""})
			for _, name := range []string{"x-request-id", "x-ratelimit-limit"} {
				if v := h.fields[name]; len(v) != 1 || v[0] == "theirs" || v[0] == "0" {
					t.Errorf("%s: got %q, want one value, the gateway's", name, v)
				}
			}
			b := make([]byte, 5)
			if _, err := c.http1.Read(b); err != nil || string(b) != "hello" {
				t.Errorf("got %q, error %v; want what the upstream has sent", b, err)
			}
			if _, h = upgrade("/1"); h.status() != "426" {
				t.Errorf("got %s, want the upstream's 426", h.text)
			}
			if _, h = upgrade("/2"); h.status() != "502" {
				t.Errorf("got %s, want 502", h.text)
			}
		}
	}
}

// Guarantee: a client of HTTP/1.0 gets no chunks and no interim responses. A body without a length ends with
// its connection, and a body that is broken off does not end like that.
func TestOldClientsOverAll(t *testing.T) {
	t.Parallel()
	replies := []reply{
		{body: "hello"},
		{framing: byChunks, body: "hello", interim: [][]string{{"Link: </a>"}}, trailers: []string{"X-T: 1"}},
		{framing: byClose, body: "hello"},
		{framing: byChunks, body: "hello", breaks: true},
		{status: 204, framing: noFraming},
	}
	certified := newSecrets()
	overKinds(t, certified, func(t *testing.T, k kinds) {
		if k.isHTTP2 {
			t.SkipNow()
		}
		up := &replying{replies, k.upstreamIsHTTP2, k.upstreamSecure}
		g := start(t, setup{upstream: up.start(t), ca: certified.ca, secure: k.secure})
		for n := range replies {
			c := g.caller(t, false, certified.pool)
			c.http1.Send(fmt.Sprintf("GET /%d HTTP/1.0\r\nHost: a\r\nTE: trailers\r\nAuthorization: Bearer %s\r\n\r\n", n, g.key))
			h := c.nextHead()
			if want := strconv.Itoa(max(200, replies[n].status)); h.status() != want {
				t.Fatalf("%d: got %s, want %s", n, h.text, want)
			}
			h.wantFields(t, map[string]string{"transfer-encoding": "", "trailer": "", "connection": "close"})
			client := &client{t: t, Conn: c.http1}
			switch body, err := client.rest(); {
			case body != replies[n].body && !replies[n].breaks:
				t.Errorf("%d: got %q, want %q", n, body, replies[n].body)
			case (err != nil) != replies[n].breaks:
				t.Errorf("%d: got error %v, want one: %v", n, err, replies[n].breaks)
			}
		}
	})
}
