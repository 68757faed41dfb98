package server_test

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/acme/order"
	"github.com/keygate/keygate/internal/keygatetest"
	"github.com/keygate/keygate/internal/keygatetest/acmetest"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/keygatetest/porttest"
	"github.com/keygate/keygate/internal/secret"
	"github.com/keygate/keygate/internal/server"
)

// addressOf returns an address that a test has, and its port.
func addressOf(t *testing.T) (addr string, port int) {
	t.Helper()
	addr = porttest.Reserve(t)
	return addr, int(netip.MustParseAddrPort(addr).Port())
}

// acmeServer is a server that gets certificates of a CA in the test's process.
type acmeServer struct {
	*keygatetest.Server
	ca       *acmetest.CA
	t        *testing.T
	tls, web string // addresses
}

// startACME starts one; with a listener for HTTP-01 or, without it, validated by TLS-ALPN-01.
func startACME(t *testing.T, web bool) *acmeServer {
	t.Helper()
	return startACMEWith(t, web, keygatetest.Options{})
}

// startACMEWith does the same with options.
func startACMEWith(t *testing.T, web bool, o keygatetest.Options) *acmeServer {
	t.Helper()
	s := &acmeServer{t: t}
	var ports order.Ports
	s.tls, ports.TLS = addressOf(t)
	s.web, ports.HTTP = addressOf(t)
	s.ca = acmetest.Start(t, acmetest.Options{HTTPPort: ports.HTTP, TLSPort: ports.TLS})
	o.Args = []string{"--gateway-addr", s.tls, "--acme-email", "ops@example.com", "--acme-directory", s.ca.Directory}
	if web {
		o.Args = append(o.Args, "--acme-http-addr", s.web)
	}
	o.Resolver, o.ACMEPorts, o.ACMEClient = s.ca.Zone.Resolver(), ports, s.ca.Client
	s.Server = keygatetest.StartWith(t, o)
	return s
}

// gateway creates a gateway with a certificate.
func (s *acmeServer) gateway(c *client.Client, hostname string) *client.Gateway {
	s.t.Helper()
	on := true
	g, err := c.CreateGateway(s.t.Context(), client.CreateGatewayRequest{Name: hostname, UpstreamURL: keygatetest.NewUpstream(s.t).URL, Hostname: &hostname, Acme: &on})
	if err != nil {
		s.t.Fatal(err)
	}
	return g
}

