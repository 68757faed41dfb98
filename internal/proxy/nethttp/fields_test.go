package nethttp_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// What the upstream sees of a request's fields (contract, 4.2, end).
func TestRequestFields(t *testing.T) {
	addr, heads := recorder(t, empty)
	e := start(t, setup{upstream: "http://" + addr, headers: map[string]string{"X-Backend-Secret": "s3", "X-App": "ours"}})
	for _, c := range []struct {
		name string
		send []string
		want map[string]string // "" is absent
	}{
		{"plain", []string{"Accept: a/b", "X-Custom_Name: v", "Cookie: a=1; b=2"}, map[string]string{
			"accept": "a/b", "x-custom_name": "v", "cookie": "a=1; b=2",
			"host": addr, "authorization": "", "user-agent": "", "accept-encoding": "", "connection": "",
			"x-forwarded-for": "127.0.0.1", "x-forwarded-host": "api.test", "x-forwarded-proto": "http",
			"via": "1.1 keygate", "x-keygate-gateway-id": gatewayID, "x-keygate-key-id": keyID, "x-keygate-key-owner": "Ann <ann@example.com>", "x-backend-secret": "s3", "x-app": "ours",
		}},
		{"replaced", []string{"X-Forwarded-For: 9.9.9.9", "X-Forwarded-Host: evil", "x-forwarded-proto: https", "X_Forwarded_For: 9.9.9.9",
			"X-Forwarded-Prefix: /x", "Forwarded: for=9.9.9.9", "X-Request-Id: mine", "X_Request-Id: mine", "X-App: theirs"}, map[string]string{
			"x-forwarded-for": "127.0.0.1", "x-forwarded-host": "api.test", "x-forwarded-proto": "http", "x_forwarded_for": "",
			"x-forwarded-prefix": "", "forwarded": "", "x_request-id": "", "x-app": "ours",
		}},
		{"ours", []string{"X-Keygate-Key-Id: key_0", "X_Keygate_Key_Owner: root", "x-KEYGATE_gateway-id: gw_0", "X-Keygate-Anything: 1"}, map[string]string{
			"x_keygate_key_owner": "", "x-keygate_gateway-id": "", "x-keygate-anything": "", "x-keygate-gateway-id": gatewayID,
		}},
		{"hop by hop", []string{"Connection: x-one, X-Two , keep-alive, x-keygate-key-id, host, x-request-id, via", "Keep-Alive: 1", "Proxy-Connection: keep-alive",
			"Proxy-Authorization: Basic x", "TE: gzip", "X-One: 1", "X-Two: 2", "X-Three: 3", "HTTP2-Settings: AA"}, map[string]string{
			"x-one": "", "x-two": "", "x-three": "3", "keep-alive": "", "proxy-connection": "", "proxy-authorization": "", "te": "", "http2-settings": "",
			"connection": "", "host": addr, "x-keygate-gateway-id": gatewayID, "via": "1.1 keygate",
		}},
		{"trailers wanted", []string{"TE: gzip;q=0.5, trailers"}, map[string]string{"te": "trailers"}},
		{"via", []string{"Via: 1.0 other"}, map[string]string{"via": "1.0 other | 1.1 keygate"}},
		{"user agent", []string{"User-Agent: curl/8", "Accept-Encoding: br"}, map[string]string{"user-agent": "curl/8", "accept-encoding": "br"}},
		{"h2c upgrade", []string{"Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"}, map[string]string{
			"upgrade": "", "connection": "", "http2-settings": ""}},
		{"h2c among others", []string{"Connection: Upgrade", "Upgrade: websocket, H2C"}, map[string]string{"upgrade": "", "connection": ""}},
		{"upgrade not named", []string{"Upgrade: websocket"}, map[string]string{"upgrade": "", "connection": ""}},
		{"upgrade", []string{"Connection: keep-alive, Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: k"}, map[string]string{
			"upgrade": "websocket", "connection": "Upgrade", "sec-websocket-key": "k"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := e.dial()
			client.request(e, "GET /a HTTP/1.1", c.send...)
			answer := client.head()
			got := within(t, "the request", heads)
			for name, want := range c.want {
				if got.get(name) != want {
					t.Errorf("%s is %q, want %q", name, got.get(name), want)
				}
			}
			id := got.get("x-request-id")
			if !strings.HasPrefix(id, "req_") || id != answer.get("x-request-id") {
				t.Errorf("X-Request-Id %q upstream, %q to the client", id, answer.get("x-request-id"))
			}
			if strings.Contains(got.text, e.key) {
				t.Errorf("the key reached the upstream:\n%s", got.text)
			}
		})
	}
}

// A key never reaches the upstream, wherever it stood and whether the route
// asked for it; what a caller tells the upstream in Authorization passes.
func TestKeyIsRemoved(t *testing.T) {
	addr, heads := recorder(t, empty)
	e := start(t, setup{upstream: "http://" + addr})
	for _, c := range []struct{ target, authorization, wantTarget, want string }{
		{"/a?x=1", "Bearer " + e.key, "/a?x=1", ""},
		{"/a?x=1", "bEaReR " + e.key, "/a?x=1", ""},
		{"/a?x=1", "Bearer\t" + e.key, "/a?x=1", ""},
		{"/public/a", "Bearer\t" + e.key, "/public/a", ""},
		{"/public/a", "Basic dTpw", "/public/a", "Basic dTpw"},
		{"/a?api_key=" + e.key, "", "/a", ""},
		{"/a?x=1&api_key=" + e.key + "&y=%2f", "", "/a?x=1&y=%2f", ""},
		{"/a?api_key=" + e.key, "Basic dTpw", "/a", "Basic dTpw"},
		{"/public/a", "Bearer " + e.key, "/public/a", ""},
		{"/public/a", "Bearer kg_mistyped", "/public/a", ""},
		{"/public/a", "Bearer eyJhbGciOi.their.own", "/public/a", "Bearer eyJhbGciOi.their.own"},
		{"/public/a?api_key=" + e.key, "", "/public/a", ""},
	} {
		client := e.dial()
		head := "GET " + c.target + " HTTP/1.1\r\nHost: api.test\r\n"
		if c.authorization != "" {
			head += "Authorization: " + c.authorization + "\r\n"
		}
		client.Send(head + "\r\n")
		if answer := client.head(); answer.status() != "200" {
			t.Errorf("%s %q: %s", c.target, c.authorization, answer.text)
			continue
		}
		got := within(t, "the request", heads)
		if got.line != "GET "+c.wantTarget+" HTTP/1.1" || got.get("authorization") != c.want || strings.Contains(got.text, e.key) {
			t.Errorf("%s %q arrived as\n%s", c.target, c.authorization, got.text)
		}
	}
}

