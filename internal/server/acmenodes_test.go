package server_test

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/acme/order"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/config"
	"github.com/keygate/keygate/internal/keygatetest"
	"github.com/keygate/keygate/internal/keygatetest/acmetest"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/keygatetest/cabletest"
	"github.com/keygate/keygate/internal/keygatetest/postgrestest"
)

// Guarantee: on several nodes, the one that leads orders, and any other one answers the validation. If the leader dies in an order, another
// node gets the certificate, which every node that lives serves; and what the dead one goes on with is not stored.
func TestCertificateOverNodes(t *testing.T) {
	c := &cluster{T: t, url: postgrestest.Empty(t), operator: must(apikey.Generate(apikey.AccountLevel, rand.Reader))}
	var toFirst string
	c.cable, toFirst = cabletest.ForURL(t, c.url)
	var addrs []string
	var ports order.Ports
	for range 3 {
		addr, port := addressOf(t)
		addrs, ports.TLS = append(addrs, addr), port // hostnames lead to the last node
	}
	db := must(pgx.Connect(t.Context(), c.url))
	t.Cleanup(func() { _ = db.Close(context.WithoutCancel(t.Context())) })
	ca := acmetest.Start(t, acmetest.Options{TLSPort: ports.TLS, HTTPPort: 1})
	ca.Zone.SetHost("shop.example.com", "127.0.0.1")
	for n, addr := range addrs {
		url := c.url
		if n == 0 { // the first one leads
			url = toFirst
		}
		c.nodes = append(c.nodes, keygatetest.StartWith(t, keygatetest.Options{
			Log: &lockedBuffer{}, Resolver: ca.Zone.Resolver(), ACMEPorts: ports, ACMEClient: ca.Client, Settings: map[string]string{config.AdminKeyVariable: c.operator},
			Args: []string{"--node-name", fmt.Sprintf("node-%d", n), "--lease-ttl", "15s", "--database-url", url, "--secret-key-file", secretKey(t, 1), "--gateway-addr", addr,
				"--acme-email", "ops@example.com", "--acme-directory", ca.Directory},
		}))
		awaittest.True(t, "the first node leads", func() bool {
			var leaders int
			return db.QueryRow(t.Context(), `SELECT count(*) FROM canary_lead`).Scan(&leaders) == nil && leaders == 1
		})
	}
	t.Cleanup(c.cable.Mend) // before the nodes stop
	last := c.nodes[2].Admin
	ca.Hold()
	hostname, on := "shop.example.com", true
	again(c, func() (*client.Gateway, error) {
		return last.CreateGateway(t.Context(), client.CreateGatewayRequest{Name: "shop", UpstreamURL: "http://127.0.0.1:9", Hostname: &hostname, Acme: &on})
	})
	select {
	case <-ca.Arrived():
	case <-time.After(awaittest.Timeout):
		t.Fatal("no order has come to the authority")
	}
	c.cable.Sever()
	ca.Release()
	var r client.Certificate
	awaittest.True(t, "another node can begin an order", func() bool {
		for found, err := range last.Certificates(t.Context(), client.CertificateFilter{Hostname: hostname}) {
			if err != nil {
				return false
			}
			r = found
			_, err = last.RenewCertificate(t.Context(), r.CertificateID)
			return err == nil
		}
		return false
	})
	roots := ca.Roots(t)
	awaittest.True(t, "the other nodes serve a certificate", func() bool {
		for _, addr := range addrs[1:] {
			if _, err := handshake(t, addr, hostname, &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}); err != nil {
				return false
			}
		}
		return true
	})
	if n := ca.Orders(); n < 2 {
		t.Errorf("there were %d orders: the first node did not die in one", n)
	}
	serial := func(addr string) string {
		state, err := handshake(t, addr, hostname, &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12})
		if err != nil {
			t.Fatal(err)
		}
		return state.PeerCertificates[0].SerialNumber.String()
	}
	if one, two := serial(addrs[1]), serial(addrs[2]); one != two {
		t.Errorf("the nodes serve the certificates %s and %s", one, two)
	}
}
