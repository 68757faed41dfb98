package enginetest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/gateway"
)

// rules returns rules that set headers, given as names and values, and remove others.
func rules(remove []string, set ...string) *gateway.HeaderRules {
	r := &gateway.HeaderRules{Remove: remove, Set: map[string]string{}}
	for pair := range slices.Chunk(set, 2) {
		r.Set[pair[0]] = pair[1]
	}
	return r
}

// echoFields responds with the fields and the trailers of the request as JSON, and with fields and trailers of its own.
func echoFields(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	h := w.Header()
	for _, name := range []string{"X-Powered-By", "x_powered_by", "X-Debug", "X-Frame", "x_frame", "X-Lost", "X-Kept", "X-Owner"} {
		h[name] = []string{"the upstream's"}
	}
	h.Set("Trailer", "X-Debug, X-T")
	all := map[string]http.Header{"head": r.Header, "tail": r.Trailer}
	_ = json.NewEncoder(w).Encode(all)
	for _, name := range []string{"X-Debug", "X-T", http.TrailerPrefix + "x_frame"} {
		h[name] = []string{"the upstream's"}
	}
}

// fold returns fields by their names in lower case and with "-" for "_".
func fold(h http.Header) http.Header {
	folded := http.Header{}
	for name, values := range h {
		name = strings.ReplaceAll(strings.ToLower(name), "_", "-")
		folded[name] = append(folded[name], values...)
	}
	return folded
}

// wantFields checks the values of fields, which are given as names and values; "" means that there is none.
func wantFields(t *testing.T, what string, h http.Header, pairs ...string) {
	t.Helper()
	h = fold(h)
	for pair := range slices.Chunk(pairs, 2) {
		if got := strings.Join(h[pair[0]], " | "); got != pair[1] {
			t.Errorf("%s: got %s %q, want %q", what, pair[0], got, pair[1])
		}
	}
}

// Guarantee: edge.md, 2: whatever the versions of HTTP, names that request_headers and response_headers set or remove are taken from the
// message, however they are written, in trailers too, and those that are set are there once, with the value of the rule. A rule of the
// route takes the place of the gateway's. What has no value is absent. All other fields pass.
func TestHeaderRules(t *testing.T) {
	overUpstreams(t, func(*testing.T) http.HandlerFunc { return echoFields }, testHeaderRules)
}

func testHeaderRules(t *testing.T, s setup, client http.RoundTripper) {
	s.headers = map[string]string{"X-Token": "secret"}
	s.requestHeaders = rules([]string{"x_debug", "X-Other"}, "X-Client", "${client_ip}", "X-Owner", "o=${owner}; k=${key_id}", "X-Static", "gw", "X-Lost", "gw",
		"X-Id", "<${request_id}>", "X-Gw", "${gateway_id}", "X-Subject", "s${subject}", "x_token", "newer")
	s.responseHeaders = rules([]string{"X-Powered-By", "X-Debug"}, "X-Frame", "gw", "X-Req", "${request_id}", "X-Lost", "gw", "X-Owner", "${owner}")
	s.routes = []gateway.Route{handled(1, "/r", &gateway.Handling{
		RequestHeaders:  rules([]string{"X_LOST"}, "x-static", "the route's", "X-Other", "$"),
		ResponseHeaders: rules([]string{"X-Lost"}, "x_frame", "the route's"),
	})}
	g := start(t, s)
	for path, want := range map[string]struct{ static, lost, other, frame, back string }{
		"/a": {"gw", "gw", "", "gw", "gw"}, "/r": {"the route's", "", "$", "the route's", ""},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		req, err := http.NewRequestWithContext(ctx, "POST", "http://"+g.addr+path, io.MultiReader(strings.NewReader("body")))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{"Authorization": {"Bearer " + g.key}, "Te": {"trailers"}, "X-Kept": {"yes"}}
		for _, name := range []string{"X-Client", "x_client", "X-Owner", "X-Static", "x_static", "X-Lost", "X-Id", "X_Gw", "X-Subject", "X-Debug", "X_debug", "X-Other", "X-Token"} {
			req.Header[name] = []string{"forged"}
		}
		req.Trailer = http.Header{"X-Client": {"forged"}, "X_Debug": {"forged"}, "X-Subject": {"forged"}, "X-Sum": {"1"}}
		resp, err := client.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		var got struct{ Head, Tail http.Header }
		err = json.NewDecoder(resp.Body).Decode(&got)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
		}
		_ = resp.Body.Close()
		cancel()
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("%s: got %d, error %v", path, resp.StatusCode, err)
		}
		id := resp.Header.Get("X-Request-Id")
		wantFields(t, path, got.Head, "x-client", "127.0.0.1", "x-owner", "o=Ann%20<ann@example.com>; k="+keyID, "x-static", want.static, "x-lost", want.lost,
			"x-other", want.other, "x-id", "<"+id+">", "x-gw", gatewayID, "x-subject", "", "x-debug", "", "x-token", "secret", "x-kept", "yes", "x-request-id", id)
		if tail := fold(got.Tail); fmt.Sprint(tail) != "map[x-sum:[1]]" {
			t.Errorf("%s: the upstream got the trailers %v, want X-Sum alone", path, got.Tail)
		}
		wantFields(t, path+", response", resp.Header, "x-powered-by", "", "x-debug", "", "x-frame", want.frame, "x-req", id, "x-lost", want.back, "x-kept", "the upstream's",
			"x-owner", "Ann%20<ann@example.com>")
		if tail := fold(resp.Trailer); !slices.Equal(slices.Collect(maps.Keys(tail)), []string{"x-t"}) {
			t.Errorf("%s: the client got the trailers %v, want X-T alone", path, resp.Trailer)
		}
	}
	g.key = ""
	_, text := g.do(client, "POST", "/public/a", nil, "X-Owner", "forged")
	if strings.Contains(text, "forged") || strings.Contains(text, "X-Owner") {
		t.Errorf("without a key, the upstream got %s, want no X-Owner", text)
	}
}

