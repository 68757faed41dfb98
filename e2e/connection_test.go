package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/keygate/keygate/internal/certificate/certificatetest"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
)

// clientsByProtocol returns a client for HTTP/1.1 and one for HTTP/2, by protocol.
func clientsByProtocol(t *testing.T) map[string]*http.Client {
	t.Helper()
	clients := map[string]*http.Client{}
	for _, name := range []string{"HTTP/1.1", "HTTP/2.0"} {
		var p http.Protocols
		p.SetHTTP1(name == "HTTP/1.1")
		p.SetUnencryptedHTTP2(name == "HTTP/2.0")
		tr := &http.Transport{Protocols: &p}
		t.Cleanup(tr.CloseIdleConnections)
		clients[name] = &http.Client{Transport: tr}
	}
	return clients
}

// get sends a GET to the data plane and returns the status and body.
func (s *server) get(c *http.Client, key, path string) (int, string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), awaittest.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.gateway+path, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := c.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

// certificateUpstream is an upstream over TLS that requires a client certificate and responds with
// the common name of the certificate that it received.
type certificateUpstream struct {
	own, one, two certificatetest.Pair // its own certificate, and two that it accepts
	address       string
}

func newCertificateUpstream(t *testing.T, http2 bool) *certificateUpstream {
	t.Helper()
	u := &certificateUpstream{own: certificatetest.New(t, "service"), one: certificatetest.New(t, "one"), two: certificatetest.New(t, "two")}
	pair, err := tls.X509KeyPair(u.own.Cert, u.own.Key)
	if err != nil {
		t.Fatal(err)
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(u.one.Cert)
	clients.AppendCertsFromPEM(u.two.Cert)
	up := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.TLS.PeerCertificates[0].Subject.CommonName)
	}))
	up.EnableHTTP2 = http2
	up.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients}
	up.Config.ErrorLog = log.New(io.Discard, "", 0)
	up.StartTLS()
	t.Cleanup(up.Close)
	u.address = up.Listener.Addr().String()
	return u
}

// certificateGateway is a gateway in front of a certificateUpstream.
type certificateGateway struct {
	t       *testing.T
	s       *server
	id, key string
	clients map[string]*http.Client // by protocol
}

// change sets the client certificate of the gateway; nil removes it.
func (g *certificateGateway) change(p *certificatetest.Pair) {
	g.t.Helper()
	body := map[string]any{"upstream_client_certificate": nil, "upstream_client_key": nil}
	if p != nil {
		body = map[string]any{"upstream_client_certificate": string(p.Cert), "upstream_client_key": string(p.Key)}
	}
	g.s.call(http.StatusOK, "PATCH", "/v1/gateways/"+g.id, body)
}

// want fails the test unless a request over each protocol gets the status and, if name is
// not empty, the upstream received the certificate with that name.
func (g *certificateGateway) want(status int, name string) {
	g.t.Helper()
	for protocol, c := range g.clients {
		got, body, err := g.s.get(c, g.key, "/")
		if err != nil || got != status || name != "" && body != name {
			g.t.Errorf("%s: got status %d, body %q, error %v, want %d %q", protocol, got, body, err, status, name)
		}
	}
}

// changeUnderLoad alternates ten times between the two certificates while clients send
// requests. It checks that each request that starts after a change and ends before the
// next has the new certificate.
func (g *certificateGateway) changeUnderLoad(one, two *certificatetest.Pair) {
	g.t.Helper()
	var current atomic.Pointer[string] // nil during a change
	var load sync.WaitGroup
	var stopped atomic.Bool
	var served atomic.Int64
	for _, c := range g.clients {
		for range 3 {
			load.Go(func() {
				for !stopped.Load() {
					before := current.Load()
					_, body, err := g.s.get(c, g.key, "/")
					if err != nil {
						g.t.Error(err)
						return
					}
					served.Add(1)
					if after := current.Load(); before != nil && before == after && body != *before {
						g.t.Errorf("the upstream got certificate %q, want %q", body, *before)
					}
				}
			})
		}
	}
	for i := range 10 {
		next, name := one, "one"
		if i%2 == 0 {
			next, name = two, "two"
		}
		current.Store(nil)
		g.change(next)
		current.Store(&name)
		g.want(http.StatusOK, name)
		since := served.Load()
		if !awaittest.Holds(func() bool { return served.Load() >= since+20 }) {
			g.t.Error("fewer than 20 requests after a change: the test proves too little")
		}
	}
	stopped.Store(true)
	load.Wait()
}

