package nethttp_test

import (
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/netguard"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/proxy/nethttp"
	"github.com/keygate/keygate/internal/upstream"
)

// What a trusted proxy says of its client reaches the upstream, with the proxy's
// own address behind (contract, 4.2, end).
func TestTrustedProxy(t *testing.T) {
	addr, heads := recorder(t, empty)
	e := start(t, setup{upstream: "http://" + addr, trusted: true})
	for _, c := range []struct {
		name string
		send []string
		want map[string]string
	}{
		{"nothing said", nil, map[string]string{"x-forwarded-for": "127.0.0.1", "x-forwarded-host": "api.test", "x-forwarded-proto": "http"}},
		{"all said", []string{"X-Forwarded-For: 203.0.113.9", "X-Forwarded-For: 10.0.0.1", "X-Forwarded-Host: www.test", "X-Forwarded-Proto: https", "Forwarded: for=203.0.113.9"}, map[string]string{
			"x-forwarded-for": "203.0.113.9, 10.0.0.1, 127.0.0.1", "x-forwarded-host": "www.test", "x-forwarded-proto": "https", "forwarded": "for=203.0.113.9",
		}},
		{"ours all the same", []string{"X-Keygate-Key-Id: key_0", "X-Request-Id: theirs"}, map[string]string{"x-keygate-key-id": keyID}},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := e.dial()
			client.request(e, "GET /a HTTP/1.1", c.send...)
			client.head()
			got := within(t, "the request", heads)
			for name, want := range c.want {
				if got.get(name) != want {
					t.Errorf("%s is %q, want %q", name, got.get(name), want)
				}
			}
			if got.get("x-request-id") == "theirs" {
				t.Error("a proxy's X-Request-Id was believed")
			}
		})
	}
}

// A request that has come through this instance is refused, since it would come
// again; one that came through another is not.
func TestLoop(t *testing.T) {
	addr, heads := recorder(t, empty)
	e := start(t, setup{upstream: "http://" + addr})
	for via, want := range map[string]string{
		"1.1 keygate": "502", "1.0 a, 2.0  keygate (x)": "502", "1.1 keygate2, 1.1 a": "200", "1.1 other (keygate)": "200",
	} {
		client := e.dial()
		client.request(e, "GET /a HTTP/1.1", "Via: "+via)
		if got := client.head(); got.status() != want {
			t.Errorf("Via: %s: %s", via, got.line)
		}
		if want == "200" {
			within(t, "the request", heads)
		}
	}
}

// Every instance has a name of its own in Via unless it is given one.
func TestViaNames(t *testing.T) {
	pools, err := upstream.NewPools(upstream.Config{Guard: netguard.New()})
	if err != nil {
		t.Fatal(err)
	}
	server := func() *nethttp.Server {
		s, err := nethttp.New(nethttp.Config{Config: proxy.Config{Admit: &waiting{}, Pools: pools}})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if a, b := server().Via(), server().Via(); a == b || strings.ContainsAny(a, " ,()") {
		t.Errorf("%q and %q", a, b)
	}
}

// A field that the gateway sets reaches the upstream with the gateway's value
// alone, however a caller spells it.
func TestSetFieldsAreOurs(t *testing.T) {
	addr, heads := recorder(t, empty)
	e := start(t, setup{upstream: "http://" + addr, headers: map[string]string{"X-Backend-Secret": "s3"}})
	client := e.dial()
	client.request(e, "GET /a HTTP/1.1", "X_Backend-Secret: theirs", "x-backend-secret: theirs")
	client.head()
	got := within(t, "the request", heads)
	if got.get("x-backend-secret") != "s3" || strings.Contains(got.text, "theirs") {
		t.Errorf("arrived as\n%s", got.text)
	}
}

// Over HTTP/2 a length that is told twice, or is none, is refused as it is over
// HTTP/1.1: net/http would go by the first, or by none.
func TestLengths(t *testing.T) {
	addr, heads := recorder(t, empty)
	e := start(t, setup{upstream: "http://" + addr})
	for _, lengths := range [][]string{{"0", "0"}, {"0", "5"}, {""}} {
		fields := [][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "api.test"}, {":path", "/a"}, {"authorization", "Bearer " + e.key}}
		for _, length := range lengths {
			fields = append(fields, [2]string{"content-length", length})
		}
		if got := e.stream(fields, nil).PseudoValue("status"); got != "400" {
			t.Errorf("%q: %s", lengths, got)
		}
	}
	if len(heads) > 0 {
		t.Errorf("arrived as\n%s", (<-heads).text)
	}
}

// Over HTTP/2 a target may hold a space as far as net/http is concerned, which
// would end it in the request line for the upstream.
func TestSpaceInTarget(t *testing.T) {
	addr, heads := recorder(t, empty)
	e := start(t, setup{upstream: "http://" + addr})
	for _, path := range []string{"/a b", "/a HTTP/1.0", "/a ", "/a?b c", "http://api.test/a b"} {
		head := e.stream([][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "api.test"}, {":path", path}, {"authorization", "Bearer " + e.key}}, nil)
		if got := head.PseudoValue("status"); got != "400" {
			t.Errorf("%q: %s", path, got)
		}
	}
	if len(heads) > 0 {
		t.Errorf("arrived as\n%s", (<-heads).text)
	}
}

// Over HTTP/2 a field Host that differs from :authority is refused, since an
// upstream may believe either (RFC 9113, 8.3.1).
func TestTwoHosts(t *testing.T) {
	addr, heads := recorder(t, empty)
	e := start(t, setup{upstream: "http://" + addr})
	for host, want := range map[string]string{"other.test": "400", e.addr: "200"} {
		head := e.stream([][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", e.addr}, {":path", "/a"},
			{"host", host}, {"authorization", "Bearer " + e.key}}, nil)
		if got := head.PseudoValue("status"); got != want {
			t.Errorf("Host %s: %s", host, got)
		}
		if want == "200" {
			within(t, "the request", heads)
		}
	}
}