// Guarantee: edge.md, 2: response_headers touch no response of the gateway itself, be it a refusal, a redirect or a respond, and cors
// says by itself which origin is allowed.
func TestHeaderRulesLeaveOwnResponses(t *testing.T) {
	overBoth(t, func(t *testing.T, client http.RoundTripper) {
		s := setup{upstream: plainUpstream(t, echoFields), cors: &gateway.CORS{Origins: []string{"https://app.example"}}, responseHeaders: rules([]string{"Content-Type"}, "X-Frame", "gw", "Access-Control-Allow-Origin", "*")}
		s.routes = []gateway.Route{
			handled(1, "/own", &gateway.Handling{Respond: &gateway.Respond{Status: 410, ContentType: "text/plain", Body: "gone"}}),
			handled(2, "/away", &gateway.Handling{Redirect: &gateway.Redirect{To: "/b", Status: 302}, ResponseHeaders: rules(nil, "X-Frame", "the route's")}),
		}
		g := start(t, s)
		for path, status := range map[string]int{"/own": 410, "/away": 302, "/a//b": 400} {
			resp, _ := g.do(client, "GET", path, nil)
			if resp.StatusCode != status || len(resp.Header["X-Frame"]) > 0 || path != "/away" && resp.Header.Get("Content-Type") == "" {
				t.Errorf("%s: got %d %v, want %d and no rule in force", path, resp.StatusCode, resp.Header, status)
			}
		}
		for origin, want := range map[string]string{"https://app.example": "https://app.example", "": "*"} {
			var fields []string
			if origin != "" {
				fields = []string{"Origin", origin}
			}
			resp, _ := g.do(client, "GET", "/a", nil, fields...)
			wantFields(t, "from "+origin, resp.Header, "access-control-allow-origin", want, "content-type", "", "x-frame", "gw")
		}
	})
}

// Guarantee: no rule sets the cookie of sessions on the management API, whatever its variables have: the header is left out, over both
// versions of HTTP. Other cookies are set.
func TestHeaderRulesSetNoSession(t *testing.T) {
	overBoth(t, func(t *testing.T, client http.RoundTripper) {
		s := setup{upstream: plainUpstream(t, echoFields), owner: "keygate_session"}
		s.responseHeaders = rules(nil, "set-cookie", "${owner}=stolen; Path=/")
		s.routes = []gateway.Route{handled(1, "/r", &gateway.Handling{ResponseHeaders: rules(nil, "Set-Cookie", "o=${owner}")})}
		g := start(t, s)
		for path, want := range map[string]string{"/a": "", "/r": "o=keygate_session"} {
			resp, _ := g.do(client, "GET", path, nil)
			if resp.StatusCode != 200 {
				t.Errorf("%s: got %d", path, resp.StatusCode)
			}
			wantFields(t, path, resp.Header, "set-cookie", want)
		}
	})
}

// Guarantee: edge.md, 2: nothing that a client sends reaches into a header that is set, or brings back one that is removed: the upstream
// gets it once, with the value of the rule.
func FuzzHeaderRules(f *testing.F) {
	for _, seed := range [][2]string{
		{"X-Set", "forged"}, {"x_set", "forged"}, {"Connection", "X-Set, close"}, {"Connection", "x-owner"}, {"X-Gone", "forged"}, {"X-Set ", "a"}, {"X-Set", "a\r\nX-Gone: b"},
		{"Transfer-Encoding", "chunked"}, {"Trailer", "X-Set"}, {"X-Sét", "a"}, {"TE", "trailers"}, {"X-A", "\x00"}, {" X-Set", "a"}, {"X-A", "a\n X-Set: b"},
	} {
		f.Add(seed[0], seed[1])
	}
	addr, heads := recorder(f, empty)
	g := start(f, setup{upstream: "http://" + addr, requestHeaders: rules([]string{"X-Gone"}, "X-Set", "ours", "X-Owner", "${owner}")})
	f.Fuzz(func(t *testing.T, name, value string) {
		client := g.dial(t)
		client.Send("GET /a HTTP/1.1\r\nHost: api.test\r\nAuthorization: Bearer " + g.key + "\r\nX-Gone: first\r\n" + name + ": " + value + "\r\nConnection: close\r\n\r\n")
		if half, ok := client.Conn.Conn.(*net.TCPConn); ok {
			_ = half.CloseWrite() // what is sent of a body is all of it
		}
		_, _ = io.Copy(io.Discard, client.Reader)
		for {
			select {
			case h := <-heads:
				seen := map[string][]string{}
				for line := range strings.SplitSeq(h.text, "\r\n") {
					if n, v, ok := strings.Cut(line, ":"); ok {
						n = strings.ReplaceAll(strings.ToLower(n), "_", "-")
						seen[n] = append(seen[n], strings.TrimSpace(v))
					}
				}
				if len(seen["x-gone"]) > 0 || !slices.Equal(seen["x-set"], []string{"ours"}) || !slices.Equal(seen["x-owner"], []string{"Ann%20<ann@example.com>"}) {
					t.Errorf("the upstream got\n%s", h.text)
				}
				continue
			default:
			}
			return
		}
	})
}
