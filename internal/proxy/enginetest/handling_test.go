package enginetest_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
)

// handled returns a route for GET and POST with a handling.
func handled(n byte, path string, h *gateway.Handling) gateway.Route {
	return gateway.Route{ID: id.Format(id.Route, [16]byte{100, n}), GatewayID: gatewayID, Path: path, Methods: []string{"GET", "POST"}, Auth: gateway.AuthKey, Handling: h}
}

// sayTarget responds with the target of the request.
func sayTarget(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.RequestURI) }

// Guarantee: edge.md, 2: over all versions of HTTP, the upstream gets the path without the segments of strip_prefix, byte for
// byte, behind the path of its URL. The record keeps the original path.
func TestPrefixesAreStripped(t *testing.T) {
	t.Parallel()
	overUpstreams(t, func(*testing.T) http.HandlerFunc { return sayTarget }, func(t *testing.T, s setup, client http.RoundTripper) {
		s.upstream += "/base"
		s.routes = []gateway.Route{
			handled(1, "/api", &gateway.Handling{StripPrefix: "/api"}), handled(2, "/api/*", &gateway.Handling{StripPrefix: "/api"}),
			handled(3, "/t/{tenant}/x", &gateway.Handling{StripPrefix: "/t/{tenant}"}),
		}
		g := start(t, s)
		for _, c := range [][2]string{
			{"/api", "/base/"}, {"/api/", "/base/"}, {"/api/x", "/base/x"}, {"/%61pi/x%7Ey/?a=%62&api_key=" + g.key, "/base/x%7Ey/?a=%62"},
			{"/t/a%20b/x", "/base/x"}, {"/other/api", "/base/other/api"},
		} {
			key := g.key
			if strings.Contains(c[0], "api_key") {
				g.key = ""
			}
			resp, text := g.do(client, "GET", c[0], nil)
			g.key = key
			if resp.StatusCode != 200 || text != c[1] {
				t.Errorf("%s: the upstream got %d %q, want %q", c[0], resp.StatusCode, text, c[1])
			}
			path, _, _ := strings.Cut(c[0], "?")
			for _, r := range g.records() {
				if r.Path != path || r.Result != accesslog.Forwarded {
					t.Errorf("%s: got record %+v, want the original path", c[0], r)
				}
			}
		}
	})
}

