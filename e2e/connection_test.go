package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
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
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
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

// Guarantee: an upstream that requires a client certificate gets that of the gateway,
// over HTTP/1.1 and HTTP/2 on both sides, and no earlier one once a change has
// returned, under load and after a restart. A gateway without a certificate gets a 502.
func TestClientCertificateReachesTheService(t *testing.T) {
	own := certificatetest.New(t, "service")
	one, two := certificatetest.New(t, "one"), certificatetest.New(t, "two")
	pair, err := tls.X509KeyPair(own.Cert, own.Key)
	if err != nil {
		t.Fatal(err)
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(one.Cert)
	clients.AppendCertsFromPEM(two.Cert)
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2 %v", http2), func(t *testing.T) {
			up := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, r.TLS.PeerCertificates[0].Subject.CommonName)
			}))
			up.EnableHTTP2 = http2
			up.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients}
			up.Config.ErrorLog = log.New(io.Discard, "", 0)
			up.StartTLS()
			t.Cleanup(up.Close)
			s := startServer(t)
			id := s.newGateway("https://"+up.Listener.Addr().String(), map[string]any{"upstream_ca": string(own.Cert)})
			_, key := s.newKey(nil)
			callers := clientsByProtocol(t)
			wants := func(status int, who string) {
				t.Helper()
				for name, c := range callers {
					got, body, err := s.get(c, key, "/")
					if err != nil || got != status || who != "" && body != who {
						t.Errorf("%s: got status %d, body %q, error %v, want %d %q", name, got, body, err, status, who)
					}
				}
			}
			change := func(p *certificatetest.Pair) {
				t.Helper()
				body := map[string]any{"upstream_client_certificate": nil, "upstream_client_key": nil}
				if p != nil {
					body = map[string]any{"upstream_client_certificate": string(p.Cert), "upstream_client_key": string(p.Key)}
				}
				s.call(http.StatusOK, "PATCH", "/v1/gateways/"+id, body)
			}
			wants(http.StatusBadGateway, "")
			change(&one)
			wants(http.StatusOK, "one")
			s.restart(syscall.SIGTERM)
			wants(http.StatusOK, "one")

			// Each request that starts after a change has the new certificate.
			var now atomic.Pointer[string]
			var load sync.WaitGroup
			var over atomic.Bool
			var asked atomic.Int64
			for _, c := range callers {
				for range 3 {
					load.Go(func() {
						for !over.Load() {
							before := now.Load()
							_, body, err := s.get(c, key, "/")
							if err != nil {
								t.Error(err)
								return
							}
							asked.Add(1)
							if after := now.Load(); before != nil && before == after && body != *before {
								t.Errorf("the upstream got certificate %q, want %q", body, *before)
							}
						}
					})
				}
			}
			for i := range 10 {
				next, name := &one, "one"
				if i%2 == 0 {
					next, name = &two, "two"
				}
				now.Store(nil)
				change(next)
				now.Store(&name)
				wants(http.StatusOK, name)
				since := asked.Load()
				if !eventually(testTimeout, func() bool { return asked.Load() >= since+20 }) {
					t.Error("fewer than 20 requests after a change: the test proves too little")
				}
			}
			over.Store(true)
			load.Wait()
			change(nil)
			wants(http.StatusBadGateway, "")
		})
	}
}

// Guarantee: a gateway never has more connections to its upstream than
// upstream_max_connections, for clients of both protocols together. A request that
// waits for a connection longer than timeout gets a 504; all others are served.
func TestConnectionsToTheUpstreamAreBounded(t *testing.T) {
	const bound = 3
	var running, most atomic.Int64
	hold := make(chan struct{})
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := running.Add(1)
		defer running.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		if r.URL.Path == "/held" {
			<-hold
		}
		_, _ = w.Write(make([]byte, 256<<10)) // long enough for other requests to overlap
	}))
	t.Cleanup(up.Close)
	s := startServer(t)
	id := s.newGateway(up.URL, map[string]any{"upstream_max_connections": bound, "upstream_idle_timeout": "1s", "timeout": "30s"})
	_, key := s.newKey(nil)
	callers := clientsByProtocol(t)
	var all sync.WaitGroup
	for name, c := range callers {
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
	if n := most.Load(); n > bound {
		t.Errorf("%d concurrent requests reached the upstream over HTTP/1.1, want at most %d", n, bound)
	}
	for range bound {
		all.Go(func() {
			if status, body, err := s.get(callers["HTTP/1.1"], key, "/held"); err != nil || status != http.StatusOK {
				t.Errorf("a request that the upstream holds: got status %d %s, error %v, want 200", status, body, err)
			}
		})
	}
	if !eventually(testTimeout, func() bool { return running.Load() == bound }) {
		t.Fatalf("%d connections are in use, want %d", running.Load(), bound)
	}
	s.call(http.StatusOK, "PATCH", "/v1/gateways/"+id, map[string]any{"timeout": "1s"})
	for name, c := range callers {
		if status, body, err := s.get(c, key, "/"); err != nil || status != http.StatusGatewayTimeout || !strings.Contains(body, "upstream_timeout") {
			t.Errorf("%s: got status %d %s, error %v, want 504 upstream_timeout", name, status, body, err)
		}
	}
	close(hold)
	all.Wait()
	for name, c := range callers {
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
