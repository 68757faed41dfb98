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

// versions are callers of the data plane by HTTP/1.1 and by HTTP/2.
func versions(t *testing.T) map[string]*http.Client {
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

// ask makes a request of the data plane, and returns its status and body.
func (s *server) ask(c *http.Client, key, path string) (int, string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
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

// Guarantee: a service that asks for a client certificate is shown that of its
// gateway, whichever HTTP the caller and the service speak, and no other from the
// moment a change returns, under load and after a restart; a gateway without one
// does not reach it.
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
			callers := versions(t)
			wants := func(status int, who string) {
				t.Helper()
				for name, c := range callers {
					got, body, err := s.ask(c, key, "/")
					if err != nil || got != status || who != "" && body != who {
						t.Errorf("%s: %d %q %v; want %d %q", name, got, body, err, status, who)
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

			// Each request begun after a change shows the new one.
			var now atomic.Pointer[string]
			var load sync.WaitGroup
			var over atomic.Bool
			var asked atomic.Int64
			for _, c := range callers {
				for range 3 {
					load.Go(func() {
						for !over.Load() {
							before := now.Load()
							_, body, err := s.ask(c, key, "/")
							if err != nil {
								t.Error(err)
								return
							}
							asked.Add(1)
							if after := now.Load(); before != nil && before == after && body != *before {
								t.Errorf("%q was shown where %q was in force", body, *before)
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
				if !eventually(patience, func() bool { return asked.Load() >= since+20 }) {
					t.Error("nobody asks: the test shows too little")
				}
			}
			over.Store(true)
			load.Wait()
			change(nil)
			wants(http.StatusBadGateway, "")
		})
	}
}

// Guarantee: a service is never asked by more connections at once than its gateway
// may have, for callers of all kinds together; who has waited for timeout gets 504,
// and everybody else is served.
func TestBoundOfConnections(t *testing.T) {
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
		_, _ = w.Write(make([]byte, 256<<10)) // which takes time enough for others to come
	}))
	t.Cleanup(up.Close)
	s := startServer(t)
	id := s.newGateway(up.URL, map[string]any{"upstream_max_connections": bound, "upstream_idle_timeout": "1s", "timeout": "30s"})
	_, key := s.newKey(nil)
	callers := versions(t)
	var all sync.WaitGroup
	for name, c := range callers {
		for range 10 {
			all.Go(func() {
				for range 20 {
					if status, body, err := s.ask(c, key, "/"); err != nil || status != http.StatusOK {
						t.Errorf("%s: %d %s %v", name, status, body, err)
						return
					}
				}
			})
		}
	}
	all.Wait()
	if n := most.Load(); n > bound {
		t.Errorf("%d requests at once over connections of one request each; the bound is %d", n, bound)
	}
	for range bound {
		all.Go(func() {
			if status, body, err := s.ask(callers["HTTP/1.1"], key, "/held"); err != nil || status != http.StatusOK {
				t.Errorf("held: %d %s %v", status, body, err)
			}
		})
	}
	if !eventually(patience, func() bool { return running.Load() == bound }) {
		t.Fatal("not all connections are in use")
	}
	s.call(http.StatusOK, "PATCH", "/v1/gateways/"+id, map[string]any{"timeout": "1s"})
	for name, c := range callers {
		if status, body, err := s.ask(c, key, "/"); err != nil || status != http.StatusGatewayTimeout || !strings.Contains(body, "upstream_timeout") {
			t.Errorf("%s: %d %s %v; want 504", name, status, body, err)
		}
	}
	close(hold)
	all.Wait()
	for name, c := range callers {
		if status, body, err := s.ask(c, key, "/"); err != nil || status != http.StatusOK {
			t.Errorf("%s, when there is room again: %d %s %v", name, status, body, err)
		}
	}
}

// Guarantee: a service that takes no connection is given up after the gateway's
// own time to connect, with 502, long before its timeout.
func TestTimeToConnect(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // it accepts, and never says a word of TLS
	s := startServer(t)
	s.newGateway("https://"+l.Addr().String(), map[string]any{"upstream_connect_timeout": "200ms", "timeout": "1h"})
	_, key := s.newKey(nil)
	for name, c := range versions(t) {
		if status, body, err := s.ask(c, key, "/"); err != nil || status != http.StatusBadGateway {
			t.Errorf("%s: %d %s %v; want 502", name, status, body, err)
		}
	}
}
