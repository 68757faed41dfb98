package nethttp_test

import (
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/netguard"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/proxy/nethttp"
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

// Guarantee: a request that has passed through this instance before, according to Via, is
// a 502, because it would loop; one that passed through others is served.
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
	server := func() *nethttp.Server {
		s, err := nethttp.New(nethttp.Config{Config: proxy.Config{Admit: &waitingDecider{}, Pools: pools}})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if a, b := server().Via(), server().Via(); a == b || strings.ContainsAny(a, " ,()") {
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

// Guarantee: over HTTP/2, a Host field that differs from :authority is a 400, because an
// upstream could use either (RFC 9113, 8.3.1); an equal one is served.
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
