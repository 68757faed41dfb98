package enginetest_test

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/netguard"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/proxy/h1"
	"github.com/keygate/keygate/internal/upstream"
)

// Guarantee: contract 4.2, end. The forwarding fields of a trusted proxy reach the
// upstream, with the proxy's own address appended; the gateway's own fields cannot be set
// by a proxy either.
func TestTrustedProxyFields(t *testing.T) {
	t.Parallel()
	addr, heads := recorder(t, empty)
	g := start(t, setup{upstream: "http://" + addr, trusted: true})
	for _, c := range []struct {
		name string
		send []string
		want map[string]string
	}{
		{"no forwarding fields", nil, map[string]string{"x-forwarded-for": "127.0.0.1", "x-forwarded-host": "api.test", "x-forwarded-proto": "http"}},
		{"all forwarding fields", []string{"X-Forwarded-For: 203.0.113.9", "X-Forwarded-For: 10.0.0.1", "X-Forwarded-Host: www.test", "X-Forwarded-Proto: https", "Forwarded: for=203.0.113.9"}, map[string]string{
			"x-forwarded-for": "203.0.113.9, 10.0.0.1, 127.0.0.1", "x-forwarded-host": "www.test", "x-forwarded-proto": "https", "forwarded": "for=203.0.113.9",
		}},
		{"fields of the gateway", []string{"X-Keygate-Key-Id: key_0", "X-Request-Id: theirs"}, map[string]string{"x-keygate-key-id": keyID}},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := g.dial(t)
			client.request(g, "GET /a HTTP/1.1", c.send...)
			client.head()
			got := receive(t, "the request", heads)
			got.wantFields(t, c.want)
			if got.get("x-request-id") == "theirs" {
				t.Error("got the proxy's X-Request-Id, want the gateway's")
			}
		})
	}
}

// Guarantee: a request that has passed through this instance before, according to Via, is a 502,
// because it would loop; a request that passed through others is served.
func TestLoopIs502(t *testing.T) {
	t.Parallel()
	addr, heads := recorder(t, empty)
	g := start(t, setup{upstream: "http://" + addr})
	for via, want := range map[string]string{
		"1.1 keygate": "502", "1.0 a, 2.0  keygate (x)": "502", "1.1 keygate2, 1.1 a": "200", "1.1 other (keygate)": "200",
	} {
		client := g.dial(t)
		client.request(g, "GET /a HTTP/1.1", "Via: "+via)
		if got := client.head(); got.status() != want {
			t.Errorf("Via %s: got %s, want status %s", via, got.line, want)
		}
		if want == "200" {
			receive(t, "the request", heads)
		}
	}
}

// Guarantee: each instance without a configured name gets a unique one for Via, which is
// a valid token there.
func TestViaNamesAreUnique(t *testing.T) {
	t.Parallel()
	pools, err := upstream.NewPools(upstream.Config{Guard: netguard.New()})
	if err != nil {
		t.Fatal(err)
	}
	engine := func() *h1.Engine {
		e, err := h1.New(h1.Config{Config: proxy.Config{Admit: &waitingDecider{}, Pools: pools}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := e.Shutdown(context.Background()); err != nil {
				t.Error(err)
			}
		})
		return e
	}
	if a, b := engine().Via(), engine().Via(); a == b || strings.ContainsAny(a, " ,()") {
		t.Errorf("got names %q and %q, want two different tokens", a, b)
	}
}

// Guarantee: a field configured on the gateway reaches the upstream with the configured
// value only, whatever the client sends, even with an underscore in place of a dash.
func TestConfiguredFieldsWin(t *testing.T) {
	t.Parallel()
	addr, heads := recorder(t, empty)
	g := start(t, setup{upstream: "http://" + addr, headers: map[string]string{"X-Backend-Secret": "s3"}})
	client := g.dial(t)
	client.request(g, "GET /a HTTP/1.1", "X_Backend-Secret: theirs", "x-backend-secret: theirs")
	client.head()
	got := receive(t, "the request", heads)
	if got.get("x-backend-secret") != "s3" || strings.Contains(got.text, "theirs") {
		t.Errorf("the upstream received\n%s\nwant X-Backend-Secret: s3 only", got.text)
	}
}

// Guarantee: over HTTP/2, repeated or invalid Content-Length fields are a 400, as they are
// over HTTP/1.1. net/http would use the first, or ignore it.
func TestInvalidContentLengthOverHTTP2Is400(t *testing.T) {
	t.Parallel()
	addr, heads := recorder(t, empty)
	g := start(t, setup{upstream: "http://" + addr})
	for _, lengths := range [][]string{{"0", "0"}, {"0", "5"}, {""}} {
		fields := [][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "api.test"}, {":path", "/a"}, {"authorization", "Bearer " + g.key}}
		for _, length := range lengths {
			fields = append(fields, [2]string{"content-length", length})
		}
		if got := g.stream(fields, nil).PseudoValue("status"); got != "400" {
			t.Errorf("Content-Length %q: got status %s, want 400", lengths, got)
		}
	}
	wantNone(t, heads)
}

