package health

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unique"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	grpchealth "google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/certificate/certificatetest"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/keygatetest/porttest"
	"github.com/keygate/keygate/internal/netguard"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/upstream"
)

func newPools(t testing.TB, allow ...netip.Prefix) *upstream.Pools {
	t.Helper()
	pools, err := upstream.NewPools(upstream.Config{Guard: netguard.New(), Allow: allow})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pools.Close)
	return pools
}

// targetOf returns a target with the URL, for account a.
func targetOf(tb testing.TB, text string) balance.TargetConfig {
	tb.Helper()
	u, err := gateway.ParseUpstreamURL(text)
	if err != nil {
		tb.Fatal(err)
	}
	return balance.TargetConfig{URL: text, Origin: u.Origin(), Address: net.JoinHostPort(u.Host, u.Port), Weight: 1}
}

// statuses parses statuses.
func statuses(tb testing.TB, text string) []gateway.StatusRange {
	tb.Helper()
	list, err := gateway.ParseStatuses(text)
	if err != nil {
		tb.Fatal(err)
	}
	return list
}

// checkOf returns the check of a target with the URL.
func checkOf(t *testing.T, target string, of snapshot.Check) *check {
	t.Helper()
	if of.Timeout == 0 {
		of.Timeout = 10 * time.Second
	}
	if of.Statuses == nil {
		of.Statuses = statuses(t, gateway.DefaultStatuses)
	}
	f := balance.NewFleet(nil)
	f.Upstream(0, balance.Name{Account: "a", Gateway: "g", Upstream: "u"}, &balance.Config{
		Targets: []balance.TargetConfig{targetOf(t, target)}, Check: balance.Check{ID: "x", Unhealthy: 1, Healthy: 1, Use: &of},
	})
	var c *check
	f.Healths(func(h *balance.Health, b balance.Check) bool {
		c = newCheck(h, &settings{Check: b.Use.(*snapshot.Check)})
		return true
	})
	return c
}

// raw starts a server that gets the head of a request and writes what respond does.
func raw(t *testing.T, respond func(c net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(time.Minute))
				if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
					respond(c)
				}
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

func writes(text string) func(net.Conn) {
	return func(c net.Conn) { _, _ = io.WriteString(c, text) }
}

// found checks once.
func (c *check) found(t *testing.T, pools *upstream.Pools, version string) result {
	t.Helper()
	found, _ := c.do(t.Context(), pools, version)
	return found
}

