package upstream_test

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/keygatetest/leaktest"
	"github.com/keygate/keygate/internal/netguard"
	"github.com/keygate/keygate/internal/upstream"
	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func newPools(t *testing.T, cfg upstream.Config) *upstream.Pools {
	t.Helper()
	if cfg.Guard == nil {
		cfg.Guard = netguard.New()
	}
	p, err := upstream.NewPools(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// send sends a request and returns the whole response.
func send(t *testing.T, pools *upstream.Pools, o upstream.Origin, req *http.Request) (*http.Response, string, error) {
	t.Helper()
	reply, err := upstream.Start(t.Context(), pools, o, req, time.Minute)
	if err != nil {
		return nil, "", err
	}
	body, err := reply.Whole()
	return reply.Response, body, err
}

func request(method, base, target string) *http.Request {
	u, err := url.Parse(base)
	if err != nil {
		panic(err)
	}
	return &http.Request{
		Method: method, URL: &url.URL{Scheme: u.Scheme, Host: u.Host, Opaque: upstream.Path(u) + target}, Host: u.Host,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{},
	}
}

// Guarantee: the failures of an upstream have different errors: no listener, refused by the guard,
// closed before the head, no head in time.
func TestFailures(t *testing.T) {
	silent := upstreamtest.Serve(t, func(c *upstreamtest.Conn) { _, _ = io.Copy(io.Discard, c) })
	broken := upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
		_, _ = c.ReadHead()
		c.Send("HTTP/1.1 200 OK\r\nContent-")
	})
	const closedPort = "127.0.0.1:9" // the discard port, on which nothing listens
	guard := netguard.New()
	guard.SetListeners(netip.MustParseAddrPort("127.0.0.1:1"))
	pools := newPools(t, upstream.Config{Guard: guard})
	for name, c := range map[string]struct {
		origin  upstream.Origin
		code    fault.Code
		refused bool
	}{
		"closed":  {origin: upstream.Origin{Scheme: "http", Host: closedPort}, code: fault.UpstreamUnreachable},
		"broken":  {origin: upstream.Origin{Scheme: "http", Host: broken}, code: fault.UpstreamUnreachable},
		"silent":  {origin: upstream.Origin{Scheme: "http", Host: silent}, code: fault.UpstreamTimeout},
		"own":     {origin: upstream.Origin{Scheme: "http", Host: "127.0.0.1:1"}, code: fault.UpstreamUnreachable, refused: true},
		"private": {origin: upstream.Origin{Scheme: "http", Host: silent, PublicOnly: true}, code: fault.UpstreamUnreachable, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			req := request("GET", c.origin.Scheme+"://"+c.origin.Host, "/")
			timeout := time.Minute
			if c.code == fault.UpstreamTimeout {
				timeout = 200 * time.Millisecond
			}
			_, err := upstream.Start(t.Context(), pools, c.origin, req, timeout)
			var refused *netguard.RefusedError
			if fault.CodeOf(err) != c.code || errors.As(err, &refused) != c.refused {
				t.Errorf("got %v, want %s, refused by the guard %v", err, c.code, c.refused)
			}
			if status, body := fault.Response(err, "req_1"); status < 502 || strings.Contains(string(body), "127.0.0.1") {
				t.Errorf("the client gets %d %s, want a 502 or 504 without the address", status, body)
			}
		})
	}
}

// Guarantee: every account can reach a network that the operator allows.
func TestAllowedNetwork(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer s.Close()
	pools := newPools(t, upstream.Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	origin := upstream.Origin{Scheme: "http", Host: s.Listener.Addr().String(), PublicOnly: true}
	if _, _, err := send(t, pools, origin, request("GET", s.URL, "/")); err != nil {
		t.Error(err)
	}
}

// Guarantee: an https upstream is verified against upstream_ca alone if that is set, and
// spoken to over HTTP/2 if it offers that.
func TestTLS(t *testing.T) {
	for _, offers := range []bool{true, false} {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, r.Proto+" "+r.RequestURI)
		}))
		s.EnableHTTP2 = offers
		s.StartTLS()
		host := s.Listener.Addr().String()
		ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
		want := "HTTP/1.1 /base/a%2fb?q"
		if offers {
			want = "HTTP/2.0 /base/a%2fb?q"
		}
		pools := newPools(t, upstream.Config{})
		_, body, err := send(t, pools, upstream.Origin{Scheme: "https", Host: host, CA: ca}, request("GET", s.URL+"/base", "/a%2fb?q"))
		if err != nil || body != want {
			t.Errorf("with the CA: %q %v, want %q", body, err, want)
		}
		_, _, err = send(t, pools, upstream.Origin{Scheme: "https", Host: host}, request("GET", s.URL, "/"))
		var unknown x509.UnknownAuthorityError
		if !errors.As(err, &unknown) {
			t.Errorf("with the system's roots: got error %v, want x509.UnknownAuthorityError", err)
		}
		if _, err := pools.Multiplexed(upstream.Origin{Scheme: "https", Host: host, CA: "no PEM"}); err == nil {
			t.Error("Multiplexed succeeded with a CA that is not PEM, want an error")
		}
		pools.Close()
		s.Close()
	}
}

// Guarantee: gateways with the same origin share connections, others do not.
func TestPoolsByOrigin(t *testing.T) {
	pools := newPools(t, upstream.Config{})
	get := func(o upstream.Origin) any {
		if o.Scheme == "http" {
			p, err := pools.Plain(o)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		p, err := pools.Multiplexed(o)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	a := upstream.Origin{Scheme: "http", Host: "a.test"}
	if first := get(a); first != get(a) {
		t.Error("one origin has two pools")
	}
	for _, other := range []upstream.Origin{
		{Scheme: "h2c", Host: "a.test"}, {Scheme: "http", Host: "a.test:81"}, {Scheme: "http", Host: "a.test", PublicOnly: true},
	} {
		if get(a) == get(other) {
			t.Errorf("%+v shares the pool of %+v", other, a)
		}
	}
	if _, err := pools.Multiplexed(upstream.Origin{Scheme: "ftp", Host: "a.test"}); err == nil {
		t.Error("Multiplexed succeeded with scheme ftp, want an error")
	}
}