// Guarantee: over HTTP/2, a target with a space is a 400. net/http accepts it, but it
// would end the target in the upstream's request line.
func TestSpaceInTargetOverHTTP2Is400(t *testing.T) {
	t.Parallel()
	addr, heads := recorder(t, empty)
	g := start(t, setup{upstream: "http://" + addr})
	for _, path := range []string{"/a b", "/a HTTP/1.0", "/a ", "/a?b c", "http://api.test/a b"} {
		head := g.stream([][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "api.test"}, {":path", path}, {"authorization", "Bearer " + g.key}}, nil)
		if got := head.PseudoValue("status"); got != "400" {
			t.Errorf("path %q: got status %s, want 400", path, got)
		}
	}
	wantNone(t, heads)
}

// Guarantee: contract 4.5: over HTTP/2 too, a path that an upstream could resolve to another,
// and a target that is not UTF-8, are a 400.
func TestAmbiguousTargetOverHTTP2Is400(t *testing.T) {
	t.Parallel()
	addr, heads := recorder(t, empty)
	g := start(t, setup{upstream: "http://" + addr})
	for path, want := range map[string]string{
		"/..;/a": "400", "/.%3bx": "400", "/%c0%ae%c0%ae/a": "400", "/a%e0%80%afb": "400", "/a%f0%80%80%afb": "400",
		"/\xc0\xae/a": "400", "/caf\xe9": "400", "/a?q=\xff": "400", "/caf\xc3\xa9?q=\xc3\xa9": "200", "/a;..%C0": "200",
	} {
		head := g.stream([][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "api.test"}, {":path", path}, {"authorization", "Bearer " + g.key}}, nil)
		if got := head.PseudoValue("status"); got != want {
			t.Errorf("path %q: got status %s, want %s", path, got, want)
		}
		if want == "200" {
			receive(t, "the request", heads)
		}
	}
	wantNone(t, heads)
}

// Guarantee: over HTTP/2, a Host field that differs from :authority is a 400, because an upstream
// could use either (RFC 9113, 8.3.1); with an equal Host field it is served.
func TestHostOtherThanAuthorityIs400(t *testing.T) {
	t.Parallel()
	addr, heads := recorder(t, empty)
	g := start(t, setup{upstream: "http://" + addr})
	for host, want := range map[string]string{"other.test": "400", g.addr: "200"} {
		head := g.stream([][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", g.addr}, {":path", "/a"},
			{"host", host}, {"authorization", "Bearer " + g.key}}, nil)
		if got := head.PseudoValue("status"); got != want {
			t.Errorf("Host %s: got status %s, want %s", host, got, want)
		}
		if want == "200" {
			receive(t, "the request", heads)
		}
	}
}

// Guarantee: contract 4.2, end: over either version of HTTP, and to an upstream with or
// without TLS, a stranger cannot name the client's address in any field that upstreams
// read, and nobody can send a field that an upstream could take for Content-Length or
// Transfer-Encoding. The trailers of a request cannot hold such fields either.
func TestFieldsThatUpstreamsMisread(t *testing.T) {
	t.Parallel()
	addresses := []string{"X-Real-Ip", "x_real_ip", "X-Client-Ip", "X_Client-IP", "True-Client-Ip", "TRUE_CLIENT_IP", "Cf-Connecting-Ip", "cf_connecting_ip"}
	lookalikes := []string{"Content_Length", "transfer_encoding", "TRANSFER_ENCODING"}
	for _, c := range []struct{ secure, trusted bool }{{false, false}, {false, true}, {true, false}, {true, true}} {
		t.Run(fmt.Sprintf("https %v, trusted %v", c.secure, c.trusted), func(t *testing.T) {
			overBoth(t, func(t *testing.T, client http.RoundTripper) {
				seen := make(chan http.Header, 1)
				s := setup{trusted: c.trusted}
				s.upstream, s.ca = namesOfFields(t, c.secure, seen)
				g := start(t, s)
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+g.addr+"/a", io.NopCloser(strings.NewReader("body")))
				if err != nil {
					t.Fatal(err)
				}
				req.Trailer = http.Header{}
				for _, name := range slices.Concat(addresses, lookalikes) {
					req.Header[name] = []string{"192.0.2.1"}
					req.Trailer[name] = []string{"192.0.2.1"}
				}
				req.Header["Authorization"], req.Header["X-Passes"] = []string{"Bearer " + g.key}, []string{"yes"}
				resp, err := client.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				if resp.StatusCode != http.StatusOK {
					t.Fatalf("got status %d, want 200", resp.StatusCode)
				}
				got, passed := <-seen, 0
				for name := range got {
					id := strings.ToLower(strings.ReplaceAll(name, "_", "-"))
					switch {
					case strings.HasSuffix(id, "-ip"):
						passed++
					case strings.Contains(name, "_"):
						t.Errorf("the upstream received %s", name)
					}
				}
				if want := map[bool]int{true: len(addresses)}[c.trusted]; passed != want || got.Get("X-Passes") != "yes" {
					t.Errorf("the upstream received %d fields with an address, want %d: %v", passed, want, got)
				}
			})
		})
	}
}

// namesOfFields starts an upstream that sends the header of each request to seen, and with
// it the name of each of its trailers.
func namesOfFields(t *testing.T, secure bool, seen chan<- http.Header) (url, ca string) {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		got := r.Header.Clone()
		for name := range r.Trailer {
			got["in a trailer: "+name] = nil
		}
		seen <- got
	}))
	t.Cleanup(s.Close)
	if !secure {
		s.Start()
		return s.URL, ""
	}
	s.StartTLS()
	return s.URL, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}