// Guarantee: targets.md 3, the result of a check by a path follows from the final status; of a response at most 16 KiB are read, and
// nothing keeps a check beyond its timeout.
func TestResponsesToChecks(t *testing.T) {
	pools := newPools(t)
	endless := func(begin string) func(net.Conn) {
		return func(c net.Conn) {
			_, err := io.WriteString(c, begin)
			for err == nil {
				_, err = io.WriteString(c, strings.Repeat("x", 4096))
			}
		}
	}
	silent := func(c net.Conn) { _, _ = c.Read(make([]byte, 1)) }
	for name, c := range map[string]struct {
		respond func(net.Conn)
		want    result
		slow    bool
	}{
		"good":                      {writes("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"), good, false},
		"without a body":            {writes("HTTP/1.1 204 No Content\r\n\r\n"), good, false},
		"in pieces":                 {func(c net.Conn) { writes("HTTP/1.1 2")(c); writes("00 OK\r\n\r\n")(c) }, good, false},
		"HTTP/1.0":                  {writes("HTTP/1.0 200 OK\r\n\r\nok"), good, false},
		"a redirect is a status":    {writes("HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n"), good, false},
		"after an interim response": {writes("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n"), "status 503", false},
		"not found":                 {writes("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"), "status 404", false},
		"endless body":              {endless("HTTP/1.1 200 OK\r\n\r\n"), good, false},
		"a body that does not come": {func(c net.Conn) { writes("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")(c); silent(c) }, good, false},
		"endless head":              {endless("HTTP/1.1 200 OK\r\nX: "), malformed, false},
		"endless interim responses": {writes(strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 1000)), malformed, false},
		"not HTTP":                  {writes("hello\r\n\r\n"), malformed, false},
		"closed without a response": {func(net.Conn) {}, reset, false},
		"closed within the head":    {writes("HTTP/1.1 200 OK\r\nContent"), reset, false},
		"silent":                    {silent, timedOut, true},
		"the head never ends":       {func(c net.Conn) { writes("HTTP/1.1 200 OK\r\n")(c); silent(c) }, timedOut, true},
	} {
		t.Run(name, func(t *testing.T) {
			of := snapshot.Check{Path: "/healthz"}
			if c.slow {
				of.Timeout = 50 * time.Millisecond
			}
			if got := checkOf(t, raw(t, c.respond), of).found(t, pools, "1"); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	t.Run("statuses", func(t *testing.T) {
		redirects := raw(t, writes("HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n"))
		for text, want := range map[string]result{"200-299": "status 302", "200,302": good, "200-299,300-303": good, "303-399": "status 302"} {
			if got := checkOf(t, redirects, snapshot.Check{Path: "/", Statuses: statuses(t, text)}).found(t, pools, "1"); got != want {
				t.Errorf("%s: got %q, want %q", text, got, want)
			}
		}
	})
	t.Run("nothing listens", func(t *testing.T) {
		if got := checkOf(t, "http://"+porttest.Reserve(t), snapshot.Check{Path: "/"}).found(t, pools, "1"); got != noConnect {
			t.Errorf("got %q, want %q", got, noConnect)
		}
	})
}

// Guarantee: targets.md 3, a check is one request of the path at the root of the target's origin, on a connection of its own, with the
// host of the upstream, the headers of checks, none of another kind, and the name of Keygate. A redirect is not followed.
func TestRequestsOfChecks(t *testing.T) {
	pools := newPools(t)
	var got []*http.Request
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r)
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
	}))
	defer up.Close()
	for host, want := range map[string]string{"": strings.TrimPrefix(up.URL, "http://"), "orders.internal": "orders.internal"} {
		got = nil
		c := checkOf(t, up.URL+"/base", snapshot.Check{Path: "/healthz?full=1", Host: host, Headers: []snapshot.Header{{Name: "X-Probe", Value: "s3cret"}}})
		if found := c.found(t, pools, "1.2.3"); found != good || len(got) != 1 {
			t.Fatalf("got %q and %d requests, want one that is good", found, len(got))
		}
		r := got[0]
		if r.Host != want || r.RequestURI != "/healthz?full=1" || r.UserAgent() != "Keygate-Health/1.2.3" || r.Header.Get("X-Probe") != "s3cret" || len(r.Header) != 3 || r.Method != http.MethodGet {
			t.Errorf("got %s %s of %s with %v, want GET of the path with the host %s", r.Method, r.RequestURI, r.Host, r.Header, want)
		}
		if c.found(t, pools, "1.2.3"); len(got) != 2 || got[0].RemoteAddr == got[1].RemoteAddr {
			t.Errorf("got %d requests from %s, want the second one on a new connection", len(got), got[0].RemoteAddr)
		}
	}
}