// FuzzStripPrefix has the guarantee: whatever follows a prefix that is cut off, the upstream sees a suffix of the bytes that were
// matched, or "/", the same over HTTP/1.1 and HTTP/2, and nothing that begins with a slash twice, plain or encoded, or a backslash.
func FuzzStripPrefix(f *testing.F) {
	for _, seed := range []string{"", "x", "/x", "%2fx", "%2Fx", "%5cx", "%5Cx", "..", "%2e%2e/x", "%2e%2e%2fx", ";/x", "x/../y", "%", "%2", "a%2f%2fb", "?x", "//evil.example/", "\\x", "%252fx", "é"} {
		f.Add(seed)
	}
	addr := plainUpstream(f, sayTarget)
	g := start(f, setup{upstream: addr, routes: []gateway.Route{handled(1, "/s/*", &gateway.Handling{StripPrefix: "/s"})}, slashes: true})
	clients := map[string]http.RoundTripper{"HTTP/1.1": http.DefaultTransport, "HTTP/2": h2cClient(f)}
	f.Fuzz(func(t *testing.T, rest string) {
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		seen := map[string]string{}
		for name, client := range clients {
			req, err := http.NewRequestWithContext(ctx, "GET", "http://"+g.addr, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.URL = &url.URL{Scheme: "http", Host: g.addr, Opaque: "//" + g.addr + "/s/" + rest}
			req.Header.Set("Authorization", "Bearer "+g.key)
			resp, err := client.RoundTrip(req)
			if err != nil {
				return // the client does not send it
			}
			body, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != 200 {
				seen[name] = fmt.Sprint(resp.StatusCode)
				continue
			}
			seen[name] = string(body)
			path, _, _ := strings.Cut(string(body), "?")
			if !strings.HasSuffix("/s/"+rest, string(body)) || !strings.HasPrefix(path, "/") {
				t.Errorf("%s: the upstream sees %q of %q, want a suffix of it", name, body, "/s/"+rest)
			}
			for _, bad := range []string{"//", "/\\", "/%2f", "/%5c"} {
				if strings.HasPrefix(strings.ToLower(path), bad) {
					t.Errorf("%s: the upstream sees %q, which begins with %s", name, body, bad)
				}
			}
		}
		if a, b := seen["HTTP/1.1"], seen["HTTP/2"]; a != b {
			t.Errorf("%q: got %q over HTTP/1.1 and %q over HTTP/2", rest, a, b)
		}
	})
}

// Guarantee: edge.md, 1 and 2: over both versions of HTTP, a route with respond or redirect responds by itself. The request is
// charged, its body is discarded, and the connection serves another. HEAD gets the fields alone. Nothing reaches the upstream.
func TestRoutesRespond(t *testing.T) {
	overBoth(t, testRoutesRespond)
}

func testRoutesRespond(t *testing.T, client http.RoundTripper) {
	addr, heads := recorder(t, empty)
	long := strings.Repeat("0123456789abcdef", gateway.MaxRespondBody/16)
	g := start(t, setup{upstream: "http://" + addr, limit: "100/day", routes: []gateway.Route{
		handled(1, "/long", &gateway.Handling{Respond: &gateway.Respond{Status: 200, ContentType: "text/plain", Body: long, Headers: map[string]string{"X-A": "b c", "Cache-Control": "no-store"}}}),
		handled(2, "/none", &gateway.Handling{Respond: &gateway.Respond{Status: 204}}),
		handled(3, "/empty", &gateway.Handling{Respond: &gateway.Respond{Status: 200}}),
		handled(4, "/gone", &gateway.Handling{Respond: &gateway.Respond{Status: 410, ContentType: "application/json", Body: `{"gone": true}`}}),
		handled(5, "/old/*", &gateway.Handling{Redirect: &gateway.Redirect{To: "https://new.example", Status: 308, KeepPath: true, KeepQuery: true}}),
		handled(6, "/moved", &gateway.Handling{Redirect: &gateway.Redirect{To: "/there?a=b", Status: 302}}),
	}})
	left := 100
	for _, c := range []struct {
		method, path, body string
		status             int
		text, location     string
		length             int64
		contentType        string
	}{
		{"GET", "/long", "", 200, long, "", int64(len(long)), "text/plain"},
		{"POST", "/long", "some body", 200, long, "", int64(len(long)), "text/plain"},
		{"HEAD", "/long", "", 200, "", "", int64(len(long)), "text/plain"},
		{"GET", "/none", "", 204, "", "", 0, ""},
		{"GET", "/empty", "", 200, "", "", 0, ""},
		{"POST", "/gone", strings.Repeat("x", 30<<10), 410, `{"gone": true}`, "", 14, "application/json"},
		{"GET", "/old/%61//?", "", 400, "", "", -2, ""},
		{"GET", "/old/%61/b?x=%62", "", 308, "", "https://new.example/old/%61/b?x=%62", 0, ""},
		{"GET", "/old/", "", 308, "", "https://new.example/old/", 0, ""},
		{"HEAD", "/moved?x", "", 302, "", "/there?a=b", 0, ""},
	} {
		var body io.Reader
		if c.body != "" {
			body = strings.NewReader(c.body)
		}
		resp, text := g.do(client, c.method, c.path, body)
		if c.status == 400 {
			if resp.StatusCode != 400 {
				t.Errorf("%s %s: got %d, want 400", c.method, c.path, resp.StatusCode)
			}
			g.records()
			continue
		}
		left--
		h := resp.Header
		if resp.StatusCode != c.status || text != c.text || h.Get("Location") != c.location || resp.ContentLength != c.length || h.Get("Content-Type") != c.contentType {
			t.Errorf("%s %s: got %d %v, length %d, %.40q, want %d, %q to %q, length %d", c.method, c.path, resp.StatusCode, h, resp.ContentLength, text, c.status, c.contentType, c.location, c.length)
		}
		if c.status == 204 && h.Get("Content-Length") != "" {
			t.Errorf("a 204 has a Content-Length: %v", h)
		}
		if h.Get("X-RateLimit-Remaining") != fmt.Sprint(left) || h.Get("X-Request-Id") == "" || h.Get("Date") == "" {
			t.Errorf("%s %s: got %v, want %d left", c.method, c.path, h, left)
		}
		if strings.HasPrefix(c.path, "/long") && (h.Get("X-A") != "b c" || h.Get("Cache-Control") != "no-store") {
			t.Errorf("got %v, want the headers of respond", h)
		}
		want := accesslog.Responded
		if c.location != "" {
			want = accesslog.Redirected
		}
		path, _, _ := strings.Cut(c.path, "?")
		for _, r := range g.records() {
			if r.Result != want || int(r.Status) != c.status || r.Path != path || r.Key == [16]byte{} || r.Route == [16]byte{} || r.BytesOut != int64(len(text)) {
				t.Errorf("%s %s: got record %+v, want result %d", c.method, c.path, r, want)
			}
		}
	}
	wantNone(t, heads)
}