// certificate returns the certificate of a hostname.
func certificateOf(t *testing.T, c *client.Client, hostname string) client.Certificate {
	t.Helper()
	for r, err := range c.Certificates(t.Context(), client.CertificateFilter{Hostname: hostname}) {
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	t.Fatalf("there is no certificate for %s", hostname)
	return client.Certificate{}
}

// awaitState waits until the certificate of a hostname has a state.
func awaitState(t *testing.T, c *client.Client, hostname, state string) (r client.Certificate) {
	t.Helper()
	awaittest.True(t, "the certificate of "+hostname+" is "+state, func() bool {
		r = certificateOf(t, c, hostname)
		return string(r.State) == state
	})
	return r
}

// handshake returns the certificate that a listener sends for a name, or the error of the handshake.
func handshake(t *testing.T, addr, name string, cfg *tls.Config) (*tls.ConnectionState, error) {
	t.Helper()
	cfg.ServerName = name
	d := tls.Dialer{Config: cfg}
	conn, err := d.DialContext(t.Context(), "tcp", addr)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	state := conn.(*tls.Conn).ConnectionState()
	return &state, nil
}

// Guarantee: a gateway with acme gets a certificate by HTTP-01 or TLS-ALPN-01, which is served by the name that clients ask for, also
// after a restart without another order. A client that asks for another name, or for none, gets none. It ends with its gateway.
func TestCertificateByACME(t *testing.T) {
	for name, web := range map[string]bool{"HTTP-01": true, "TLS-ALPN-01": false} {
		t.Run(name, func(t *testing.T) {
			s := startACME(t, web)
			s.ca.Zone.SetHost("shop.example.com", "127.0.0.1")
			g := s.gateway(s.Admin, "shop.example.com")
			r := awaitState(t, s.Admin, "shop.example.com", "valid")
			if r.NotAfter == nil || r.RenewAt == nil || !r.RenewAt.Before(*r.NotAfter) || r.LastError != nil || r.GatewayID != g.GatewayID {
				t.Errorf("got %+v", r)
			}
			roots, orders := s.ca.Roots(t), s.ca.Orders()
			for range 2 {
				if _, err := handshake(t, s.tls, "shop.example.com", &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}); err != nil {
					t.Errorf("the certificate is not served: %v", err)
				}
				for _, other := range []string{"other.example.com", "example.com", "x.shop.example.com"} {
					if _, err := handshake(t, s.tls, other, &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}); err == nil || !strings.Contains(err.Error(), "unrecognized name") {
						t.Errorf("%s: got %v, want the alert unrecognized_name", other, err)
					}
				}
				if _, err := handshake(t, s.tls, "shop.example.com", &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12, NextProtos: []string{"acme-tls/1"}}); err == nil {
					t.Error("a validation is answered that nobody has asked for")
				}
				s.Restart()
			}
			if n := s.ca.Orders() - orders; n != 0 {
				t.Errorf("there were %d orders after the certificate was there, want none", n)
			}
			if _, err := s.Admin.DeleteGateway(t.Context(), g.GatewayID); err != nil {
				t.Fatal(err)
			}
			if _, err := handshake(t, s.tls, "shop.example.com", &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}); err == nil {
				t.Error("the certificate of a deleted gateway is served")
			}
		})
	}
}

// Guarantee: the listener of HTTP-01 redirects the hostnames of gateways to https, with path and query, and answers nothing else.
func TestListenerOfValidations(t *testing.T) {
	s := startACME(t, true)
	hostname := "shop.example.com"
	if _, err := s.Admin.CreateGateway(t.Context(), client.CreateGatewayRequest{Name: "shop", UpstreamURL: keygatetest.NewUpstream(t).URL, Hostname: &hostname}); err != nil {
		t.Fatal(err)
	}
	get := func(host, target string) string {
		conn, err := net.Dial("tcp", s.web)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", target, host)
		all, err := io.ReadAll(conn)
		if err != nil {
			t.Fatal(err)
		}
		return string(all)
	}
	for _, c := range []struct{ host, target, location string }{
		{hostname, "/a%2Fb?c=%20d&e", "https://shop.example.com/a%2Fb?c=%20d&e"},
		{"SHOP.example.com:80", "//evil.example/x", "https://shop.example.com//evil.example/x"},
		{"shop.example.com.", "/", "https://shop.example.com/"},
		{"other.example.com", "/", ""},
		{"127.0.0.1", "/", ""},
		{hostname, "/.well-known/acme-challenge/x", ""},
		{hostname, "/.well-known/acme-challenge/", ""},
		{hostname, "http://evil.example/", ""},
	} {
		got := get(c.host, c.target)
		if c.location == "" {
			if !strings.HasPrefix(got, "HTTP/1.1 404 ") {
				t.Errorf("%s %s: got %q, want 404", c.host, c.target, got)
			}
		} else if !strings.HasPrefix(got, "HTTP/1.1 308 ") || !strings.Contains(got, "\r\nLocation: "+c.location+"\r\n") {
			t.Errorf("%s %s: got %q, want a redirect to %s", c.host, c.target, got, c.location)
		}
	}
}