// Guarantee: targets.md 1, a check over https requires the certificate that requests require, and shows theirs; it speaks HTTP/1.1 and
// HTTP/2, as the server likes.
func TestChecksOverTLS(t *testing.T) {
	pools := newPools(t)
	pair, client := certificatetest.NewFor(t, "orders.internal"), certificatetest.New(t, "client")
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	for _, protocols := range [][]string{{"http/1.1"}, {"h2", "http/1.1"}, {"h2"}, nil} {
		t.Run(strings.Join(protocols, ","), func(t *testing.T) {
			status := http.StatusOK
			up := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if len(r.TLS.PeerCertificates) == 0 {
					w.WriteHeader(http.StatusForbidden)
					return
				}
				w.WriteHeader(status)
				_, _ = io.WriteString(w, "ok")
			}))
			up.EnableHTTP2 = len(protocols) > 0 && protocols[0] == "h2"
			up.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: protocols, ClientAuth: tls.RequestClientCert}
			up.StartTLS()
			defer up.Close()
			up.Config.ErrorLog = nil
			shown := unique.Make([2]string{string(client.Cert), string(client.Key)})
			for name, c := range map[string]struct {
				of   snapshot.Check
				want result
			}{
				"by the name of host":  {snapshot.Check{CA: string(pair.Cert), ServerName: "orders.internal", Client: shown}, good},
				"by the address":       {snapshot.Check{CA: string(pair.Cert), Client: shown}, good},
				"without certificate":  {snapshot.Check{CA: string(pair.Cert)}, "status 403"},
				"for another name":     {snapshot.Check{CA: string(pair.Cert), ServerName: "other.internal", Client: shown}, badTLS},
				"of another authority": {snapshot.Check{CA: string(client.Cert), ServerName: "orders.internal", Client: shown}, badTLS},
				"of no known one":      {snapshot.Check{ServerName: "orders.internal", Client: shown}, badTLS},
			} {
				c.of.Path = "/"
				if got := checkOf(t, up.URL, c.of).found(t, pools, "1"); got != c.want {
					t.Errorf("%s: got %q, want %q", name, got, c.want)
				}
			}
			status = http.StatusServiceUnavailable
			if got := checkOf(t, up.URL, snapshot.Check{Path: "/", CA: string(pair.Cert), Client: shown}).found(t, pools, "1"); got != "status 503" {
				t.Errorf("got %q, want the status", got)
			}
		})
	}
	t.Run("plain server", func(t *testing.T) {
		up := httptest.NewServer(http.NotFoundHandler())
		defer up.Close()
		if got := checkOf(t, strings.Replace(up.URL, "http", "https", 1), snapshot.Check{Path: "/"}).found(t, pools, "1"); got != badTLS {
			t.Errorf("got %q, want %q", got, badTLS)
		}
	})
}

