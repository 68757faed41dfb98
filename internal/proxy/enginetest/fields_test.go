package enginetest_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// Guarantee: contract 4.2, end. The upstream receives the client's fields without the fields of the
// connection, and with the gateway's own, which a client cannot set.
func TestRequestFields(t *testing.T) {
	t.Parallel()
	addr, heads := recorder(t, empty)
	g := start(t, setup{upstream: "http://" + addr, headers: map[string]string{"X-Backend-Secret": "s3", "X-App": "ours"}})
	for _, c := range []struct {
		name string
		send []string
		want map[string]string // "" is absent
	}{
		{"fields that pass", []string{"Accept: a/b", "X-Custom_Name: v", "Cookie: a=1; b=2"}, map[string]string{
			"accept": "a/b", "x-custom_name": "v", "cookie": "a=1; b=2",
			"host": addr, "authorization": "", "user-agent": "", "accept-encoding": "", "connection": "",
			"x-forwarded-for": "127.0.0.1", "x-forwarded-host": "api.test", "x-forwarded-proto": "http",
			"via": "1.1 keygate", "x-keygate-gateway-id": gatewayID, "x-keygate-key-id": keyID, "x-keygate-key-owner": "Ann <ann@example.com>", "x-backend-secret": "s3", "x-app": "ours",
		}},
		{"fields that the gateway replaces", []string{"X-Forwarded-For: 9.9.9.9", "X-Forwarded-Host: evil", "x-forwarded-proto: https", "X_Forwarded_For: 9.9.9.9",
			"X-Forwarded-Prefix: /x", "Forwarded: for=9.9.9.9", "X-Request-Id: mine", "X_Request-Id: mine", "X-App: theirs"}, map[string]string{
			"x-forwarded-for": "127.0.0.1", "x-forwarded-host": "api.test", "x-forwarded-proto": "http", "x_forwarded_for": "",
			"x-forwarded-prefix": "", "forwarded": "", "x_request-id": "", "x-app": "ours",
		}},
		{"X-Keygate fields", []string{"X-Keygate-Key-Id: key_0", "X_Keygate_Key_Owner: root", "x-KEYGATE_gateway-id: gw_0", "X-Keygate-Anything: 1"}, map[string]string{
			"x_keygate_key_owner": "", "x-keygate_gateway-id": "", "x-keygate-anything": "", "x-keygate-gateway-id": gatewayID,
		}},
		{"hop-by-hop fields", []string{"Connection: x-one, X-Two , keep-alive, x-keygate-key-id, host, x-request-id, via", "Keep-Alive: 1", "Proxy-Connection: keep-alive",
			"Proxy-Authorization: Basic x", "TE: gzip", "X-One: 1", "X-Two: 2", "X-Three: 3", "HTTP2-Settings: AA"}, map[string]string{
			"x-one": "", "x-two": "", "x-three": "3", "keep-alive": "", "proxy-connection": "", "proxy-authorization": "", "te": "", "http2-settings": "",
			"connection": "", "host": addr, "x-keygate-gateway-id": gatewayID, "via": "1.1 keygate",
		}},
		{"sessions of browsers", []string{"Cookie: a=1; keygate_session=evil; b=2", "Cookie: __Host-keygate_session=evil"}, map[string]string{"cookie": "a=1; b=2"}},
		{"the session of a browser alone", []string{"Cookie: keygate_session=evil"}, map[string]string{"cookie": ""}},
		{"TE with trailers", []string{"TE: gzip;q=0.5, trailers"}, map[string]string{"te": "trailers"}},
		{"Via of another proxy", []string{"Via: 1.0 other"}, map[string]string{"via": "1.0 other | 1.1 keygate"}},
		{"User-Agent and Accept-Encoding", []string{"User-Agent: curl/8", "Accept-Encoding: br"}, map[string]string{"user-agent": "curl/8", "accept-encoding": "br"}},
		{"upgrade to h2c", []string{"Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"}, map[string]string{
			"upgrade": "", "connection": "", "http2-settings": ""}},
		{"upgrade to h2c among others", []string{"Connection: Upgrade", "Upgrade: websocket, H2C"}, map[string]string{"upgrade": "", "connection": ""}},
		{"Upgrade that Connection does not name", []string{"Upgrade: websocket"}, map[string]string{"upgrade": "", "connection": ""}},
		{"upgrade to websocket", []string{"Connection: keep-alive, Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: k"}, map[string]string{
			"upgrade": "websocket", "connection": "Upgrade", "sec-websocket-key": "k"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := g.dial(t)
			client.request(g, "GET /a HTTP/1.1", c.send...)
			response := client.head()
			got := receive(t, "the request", heads)
			got.wantFields(t, c.want)
			id := got.get("x-request-id")
			if !strings.HasPrefix(id, "req_") || id != response.get("x-request-id") {
				t.Errorf("got X-Request-Id %q at the upstream and %q at the client, want the same identifier", id, response.get("x-request-id"))
			}
			if strings.Contains(got.text, g.key) {
				t.Errorf("the upstream received the key, want it removed:\n%s", got.text)
			}
		})
	}
}