// Guarantee: without a look that reaches this installation, the CA is not asked. The record says what to do, the next attempt waits, and
// one that is asked for by a call succeeds as soon as the name leads here.
func TestNameThatDoesNotLeadHere(t *testing.T) {
	s := startACME(t, true)
	s.gateway(s.Admin, "shop.example.com")
	r := awaitState(t, s.Admin, "shop.example.com", "failed")
	if r.LastError == nil || !strings.Contains(*r.LastError, "not found in the DNS") || s.ca.Orders() != 0 {
		t.Errorf("got %+v after %d orders", r, s.ca.Orders())
	}
	s.ca.Zone.SetHost("shop.example.com", "127.0.0.1")
	if _, err := s.Admin.RenewCertificate(t.Context(), r.CertificateID); err != nil {
		t.Fatal(err)
	}
	awaitState(t, s.Admin, "shop.example.com", "valid")
	list := s.Call(http.MethodGet, "/v1/audit-log?kind=management", s.AdminKey, "")
	if !strings.Contains(list.Body, r.CertificateID) {
		t.Errorf("the renewal is not in the audit log: %s", list.Body)
	}
}

// Guarantee: the private key of a certificate, and that of the account with the authority, are in no response, event, metric, export, line
// of the log or file of the server, apart from the store, where they are encrypted.
func TestKeysOfCertificatesAreNowhere(t *testing.T) {
	log := &lockedBuffer{}
	s := startACMEWith(t, true, keygatetest.Options{Log: log})
	s.ca.Zone.SetHost("shop.example.com", "127.0.0.1")
	g := s.gateway(s.Admin, "shop.example.com")
	awaitState(t, s.Admin, "shop.example.com", "valid")
	var texts strings.Builder
	for _, path := range []string{"/v1/certificates", "/v1/gateways", "/v1/gateways/" + g.GatewayID + "/config", "/v1/audit-log", "/v1/events"} {
		got := s.Call(http.MethodGet, path, s.AdminKey, "")
		if got.Status != http.StatusOK {
			t.Errorf("%s: got %d", path, got.Status)
		}
		texts.WriteString(got.Body)
	}
	_, metrics := fetch(t, s.OpsURL()+"/metrics")
	texts.WriteString(metrics)
	s.Stop() // everything is written
	texts.WriteString(log.String())
	box := must(secret.Load(filepath.Join(s.DataDir, "secret.key")))
	db := must(sql.Open("sqlite", filepath.Join(s.DataDir, "keygate.db")))
	defer func() { _ = db.Close() }()
	var keys [][]byte
	for _, query := range []string{`SELECT key FROM certificates`, `SELECT key FROM certificate_accounts`} {
		var sealed []byte
		if err := db.QueryRowContext(t.Context(), query).Scan(&sealed); err != nil {
			t.Fatal(err)
		}
		keys = append(keys, must(box.Open(sealed)))
	}
	for _, e := range must(os.ReadDir(s.DataDir)) {
		if e.Type().IsRegular() {
			texts.Write(must(os.ReadFile(filepath.Join(s.DataDir, e.Name()))))
		}
	}
	for n, der := range keys {
		private := must(x509.ParsePKCS8PrivateKey(der)).(*ecdsa.PrivateKey)
		number := must(private.Bytes())
		for _, form := range []string{string(number), hex.EncodeToString(number), base64.StdEncoding.EncodeToString(der), base64.RawURLEncoding.EncodeToString(number), "PRIVATE KEY"} {
			if strings.Contains(texts.String(), form) {
				t.Errorf("key %d is somewhere in the clear", n)
			}
		}
	}
}

// Guarantee: keygate doctor says of an authority that cannot be asked what to do, and looks at the address for validations. Without
// --acme-email there is nothing to say.
func TestDoctorAsksTheAuthority(t *testing.T) {
	closed := "https://" + porttest.Reserve(t) + "/dir"
	list := examine(t, t.TempDir(), "--acme-email", "ops@example.com", "--acme-directory", closed, "--acme-http-addr", "127.0.0.1:0")
	expect(t, list, "certificate authority", server.FindingProblem, "--acme-directory")
	expect(t, list, "--acme-http-addr", server.FindingOK, "is free")
	for _, f := range examine(t, t.TempDir()) {
		if f.Check == "certificate authority" || f.Check == "--acme-http-addr" {
			t.Errorf("without --acme-email: got %+v", f)
		}
	}
}