// Guarantee: targets.md 1, a check by gRPC is a call of grpc.health.v1.Health/Check, over https and h2c, and SERVING alone is good.
func TestChecksByGRPC(t *testing.T) {
	pools := newPools(t)
	pair := certificatetest.New(t, "orders.internal")
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	for _, scheme := range []string{"h2c", "https"} {
		t.Run(scheme, func(t *testing.T) {
			var options []grpc.ServerOption
			if scheme == "https" {
				options = append(options, grpc.Creds(credentials.NewServerTLSFromCert(&cert)))
			}
			states := grpchealth.NewServer()
			up := grpc.NewServer(options...)
			healthpb.RegisterHealthServer(up, states)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			go func() { _ = up.Serve(l) }()
			defer up.Stop()
			of := func(service string) result {
				of := snapshot.Check{Service: &service}
				if scheme == "https" {
					of.CA = string(pair.Cert)
				}
				return checkOf(t, scheme+"://"+l.Addr().String(), of).found(t, pools, "1")
			}
			states.SetServingStatus("orders.v1.Orders", healthpb.HealthCheckResponse_SERVING)
			states.SetServingStatus("down", healthpb.HealthCheckResponse_NOT_SERVING)
			states.SetServingStatus("unknown", healthpb.HealthCheckResponse_UNKNOWN)
			for service, want := range map[string]result{"": good, "orders.v1.Orders": good, "down": "not_serving", "unknown": "unknown", "other": "service_unknown"} {
				if got := of(service); got != want {
					t.Errorf("service %q: got %q, want %q", service, got, want)
				}
			}
		})
	}
	t.Run("no such method", func(t *testing.T) {
		up := grpc.NewServer()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = up.Serve(l) }()
		defer up.Stop()
		if got := checkOf(t, "h2c://"+l.Addr().String(), snapshot.Check{Service: new(string)}).found(t, pools, "1"); got != "grpc_status 12" {
			t.Errorf("got %q, want the status of gRPC", got)
		}
	})
	t.Run("no gRPC", func(t *testing.T) {
		up := raw(t, writes("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))
		if got := checkOf(t, strings.Replace(up, "http", "h2c", 1), snapshot.Check{Service: new(string), Timeout: time.Second}).found(t, pools, "1"); got == good {
			t.Error("a server that does not speak HTTP/2 is good")
		}
	})
}

// Guarantee: a message of grpc.health.v1 is read by its first field, others are skipped, and one that cannot be read is no good one.
func TestServingResult(t *testing.T) {
	for message, want := range map[string]result{
		"\x00\x00\x00\x00\x02\x08\x01": good, "\x00\x00\x00\x00\x02\x08\x02": "not_serving", "\x00\x00\x00\x00\x00": "unknown",
		"\x00\x00\x00\x00\x05\x12\x01x\x08\x01": good, "\x01\x00\x00\x00\x02\x08\x01": malformed, "\x00\x00\x00\x00\x03\x08\x01": malformed,
		"\x00\x00\x00\x00\x02\x12\x09": malformed, "\x00\x00\x00\x00\x01\x08": malformed, "": malformed,
	} {
		if got := servingResult([]byte(message)); got != want {
			t.Errorf("%q: got %q, want %q", message, got, want)
		}
	}
}

// Guarantee: a check by tcp needs a connection alone, over https too.
func TestChecksByTCP(t *testing.T) {
	pools := newPools(t)
	up := httptest.NewServer(http.NotFoundHandler())
	defer up.Close()
	for _, scheme := range []string{"http", "https", "h2c"} {
		if got := checkOf(t, strings.Replace(up.URL, "http", scheme, 1), snapshot.Check{}).found(t, pools, "1"); got != good {
			t.Errorf("%s: got %q, want a good check", scheme, got)
		}
		if got := checkOf(t, scheme+"://"+porttest.Reserve(t), snapshot.Check{}).found(t, pools, "1"); got != noConnect {
			t.Errorf("%s: got %q, want %q", scheme, got, noConnect)
		}
	}
}

// Guarantee: contract 4.6 and targets.md 1, an address that the rules refuse is not connected to, and the check says so.
func TestChecksKeepToAddressRules(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a refused address got a request") }))
	defer up.Close()
	for _, of := range []snapshot.Check{{PublicOnly: true, Path: "/"}, {PublicOnly: true}, {PublicOnly: true, Service: new(string)}} {
		for _, scheme := range []string{"http", "https", "h2c"} {
			if got := checkOf(t, strings.Replace(up.URL, "http", scheme, 1), of).found(t, newPools(t), "1"); got != notAllowed {
				t.Errorf("%s: got %q, want %q", scheme, got, notAllowed)
			}
		}
	}
	if got := checkOf(t, up.URL, snapshot.Check{PublicOnly: true}).found(t, newPools(t, netip.MustParsePrefix("127.0.0.0/8")), "1"); got != good {
		t.Errorf("got %q, want a listed network to be allowed", got)
	}
}

// Guarantee: a stop ends a check that runs.
func TestStopEndsChecks(t *testing.T) {
	begun := make(chan struct{})
	up := raw(t, func(c net.Conn) { close(begun); _, _ = c.Read(make([]byte, 1)) })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	c := checkOf(t, up, snapshot.Check{Path: "/", Timeout: time.Minute})
	pools := newPools(t)
	go func() { c.do(ctx, pools, "1"); close(ended) }()
	<-begun
	cancel()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("the check goes on")
	}
}

// Guarantee: the Host of a check has no port that the scheme implies.
func TestHostOfChecks(t *testing.T) {
	for target, want := range map[string]string{"http://a": "a", "https://a:443": "a", "https://a:80": "a:80", "h2c://a": "a", "http://[::1]:8080": "[::1]:8080", "http://[::1]": "[::1]"} {
		if got := checkOf(t, target, snapshot.Check{}); got.host != want {
			t.Errorf("%s: got %s, want %s", target, got.host, want)
		}
	}
}

// Guarantee: a check that this machine cannot make, because it has no descriptor left for it, says nothing about the target.
func TestFailuresOfThisMachineDoNotCount(t *testing.T) {
	pools, err := upstream.NewPools(upstream.Config{Guard: netguard.New(), MaxDescriptors: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer pools.Close()
	up := httptest.NewServer(http.NotFoundHandler())
	defer up.Close()
	if got := checkOf(t, up.URL, snapshot.Check{Path: "/"}).found(t, pools, "1"); got != notKnown {
		t.Errorf("got %q, want no result", got)
	}
}