// Guarantee: a gateway key never reaches the upstream, wherever the client put it and
// whether or not the route needs one; other credentials in Authorization pass.
func TestKeyIsRemoved(t *testing.T) {
	t.Parallel()
	addr, heads := recorder(t, empty)
	g := start(t, setup{upstream: "http://" + addr})
	for _, c := range []struct{ target, authorization, wantTarget, want string }{
		{"/a?x=1", "Bearer " + g.key, "/a?x=1", ""},
		{"/a?x=1", "bEaReR " + g.key, "/a?x=1", ""},
		{"/a?x=1", "Bearer\t" + g.key, "/a?x=1", ""},
		{"/public/a", "Bearer\t" + g.key, "/public/a", ""},
		{"/public/a", "Basic dTpw", "/public/a", "Basic dTpw"},
		{"/a?api_key=" + g.key, "", "/a", ""},
		{"/a?x=1&api_key=" + g.key + "&y=%2f", "", "/a?x=1&y=%2f", ""},
		{"/a?api_key=" + g.key, "Basic dTpw", "/a", "Basic dTpw"},
		{"/public/a", "Bearer " + g.key, "/public/a", ""},
		{"/public/a", "Bearer kg_mistyped", "/public/a", ""},
		{"/public/a", "Bearer eyJhbGciOi.their.own", "/public/a", "Bearer eyJhbGciOi.their.own"},
		{"/public/a?api_key=" + g.key, "", "/public/a", ""},
	} {
		client := g.dial(t)
		head := "GET " + c.target + " HTTP/1.1\r\nHost: api.test\r\n"
		if c.authorization != "" {
			head += "Authorization: " + c.authorization + "\r\n"
		}
		client.Send(head + "\r\n")
		client.wantHead("200")
		got := receive(t, "the request", heads)
		if got.line != "GET "+c.wantTarget+" HTTP/1.1" || got.get("authorization") != c.want || strings.Contains(got.text, g.key) {
			t.Errorf("%s with Authorization %q: the upstream received\n%s\nwant target %s and Authorization %q", c.target, c.authorization, got.text, c.wantTarget, c.want)
		}
	}
}

