package cluster

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/keygatetest/acmetest"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/keygatetest/postgrestest"
	"github.com/keygate/keygate/internal/keygatetest/proctest"
)

// certificateNodes is three nodes that get certificates of an authority in the test's process. Each listens at port 443 of an address
// of its own.
type certificateNodes struct {
	*fleet
	ca    *acmetest.CA
	roots *x509.CertPool
	addrs []string
	api   []*client.Client // of each node
}

func newCertificateNodes(t *testing.T, hosts map[string]string) *certificateNodes {
	t.Helper()
	operator, err := apikey.Generate(apikey.AccountLevel, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &certificateNodes{fleet: &fleet{T: t, url: postgrestest.Start(t, postgrestest.Config{}).Database(t, "")}, ca: acmetest.Start(t, acmetest.Options{HTTPPort: 80, TLSPort: 443})}
	c.roots = c.ca.Roots(t)
	for name, addr := range hosts {
		c.ca.Zone.SetHost(name, addr)
	}
	t.Setenv("SSL_CERT_FILE", c.ca.TrustFile(t)) // of the nodes
	secret := filepath.Join(t.TempDir(), "secret.key")
	text := make([]byte, 32)
	_, _ = rand.Read(text)
	if err := os.WriteFile(secret, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"one", "two", "three"} {
		addr := fmt.Sprintf("127.0.0.%d:443", i+1)
		n := newNode(t, name, operator, "--database-url", c.url, "--secret-key-file", secret, "--lease-ttl", "15s", "--gateway-addr", addr,
			"--acme-email", "ops@example.com", "--acme-directory", c.ca.Directory)
		c.nodes, c.addrs, c.api = append(c.nodes, n), append(c.addrs, addr), append(c.api, n.client(operator, awaittest.Timeout))
	}
	return c
}

// gateway creates a gateway with a certificate.
func (c *certificateNodes) gateway(node int, hostname string) {
	c.Helper()
	on := true
	must(c.fleet, func() (*client.Gateway, error) {
		return c.api[node].CreateGateway(c.Context(), client.CreateGatewayRequest{Name: hostname, UpstreamURL: "http://127.0.0.1:9", Hostname: &hostname, Acme: &on})
	})
}

// certificate returns the record of a hostname, as a node has it.
func (c *certificateNodes) certificate(node int, hostname string) *client.Certificate {
	c.Helper()
	return must(c.fleet, func() (*client.Certificate, error) {
		for r, err := range c.api[node].Certificates(c.Context(), client.CertificateFilter{Hostname: hostname}) {
			return &r, err
		}
		return nil, errors.New("there is no certificate for " + hostname)
	})
}

// serial returns the serial number of the certificate that a node serves for a hostname; "" for none that the authority has issued.
func (c *certificateNodes) serial(node int, hostname string) string {
	c.Helper()
	d := tls.Dialer{Config: &tls.Config{ServerName: hostname, RootCAs: c.roots, MinVersion: tls.VersionTLS12}}
	conn, err := d.DialContext(c.Context(), "tcp", c.addrs[node])
	if err != nil {
		return ""
	}
	defer func() { _ = conn.Close() }()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.String()
}

// awaitServed waits until nodes serve the same certificate for a hostname, which is another one than before, and returns its serial number.
func (c *certificateNodes) awaitServed(hostname, before string, nodes ...int) (serial string) {
	c.Helper()
	if !awaittest.Holds(func() bool {
		serial = c.serial(nodes[0], hostname)
		for _, n := range nodes[1:] {
			if c.serial(n, hostname) != serial {
				return false
			}
		}
		return serial != "" && serial != before
	}) {
		for _, n := range c.nodes {
			c.Logf("%s: %s", n.name, &n.output)
		}
		c.Fatalf("the nodes %v do not serve a new certificate for %s: %+v", nodes, hostname, c.certificate(nodes[0], hostname))
	}
	return serial
}

// renew begins the next attempt now.
func (c *certificateNodes) renew(node int, hostname string) {
	c.Helper()
	r := c.certificate(node, hostname)
	must(c.fleet, func() (*client.Certificate, error) { return c.api[node].RenewCertificate(c.Context(), r.CertificateID) })
}

// Guarantee: a hostname gets its certificate although the process that leads is killed in the order: another node leads then, begins an
// order of its own, and every node that lives serves what comes of it. The hostname leads to a node that never ordered. A node that is
// started again serves all certificates, and a renewal is in force on every node.
func TestLeaderIsKilledInAnOrder(t *testing.T) {
	const first, shop = "first.example.com", "shop.example.com"
	hosts := map[string]string{first: "127.0.0.1", shop: "127.0.0.3"}
	if !proctest.AloneOnNetwork(t, hosts) {
		return
	}
	c := newCertificateNodes(t, hosts)
	one := c.nodes[0]
	one.start()
	c.gateway(0, first)
	c.awaitServed(first, "", 0) // so it leads
	for _, n := range c.nodes[1:] {
		n.start()
	}

	c.ca.Hold()
	c.gateway(2, shop)
	select {
	case <-c.ca.Arrived():
	case <-time.After(awaittest.Timeout):
		t.Fatal("no order has come to the authority")
	}
	one.end(syscall.SIGKILL)
	c.ca.Release()
	c.renew(2, shop) // without the wait after an attempt that failed
	serial := c.awaitServed(shop, "", 1, 2)
	if r := c.certificate(1, shop); r.State != client.CertificateStateValid || r.LastError != nil {
		t.Errorf("got %+v", r)
	}
	if n := c.ca.Orders(); n < 3 {
		t.Errorf("the authority got %d orders, want one of the first hostname, and two of the other", n)
	}

	one.start()
	if got := c.awaitServed(shop, "", 0, 1, 2); got != serial {
		t.Errorf("after its start the node serves %s, the others %s", got, serial)
	}
	c.awaitServed(first, "", 0, 1, 2)
	c.renew(0, shop)
	c.awaitServed(shop, serial, 0, 1, 2)
}
