package wire

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"sync"
	"testing"

	"github.com/keygate/keygate/internal/certificate/certificatetest"
)

// backstage is an upstream whose connections are given to the test.
type backstage struct {
	addr  string
	conns chan net.Conn
}

func newBackstage(t testing.TB) *backstage {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &backstage{addr: l.Addr().String(), conns: make(chan net.Conn, 1024)}
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			b.conns <- conn
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		accepting.Wait()
		for {
			select {
			case conn := <-b.conns:
				_ = conn.Close()
			default:
				return
			}
		}
	})
	return b
}

// stopNow ends a data plane without waiting for what runs.
func stopNow(p *plane) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	p.stop(ctx)
}

// clientTLS trusts the one certificate of a listener.
func clientTLS(server *tls.Config) *tls.Config {
	return &tls.Config{RootCAs: server.RootCAs, ServerName: hostname, MinVersion: tls.VersionTLS12}
}

// serverTLS is the TLS of a listener of HTTP/1.1, with a certificate of its own,
// which RootCAs holds.
func serverTLS(t testing.TB) *tls.Config {
	t.Helper()
	pair := certificatetest.New(t, hostname)
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pair.Cert)
	return &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: roots, MinVersion: tls.VersionTLS12}
}