// Guarantee: an upstream that requires a client certificate gets the gateway's, over HTTP/1.1 and
// HTTP/2 on both sides. Once a change of it has returned, no earlier certificate is presented,
// under load and after a restart. A gateway without a certificate gets a 502.
func TestClientCertificateReachesTheUpstream(t *testing.T) {
	for name, http2 := range map[string]bool{"over HTTP/1.1": false, "over HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			up := newCertificateUpstream(t, http2)
			s := startServer(t)
			g := &certificateGateway{t: t, s: s, clients: clientsByProtocol(t)}
			g.id = s.newGateway("https://"+up.address, map[string]any{"upstream_ca": string(up.own.Cert)})
			_, g.key = s.newKey(nil)
			g.want(http.StatusBadGateway, "")
			g.change(&up.one)
			g.want(http.StatusOK, "one")
			s.restart(syscall.SIGTERM)
			g.want(http.StatusOK, "one")
			g.changeUnderLoad(&up.one, &up.two)
			g.change(nil)
			g.want(http.StatusBadGateway, "")
		})
	}
}

// countingUpstream is an upstream that counts its concurrent requests. It holds requests
// for /held until release is closed.
type countingUpstream struct {
	url           string
	running, peak atomic.Int64
	release       chan struct{}
}

func newCountingUpstream(t *testing.T) *countingUpstream {
	u := &countingUpstream{release: make(chan struct{})}
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := u.running.Add(1)
		defer u.running.Add(-1)
		for m := u.peak.Load(); n > m && !u.peak.CompareAndSwap(m, n); m = u.peak.Load() {
		}
		if r.URL.Path == "/held" {
			<-u.release
		}
		_, _ = w.Write(make([]byte, 256<<10)) // long enough for other requests to overlap
	}))
	t.Cleanup(up.Close)
	u.url = up.URL
	return u
}

// Guarantee: a gateway never has more connections to its upstream than
// upstream_max_connections, for clients of both protocols together. A request that
// waits for a connection longer than timeout gets a 504; all others are served.
func TestConnectionsToTheUpstreamAreBounded(t *testing.T) {
	const bound = 3
	up := newCountingUpstream(t)
	s := startServer(t)
	id := s.newGateway(up.url, map[string]any{"upstream_max_connections": bound, "upstream_idle_timeout": "1s", "timeout": "30s"})
	_, key := s.newKey(nil)
	clients := clientsByProtocol(t)
	var all sync.WaitGroup
	for name, c := range clients {
		for range 10 {
			all.Go(func() {
				for range 20 {
					if status, body, err := s.get(c, key, "/"); err != nil || status != http.StatusOK {
						t.Errorf("%s: got status %d %s, error %v, want 200", name, status, body, err)
						return
					}
				}
			})
		}
	}
	all.Wait()
	if n := up.peak.Load(); n > bound {
		t.Errorf("%d concurrent requests reached the upstream over HTTP/1.1, want at most %d", n, bound)
	}
	for range bound {
		all.Go(func() {
			if status, body, err := s.get(clients["HTTP/1.1"], key, "/held"); err != nil || status != http.StatusOK {
				t.Errorf("a request that the upstream holds: got status %d %s, error %v, want 200", status, body, err)
			}
		})
	}
	if !awaittest.Holds(func() bool { return up.running.Load() == bound }) {
		t.Fatalf("%d connections are in use, want %d", up.running.Load(), bound)
	}
	s.call(http.StatusOK, "PATCH", "/v1/gateways/"+id, map[string]any{"timeout": "1s"})
	for name, c := range clients {
		if status, body, err := s.get(c, key, "/"); err != nil || status != http.StatusGatewayTimeout || !strings.Contains(body, "upstream_timeout") {
			t.Errorf("%s: got status %d %s, error %v, want 504 upstream_timeout", name, status, body, err)
		}
	}
	close(up.release)
	all.Wait()
	for name, c := range clients {
		if status, body, err := s.get(c, key, "/"); err != nil || status != http.StatusOK {
			t.Errorf("%s, after the connections are free again: got status %d %s, error %v, want 200", name, status, body, err)
		}
	}
}

// Guarantee: a request to an upstream that does not complete a connection gets a 502
// after upstream_connect_timeout, long before timeout.
func TestConnectTimeoutEndsTheRequest(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // accepts connections, but never makes a TLS handshake
	s := startServer(t)
	s.newGateway("https://"+l.Addr().String(), map[string]any{"upstream_connect_timeout": "200ms", "timeout": "1h"})
	_, key := s.newKey(nil)
	for name, c := range clientsByProtocol(t) {
		if status, body, err := s.get(c, key, "/"); err != nil || status != http.StatusBadGateway {
			t.Errorf("%s: got status %d %s, error %v, want 502", name, status, body, err)
		}
	}
}