// What the client sees of an answer's fields: the upstream's, less those of its
// connection and those that are the gateway's (contract, 4.3, 4.4).
func TestAnswerFields(t *testing.T) {
	addr, _ := recorder(t, "HTTP/1.1 429 Slow\r\nContent-Length: 2\r\nX-Custom: 1\r\nX-Custom: 2\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n"+
		"X-Request-Id: theirs\r\nX-RateLimit-Limit: 1\r\nx-ratelimit-remaining: 1\r\nX-RateLimit-Reset: 1\r\nRateLimit: \"a\";r=1\r\nRateLimit-Policy: \"a\";q=1\r\n"+
		"Retry-After: 77\r\nConnection: x-private, content-length, keep-alive\r\nX-Private: 1\r\nKeep-Alive: timeout=5\r\nUpgrade: h2c\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\n\r\nok")
	e := start(t, setup{upstream: "http://" + addr, limit: "100/min"})
	client := e.dial()
	client.request(e, "GET /a HTTP/1.1")
	got := client.head()
	for name, want := range map[string]string{
		"x-custom": "1 | 2", "set-cookie": "a=1 | b=2", "retry-after": "77", "content-length": "2", "content-type": "",
		"x-private": "", "keep-alive": "", "upgrade": "", "connection": "", "date": "Thu, 01 Jan 1970 00:00:00 GMT", "server": "", "via": "",
	} {
		if got.get(name) != want {
			t.Errorf("%s is %q, want %q", name, got.get(name), want)
		}
	}
	for _, name := range []string{"x-request-id", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "ratelimit-policy", "ratelimit"} {
		if v := got.fields[name]; len(v) != 1 || v[0] == "1" || v[0] == "theirs" || strings.Contains(v[0], `"a"`) {
			t.Errorf("%s is %q, want the gateway's alone", name, v)
		}
	}
	if got.status() != "429" || client.text(2) != "ok" {
		t.Errorf("answer %s", got.text)
	}
}

// Paths and queries arrive byte for byte, below the base path of the upstream.
func TestPathBytes(t *testing.T) {
	addr, heads := recorder(t, empty)
	e := start(t, setup{upstream: "http://" + addr + "/base/"})
	client := e.dial()
	segment := rapid.StringOfN(rapid.SampledFrom([]rune("abcXYZ019-._~!$&'()*+,;=:@")), 1, 12, -1)
	escape := rapid.SampledFrom([]string{"", "%41", "%c3%A9", "%20", "%3F", "%25", "%7e"})
	query := rapid.StringOfN(rapid.SampledFrom([]rune("abcXYZ019-._~!$'()*+,;:@/%&=?")), 0, 40, -1)
	rapid.Check(t, func(rt *rapid.T) {
		target := "/p" + segment.Draw(rt, "first")
		for range rapid.IntRange(0, 3).Draw(rt, "segments") {
			target += "/s" + segment.Draw(rt, "segment") + escape.Draw(rt, "escape")
		}
		if rapid.Bool().Draw(rt, "query") {
			target += "?" + query.Draw(rt, "text")
		}
		form := rapid.SampledFrom([]string{"", "http://api.test"}).Draw(rt, "form")
		client.request(e, "GET "+form+target+" HTTP/1.1")
		if answer := client.head(); answer.status() != "200" {
			rt.Fatalf("%s: %s\n%s", target, answer.text, client.text(100))
		}
		if got, want := within(t, "the request", heads).line, "GET /base"+target+" HTTP/1.1"; got != want {
			rt.Fatalf("arrived as\n%q, sent as\n%q", got, want)
		}
	})
}

// Fields of an interim answer obey the same rules, and leave nothing behind in
// the final one.
func TestInterim(t *testing.T) {
	addr := upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
		if _, err := c.ReadHead(); err != nil {
			return
		}
		c.Send("HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\nX-Request-Id: theirs\r\nConnection: x-p\r\nX-P: 1\r\n\r\n" +
			"HTTP/1.1 102 Processing\r\n\r\n" + empty)
	})
	e := start(t, setup{upstream: "http://" + addr})
	client := e.dial()
	client.request(e, "GET /a HTTP/1.1")
	first, second, final := client.head(), client.head(), client.head()
	if first.status() != "103" || first.get("link") != "</a.css>" || first.get("x-request-id") != "" || first.get("x-p") != "" {
		t.Errorf("first\n%s", first.text)
	}
	if second.status() != "102" || len(second.fields) != 0 {
		t.Errorf("second\n%s", second.text)
	}
	if final.status() != "200" || final.get("link") != "" || final.get("x-ratelimit-limit") == "" || final.get("x-request-id") == "" {
		t.Errorf("final\n%s", final.text)
	}
}