// Guarantee: contract 4.3 and 4.4. The client receives the fields of the upstream's
// response, without the fields of the connection. A field that the gateway sets replaces the
// upstream's of the same name.
func TestResponseFields(t *testing.T) {
	t.Parallel()
	addr, _ := recorder(t, "HTTP/1.1 429 Slow\r\nContent-Length: 2\r\nX-Custom: 1\r\nX-Custom: 2\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n"+
		"X-Request-Id: theirs\r\nX-RateLimit-Limit: 1\r\nx-ratelimit-remaining: 1\r\nX-RateLimit-Reset: 1\r\nRateLimit: \"a\";r=1\r\nRateLimit-Policy: \"a\";q=1\r\n"+
		"Retry-After: 77\r\nConnection: x-private, content-length, keep-alive\r\nX-Private: 1\r\nKeep-Alive: timeout=5\r\nUpgrade: h2c\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\n\r\nok")
	g := start(t, setup{upstream: "http://" + addr, limit: "100/min"})
	client := g.dial(t)
	client.request(g, "GET /a HTTP/1.1")
	got := client.wantHead("429")
	got.wantFields(t, map[string]string{
		"x-custom": "1 | 2", "set-cookie": "a=1 | b=2", "retry-after": "77", "content-length": "2", "content-type": "",
		"x-private": "", "keep-alive": "", "upgrade": "", "connection": "", "date": "Thu, 01 Jan 1970 00:00:00 GMT", "server": "", "via": "",
	})
	for _, name := range []string{"x-request-id", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "ratelimit-policy", "ratelimit"} {
		if v := got.fields[name]; len(v) != 1 || v[0] == "1" || v[0] == "theirs" || strings.Contains(v[0], `"a"`) {
			t.Errorf("%s: got %q, want one value, the gateway's", name, v)
		}
	}
	client.wantText("ok")
}

// Guarantee: paths and queries reach the upstream byte for byte, below its base path.
func TestPathsArriveUnchanged(t *testing.T) {
	t.Parallel()
	addr, heads := recorder(t, empty)
	g := start(t, setup{upstream: "http://" + addr + "/base/"})
	client := g.dial(t)
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
		client.request(g, "GET "+form+target+" HTTP/1.1")
		if h := client.head(); h.status() != "200" {
			rt.Fatalf("%s: got response\n%s\n%s\nwant status 200", target, h.text, client.text(100))
		}
		if got, want := receive(t, "the request", heads).line, "GET /base"+target+" HTTP/1.1"; got != want {
			rt.Fatalf("the upstream received\n%q, want\n%q", got, want)
		}
	})
}

// Guarantee: interim responses pass, their fields follow the rules of final ones, and do
// not appear in the final response.
func TestInterimFields(t *testing.T) {
	t.Parallel()
	addr := upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
		if _, err := c.ReadHead(); err != nil {
			return
		}
		c.Send("HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\nX-Request-Id: theirs\r\nConnection: x-p\r\nX-P: 1\r\n\r\n" +
			"HTTP/1.1 102 Processing\r\n\r\n" + empty)
	})
	g := start(t, setup{upstream: "http://" + addr})
	client := g.dial(t)
	client.request(g, "GET /a HTTP/1.1")
	first := client.wantHead("103")
	first.wantFields(t, map[string]string{"link": "</a.css>", "x-request-id": "", "x-p": ""})
	if second := client.wantHead("102"); len(second.fields) != 0 {
		t.Errorf("second response: got fields\n%s\nwant none", second.text)
	}
	final := client.wantHead("200")
	final.wantFields(t, map[string]string{"link": ""})
	final.wantPresent(t, "x-ratelimit-limit", "x-request-id")
}

// Guarantee: the identifier of a request has the time of the clock that decides about it, which ignores short steps of the
// machine's, over HTTP/1.1 and HTTP/2.
func TestRequestIdentifiersHaveTheTimeOfTheClock(t *testing.T) {
	overBoth(t, func(t *testing.T, client http.RoundTripper) {
		now := time.Date(2026, 3, 1, 12, 0, 0, 5e6, time.UTC)
		g := start(t, setup{upstream: "http://" + upstreamtest.ServeConstant(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"), wall: now})
		for path, status := range map[string]int{"/public": http.StatusOK, "/a": http.StatusOK, "/..%2f": http.StatusBadRequest} {
			resp, _ := g.do(client, "GET", path, nil)
			request := resp.Header.Get("X-Request-Id")
			u, ok := id.Parse(id.Request, request)
			if got := id.FastTime(u); resp.StatusCode != status || !ok || !got.Equal(now) {
				t.Errorf("%s: got %d with X-Request-Id %q of %v; want %d, and the time %v", path, resp.StatusCode, request, got.UTC(), status, now)
			}
		}
	})
}
